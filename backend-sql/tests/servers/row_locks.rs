//! Row locks: what a connection that ends leaves behind, and what it does not.

use crate::{
    LEASE, LossCause, RELEASED, Release, Table, busy, case::cases, claim, granted, soon, until, waiting,
};
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::Error;

cases!("row_locks":
    tokens_rise_also_past_a_holder_that_was_rolled_back.of_row_locks(), a_cancelled_wait_leaves_the_queue.of_row_locks(),
    a_row_that_was_deleted_is_not_taken_for_locked.of_row_locks(),
    one_connection_too_many_is_refused_and_says_so.of_row_locks(), a_release_over_a_dead_connection_is_no_release.of_row_locks(),
);

async fn tokens_rise_also_past_a_holder_that_was_rolled_back(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let mine = claim("a");
    let first = granted(&ours, &mine).await;
    assert_eq!(granted(&ours, &mine).await.token, first.token);
    busy(&theirs, &claim("a")).await;
    // The note is on its way when the lock is granted.
    let noted = "SELECT COUNT(*) FROM {t} WHERE prefix = '' AND name = 'a' AND part = 1";
    until(async || table.number(noted).await == 1).await;
    // By the whole key: a search for it would wait for the row that is locked.
    let ahead = "UPDATE {t} SET token = token + 3600000000 WHERE prefix = '' AND name = 'a' AND part = 1";
    table.execute(ahead).await;
    table.end_connection_of(mine.id).await;
    let second = theirs.acquire(&waiting("a")).await.unwrap();
    assert_eq!(second.token.get(), first.token.get() + 3_600_000_001, "the clock was behind the token");
    assert_eq!(theirs.release(&second).await.unwrap(), RELEASED);
    assert_eq!(theirs.release(&second).await.unwrap(), Release::NotHeld(LossCause::SessionEnded));
}

async fn a_cancelled_wait_leaves_the_queue(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let grant = granted(&ours, &claim("a")).await;
    let waits = waiting("a");
    {
        let mut acquiring = pin!(theirs.acquire(&waits));
        assert!(acquiring.as_mut().now_or_never().is_none());
        table.until_waits(waits.id).await;
    }
    theirs.withdraw(&waits).await.unwrap();
    until(async || table.connection_of(waits.id).await == 0).await;
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let next = granted(&theirs, &claim("a")).await;
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    table.until_nothing_is_locked().await;
}

/// The note of the last holder is there, and the row that its successor has to lock is not.
async fn a_row_that_was_deleted_is_not_taken_for_locked(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let first = granted(&ours, &claim("a")).await;
    assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
    table.execute("DELETE FROM {t} WHERE part = 0").await;
    let second = granted(&ours, &claim("a")).await;
    assert!(second.token > first.token, "{} {}", second.token, first.token);
    busy(&theirs, &claim("a")).await;
    assert_eq!(ours.release(&second).await.unwrap(), RELEASED);
    table.execute("DELETE FROM {t} WHERE part = 0").await;
    let third = ours.acquire(&waiting("a")).await.unwrap();
    busy(&theirs, &claim("a")).await;
    assert_eq!(ours.release(&third).await.unwrap(), RELEASED);
}

async fn one_connection_too_many_is_refused_and_says_so(table: &Table) {
    let store = table.options().connections(2).open().await.unwrap();
    let grants = [granted(&store, &claim("a")).await, granted(&store, &claim("b")).await];
    let error = store.try_acquire(&claim("c")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("connections"), "{error}");
    for grant in &grants {
        assert_eq!(store.release(grant).await.unwrap(), RELEASED);
    }
    granted(&store, &claim("c")).await;
}

/// When the connection has gone the lock has, and nobody knows since when.
async fn a_release_over_a_dead_connection_is_no_release(table: &Table) {
    let locks = table.locks().await;
    let guard = locks.lock("a").lease(LEASE).acquire().await.unwrap();
    // Before the next proof of life, which would notice.
    table.end_connection_of(guard.claim()).await;
    let released = soon(guard.release()).await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
}
