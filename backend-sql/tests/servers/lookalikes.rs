//! Row locks: sessions of other users that look like those of holders and waiters.

use crate::{
    Backend, Kind, RELEASED, Store, Table, case::cases, claim, granted, lease_rows::Rows, lost_by_force,
    name, notes::Two, soon, table::Raw, until, waiting,
};
use futures_util::FutureExt;
use std::pin::pin;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::ClaimId;

cases!("lookalikes":
    a_force_ends_the_holder_alone.on(&[Kind::Postgres]).of_sessions(),
    a_wait_that_is_given_up_is_ended_beside_one.on(&[Kind::Postgres]).of_row_locks(),
    a_lookalike_is_no_sign_of_life.on(&[Kind::Postgres]).of_row_locks(),
    a_user_lock_taken_by_a_stranger_delays_nobody.on(&[Kind::Mariadb, Kind::Mysql]).of_row_locks(),
);

/// A stranger's session that is named as the claim's.
async fn like(table: &Table, claim: ClaimId) -> Raw {
    let mut stranger = table.stranger().await;
    stranger.execute(&format!("SET application_name = 'tenure {}'", table.shown(claim))).await;
    stranger
}

/// Two clients of a user that may end only its own connections.
async fn clients(table: &Table) -> [Store; 2] {
    let _made = table.open().await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let open = async || table.options_at(&url).open().await.unwrap();
    [open().await, open().await]
}

async fn a_force_ends_the_holder_alone(table: &Table) {
    let [ours, theirs] = clients(table).await;
    let held = granted(&ours, &claim("a")).await;
    let mut lookalike = like(table, held.claim).await;
    assert_eq!(theirs.holders(&held.name).await.unwrap().len(), 1);
    let put_out = theirs.force_release(&held.name).await.unwrap();
    assert_eq!(put_out.iter().map(|holder| holder.claim).collect::<Vec<_>>(), [Some(held.claim)]);
    lost_by_force(&ours, &held).await;
    // No client holds it, though a stranger's session is named as the claim's.
    assert!(theirs.holders(&held.name).await.unwrap().is_empty());
    assert!(theirs.list("").await.unwrap().is_empty());
    assert!(theirs.force_release(&held.name).await.unwrap().is_empty());
    lookalike.execute("SELECT 1").await;
    let next = soon(theirs.acquire(&waiting("a"))).await.unwrap();
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

async fn a_wait_that_is_given_up_is_ended_beside_one(table: &Table) {
    let [ours, theirs] = clients(table).await;
    let grant = granted(&ours, &claim("a")).await;
    let waits = waiting("a");
    let mut lookalike = like(table, waits.id).await;
    {
        let mut acquiring = pin!(theirs.acquire(&waits));
        assert!(acquiring.as_mut().now_or_never().is_none());
        table.until_waits(waits.id).await;
    }
    theirs.withdraw(&waits).await.unwrap();
    // At once, and not when the server finds out by itself that the client has gone.
    let left = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'tenure {}'",
        waits.id
    );
    assert_eq!(table.number(&left).await, 0, "it still waits");
    lookalike.execute("SELECT 1").await;
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
}

/// The server ends the waiter's connection, and the client does not hear of it. It soon waits over another one.
async fn a_lookalike_is_no_sign_of_life(table: &Table) {
    let Two { theirs, ours, locking, .. } = &Two::on(table).await;
    let (held, waits) = (granted(theirs, &claim("a")).await, waiting("a"));
    let mut acquiring = pin!(ours.acquire(&waits));
    assert!(acquiring.as_mut().now_or_never().is_none());
    table.until_waits(waits.id).await;
    locking.set(Direction::Replies, Flow::Hold);
    table.end_connection_of(waits.id).await;
    let _lookalike = like(table, waits.id).await;
    table.until_waits(waits.id).await;
    assert_eq!(theirs.release(&held).await.unwrap(), RELEASED);
    let next = soon(acquiring).await.unwrap();
    assert_eq!(ours.release(&next).await.unwrap(), RELEASED);
}

/// The names of user-level locks are the whole server's: none that matters may be known from outside.
async fn a_user_lock_taken_by_a_stranger_delays_nobody(table: &Table) {
    drop(table.open().await);
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let store = table.options_at(&url).open().await.unwrap();
    let mut stranger = table.stranger().await;
    let names = ["a", "b"];
    let held = names.map(|name| {
        format!(
            "CONCAT('tenure+', SHA2(CONCAT(DATABASE(), '/{}/', HEX(''), '/', HEX('{name}')), 224))",
            table.name
        )
    });
    for taken in held.iter().map(String::as_str).chain(["'tenure/making'"]) {
        assert_eq!(stranger.number(&format!("SELECT CAST(GET_LOCK({taken}, 10) AS SIGNED)")).await, 1);
    }
    let work = async {
        for text in names.into_iter().cycle().take(10) {
            let grant = granted(&store, &claim(text)).await;
            assert_eq!(store.holders(&grant.name).await.unwrap().len(), 1);
            assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
            assert!(store.holders(&name(text)).await.unwrap().is_empty());
        }
    };
    // Each user-level lock that is waited for takes a second or more.
    let mut watching = table.admin().await;
    let waits = async { while !watching.waits_for_user_lock(&user).await {} };
    tokio::select! {
        () = waits => panic!("the stranger is waited for"),
        () = soon(work) => {}
    }
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE part = 0").await == 2).await;
}
