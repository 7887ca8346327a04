//! The holders of row locks.

use crate::{Backend, Table, case::cases, claim, granted, lease_rows::Rows};
use std::time::Duration;

cases!("people": a_few_holders_are_found_among_many_names.of_row_locks().alone());

/// The database may not look at every holder for every name: that took 3 s here.
async fn a_few_holders_are_found_among_many_names(table: &Table) {
    const NAMES: usize = 30_000;
    const HOLDERS: usize = 60;
    let store = table.options().connections(HOLDERS).open().await.unwrap();
    let digit = |named, digits| {
        let rows: Vec<_> = (0..digits).map(|digit| format!("SELECT {digit} AS {named}")).collect();
        format!("({}) AS digit_{named}", rows.join(" UNION ALL "))
    };
    let digits = [("a", 3), ("b", 10), ("c", 10), ("d", 10), ("e", 10), ("part", 2)];
    let rows = digits.map(|(named, digits)| digit(named, digits)).join(", ");
    let names = "SELECT '', concat('n', a, b, c, d, e), part, 1, 'nobody'";
    table.execute(&format!("INSERT INTO {{t}} (prefix, name, part, token, claim) {names} FROM {rows}")).await;
    let mut grants = Vec::new();
    for held in (0..NAMES).step_by(NAMES / HOLDERS) {
        grants.push(granted(&store, &claim(&format!("n{held:05}"))).await);
    }
    // Only who lists has less patience than that.
    let lists = table.options().response_timeout(Duration::from_secs(2)).open().await.unwrap();
    let mut listed = lists.list("n").await;
    // A machine may stall now and then; who looks at every holder for every name is late every time.
    for _ in 0..2 {
        if listed.is_err() {
            listed = lists.list("n").await;
        }
    }
    let listed = listed.unwrap();
    let held = |name: &str| name.strip_prefix('n').unwrap().parse::<usize>().unwrap();
    let listed: Vec<_> = listed.iter().map(|holder| held(holder.name.as_str())).collect();
    assert_eq!(listed, (0..NAMES).step_by(NAMES / HOLDERS).collect::<Vec<_>>());
}
