//! Waiters are told.

use super::*;

/// So long that only a notification can have come first.
const POLL: Duration = Duration::from_mins(1);

async fn hand_over(table: &Table, from: &PostgresBackend, to: &PostgresBackend) {
    let grant = granted(from, &claim("a")).await;
    let (to, next) = (to.clone(), waiting("a"));
    let acquiring = tokio::spawn(async move { to.acquire(&next).await.map(|grant| (to, grant)) });
    until(async || table.number("SELECT count(*) FROM {t} WHERE awaited_until > now()").await == 1).await;
    assert_eq!(from.release(&grant).await.unwrap(), Release::Released { awaited: true });
    let told = tokio::time::timeout(POLL / 4, acquiring).await.expect("the waiter was not told");
    let (to, next) = told.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(to.release(&next).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn a_waiter_is_told_of_a_release() {
    let table = Table::new().await;
    let to = PostgresBackend::connect(table.options().poll(POLL)).await.unwrap();
    hand_over(&table, &table.open().await, &to).await;
}

#[tokio::test]
async fn a_listener_that_was_cut_off_listens_again() {
    let table = Table::new().await;
    let to = PostgresBackend::connect(table.options().poll(POLL)).await.unwrap();
    let from = table.open().await;
    hand_over(&table, &from, &to).await;
    let listens = "FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{t}\"%'";
    table.execute(&format!("SELECT pg_terminate_backend(pid, 10000) {listens}")).await;
    let count = format!("SELECT count(*) {listens}");
    until(async || table.number(&count).await == 1).await;
    hand_over(&table, &from, &to).await;
}

#[tokio::test]
async fn a_waiter_is_told_of_a_forced_release_and_of_a_withdrawal() {
    let table = Table::new().await;
    let (ours, theirs) =
        (table.open().await, PostgresBackend::connect(table.options().poll(POLL)).await.unwrap());
    for force in [true, false] {
        let held = claim("a");
        granted(&ours, &held).await;
        let (waiter, next) = (theirs.clone(), waiting("a"));
        let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
        until(async || table.number("SELECT count(*) FROM {t} WHERE awaited_until > now()").await == 1).await;
        if force {
            assert_eq!(ours.force_release(&held.name).await.unwrap().len(), 1);
        } else {
            ours.withdraw(&held).await.unwrap();
        }
        let told = tokio::time::timeout(POLL / 4, acquiring).await.expect("the waiter was not told");
        theirs.release(&told.unwrap().unwrap()).await.unwrap();
    }
}
