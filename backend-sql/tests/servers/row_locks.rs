//! Row locks: what a connection that ends leaves behind, and what it does not.

use crate::{
    Attempt, Backend, Duration, LEASE, LONG, LossCause, RELEASED, Release, Table, busy, case::cases, claim,
    granted, lease_rows::Rows, name, soon, until, waiting,
};
use futures_util::FutureExt;
use std::{cell::RefCell, pin::pin, sync::Arc};
use tenure_conformance::{Method, Probe, proxy::Counters, saboteur::Direction};
use tenure_core::{Error, Locks};

cases!("row_locks":
    tokens_rise_also_past_a_holder_that_was_rolled_back.of_row_locks(),
    who_waited_knows_what_was_noted_meanwhile.of_row_locks(),
    an_idle_connection_that_ended_costs_no_attempt.of_sessions(),
    a_row_that_was_deleted_is_not_taken_for_locked.of_row_locks(),
    a_note_that_lost_its_token_is_written_anew.of_row_locks(),
    one_connection_too_many_is_refused_and_says_so.of_sessions(), a_release_over_a_dead_connection_is_no_release.of_sessions(),
    a_release_beside_a_server_that_is_gone_is_lost.of_sessions(),
    force_is_asked_for_until_it_is_known.of_sessions(),
    forced_release_spares_the_next_lock_of_the_connection.of_row_locks(),
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
    assert_eq!(theirs.release(&second).await.unwrap(), Release::Lost(LossCause::SessionEnded));
}

/// The statement that waits sees what was committed before it. The token is made of what comes after.
async fn who_waited_knows_what_was_noted_meanwhile(table: &Table) {
    let (ours, theirs) = (table.open_with_row("a").await, table.open().await);
    let held = granted(&ours, &claim("a")).await;
    let noted = format!("SELECT COUNT(*) FROM {{t}} WHERE part = 1 AND claim = '{}'", held.claim);
    until(async || table.number(&noted).await == 1).await;
    let waits = waiting("a");
    let mut acquiring = pin!(theirs.acquire(&waits));
    assert!(acquiring.as_mut().now_or_never().is_none());
    table.until_waits(waits.id).await;
    // As if the clock had gone back by an hour.
    let ahead = "UPDATE {t} SET token = token + 3600000000 WHERE prefix = '' AND name = 'a' AND part = 1";
    table.execute(ahead).await;
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
    let next = soon(acquiring).await.unwrap();
    assert_eq!(next.token.get(), held.token.get() + 3_600_000_001);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

/// The first message over it is the one that locks.
async fn an_idle_connection_that_ended_costs_no_attempt(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let store = options.open().await.unwrap();
    for waits in [false, true] {
        proxy.cut().await;
        let next = if waits {
            soon(store.acquire(&waiting("a"))).await.unwrap()
        } else {
            granted(&store, &claim("a")).await
        };
        assert_eq!(store.release(&next).await.unwrap(), RELEASED);
    }
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

/// Only another program takes it away. No grant came after it, because none could be noted.
async fn a_note_that_lost_its_token_is_written_anew(table: &Table) {
    let store = table.open_with_row("a").await;
    table.execute("UPDATE {t} SET token = NULL WHERE part = 1").await;
    let next = soon(store.try_acquire(&claim("a"))).await.unwrap();
    assert!(matches!(next, Attempt::Granted(_)), "{next:?}");
    let holders = store.holders(&name("a")).await.unwrap();
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert!(holders[0].token.is_some(), "{holders:?}");
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

/// The lock ended with its connection, and the client does not know when.
async fn a_release_over_a_dead_connection_is_no_release(table: &Table) {
    let locks = table.locks().await;
    let guard = locks.lock("a").lease(LEASE).acquire().await.unwrap();
    // Before the next heartbeat, which would notice.
    table.end_connection_of(guard.claim()).await;
    let released = soon(guard.release()).await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
}

/// The server cannot say why the connection ended, and the first release is answered without that: a repeated one would
/// take the lock for released.
async fn a_release_beside_a_server_that_is_gone_is_lost(table: &Table) {
    for proving in [false, true] {
        let (proxy, options) = table.through_proxy().await;
        let probe = Probe::over(Arc::new(options.open().await.unwrap()));
        // Asked only once: it is sent again after a sixth of the lease, and only the first request is told of the loss.
        let lock = Locks::new(probe.clone()).lock("a").lease(Duration::from_mins(1));
        let guard = lock.acquire().await.unwrap();
        let arrived = proxy.counters().requests.arrived;
        proxy.half_open();
        if proving {
            // The release waits until that is over.
            proxy.until(|counters| counters.requests.arrived > arrived).await;
        }
        let release = tokio::spawn(guard.release());
        until(async || probe.count(Method::Release, "a") >= 1).await;
        proxy.refuse().await;
        proxy.cut().await;
        let released = soon(release).await.unwrap();
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    }
}

/// The server hears of a release only after another client has ended the hold by force and acquired the lock. The
/// holder gave up its connection before it could reach the server again: an unknown outcome is no release.
async fn force_is_asked_for_until_it_is_known(table: &Table) {
    forced_while_unheard(table, "a", LONG, 2).await;
    // Meanwhile the client gives up its first request, so no caller gets that answer.
    forced_while_unheard(table, "b", Duration::from_secs(3), 3).await;
}

/// Nothing gets through until the release has been sent at least `times` times.
async fn forced_while_unheard(table: &Table, text: &str, response_timeout: Duration, times: usize) {
    let (proxy, options) = table.through_proxy().await;
    let (ours, theirs) =
        (options.response_timeout(response_timeout).open().await.unwrap(), table.open().await);
    let probe = Probe::over(Arc::new(ours));
    // The first grant of a name is noted before it is given, so its release waits for nothing.
    let lock = Locks::new(probe.clone()).lock(text).lease(Duration::from_secs(12));
    let guard = lock.acquire().await.unwrap();
    proxy.half_open();
    let release = tokio::spawn(guard.release());
    // It is sent every two seconds, also while the others take turns.
    until(async || probe.count(Method::Release, text) >= 2).await;
    // The next one too: what is known of the first is still known.
    let mut next = None;
    for _ in 0..2 {
        assert_eq!(theirs.force_release(&name(text)).await.unwrap().len(), 1);
        next = Some(soon(theirs.acquire(&waiting(text))).await.unwrap());
    }
    until(async || release.is_finished() || probe.count(Method::Release, text) >= times).await;
    proxy.mend().await.unwrap();
    let released = soon(release).await.unwrap();
    assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
    assert_eq!(theirs.release(&next.unwrap()).await.unwrap(), RELEASED);
}

/// The holder releases the name by itself and acquires another over the same connection, while the forced release is on its
/// way: each of its answers takes a while.
async fn forced_release_spares_the_next_lock_of_the_connection(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let (ours, theirs) = (table.open().await, options.response_timeout(LONG).open().await.unwrap());
    // Its statements are prepared here.
    granted(&ours, &claim("before")).await;
    assert_eq!(theirs.force_release(&name("before")).await.unwrap().len(), 1);
    let first = granted(&ours, &claim("a")).await;
    proxy.delay(Direction::Replies, Duration::from_secs(2));
    let begun = proxy.counters().requests.arrived;
    let forcing = tokio::spawn(async move { theirs.force_release(&name("a")).await });
    let forced = "SELECT COUNT(*) FROM {t} WHERE name = 'a' AND forced IS NOT NULL";
    // Counted before the look that finds the note of it, and after the request that wrote it.
    let noted = RefCell::new(proxy.counters());
    let is_noted = async || {
        let now = proxy.counters();
        let is_sent = now.requests.arrived > begun;
        *noted.borrow_mut() = now;
        table.number(forced).await == 1 && is_sent
    };
    until(is_noted).await;
    let noted = noted.into_inner();
    // The next request is the one that looks for the connection, and its answer is on its way.
    let is_answered = |now: &Counters| {
        now.requests.arrived > noted.requests.arrived && now.replies.arrived > noted.replies.arrived
    };
    soon(proxy.until(is_answered)).await;
    let _ = ours.release(&first).await.unwrap();
    let next = granted(&ours, &claim("b")).await;
    assert_eq!(forcing.await.unwrap().unwrap().len(), 1);
    assert_eq!(ours.release(&next).await.unwrap(), RELEASED);
}
