//! How waiters learn of a release where the server cannot notify them.

use crate::{
    Claim, Duration, Grant, Kind, LEASE, Store, Table, blocked::lock_table, busy, case::cases, claim,
    granted, soon, until, waiting,
};
use futures_util::future::join_all;
use std::time::Instant;
use tenure_core::Release;
use tokio::task::{JoinHandle, JoinSet};

cases!("bell":
    a_release_is_heard.of_lease_rows().on(SERVERS),
    a_release_is_heard_in_the_same_client.of_lease_rows().on(SERVERS),
    a_release_among_others_is_heard.of_lease_rows().on(SERVERS),
    a_release_is_heard_in_a_queue.of_lease_rows().on(SERVERS),
    rings_for_nothing_and_late_ones_do_no_harm.of_lease_rows().on(SERVERS),
    a_session_that_begins_without_autocommit_hears_of_every_release.of_lease_rows().on(SERVERS),
    a_table_that_is_locked_keeps_no_bell.of_lease_rows().on(SERVERS),
    who_comes_too_late_after_a_ring_hears_the_next.of_lease_rows().on(SERVERS),
    who_rang_long_ago_rings_again.of_lease_rows().on(SERVERS),
    a_bell_that_is_lost_is_replaced.of_lease_rows().on(SERVERS),
    another_user_s_bell_is_not_rung.of_lease_rows().on(SERVERS),
    a_hundred_waiters_have_one_bell.of_lease_rows().on(SERVERS),
    a_release_behind_a_hundred_others_is_heard.of_lease_rows().on(SERVERS),
    a_bell_goes_with_its_waiters.of_lease_rows().on(SERVERS),
    a_bell_stays_for_those_who_wait_when_another_client_closes.of_lease_rows().on(SERVERS),
);

const SERVERS: &[Kind] = &[Kind::Mariadb, Kind::Mysql];
/// Whoever is not told asks again after half of this at the earliest.
const POLL: Duration = Duration::from_mins(1);
/// Of those who are not told. A mark stands for three times as long as that, where it would stand for two seconds otherwise:
/// on a busy machine it would be over before its waiter has written it anew.
const OFTEN: Duration = Duration::from_secs(3);
/// Whoever is told has asked by then.
const TOLD: Duration = Duration::from_secs(20);

/// A claim that outlives the case.
fn held(text: &str) -> Claim {
    Claim { lease: LEASE * 10, ..claim(text) }
}

/// Another client's wait, once its bell is in the row and can be rung, which is when it sleeps: a ring before that is lost.
async fn begin(table: &Table, store: &Store, name: &'static str) -> JoinHandle<Grant> {
    let waiter = wait(table, store, name).await;
    let sleeps = async || {
        let connection = connection_of(table, bell_of(table, name).await).await;
        table.is_asleep(connection).await
    };
    until(sleeps).await;
    waiter
}

/// The same, once its bell is in the row.
async fn wait(table: &Table, store: &Store, name: &'static str) -> JoinHandle<Grant> {
    let store = store.clone();
    let waiter = tokio::spawn(async move { store.acquire(&waiting(name)).await.unwrap() });
    until(async || bell_of(table, name).await > 1).await;
    waiter
}

/// The bell in the row, or 0.
async fn bell_of(table: &Table, name: &str) -> i64 {
    let bell = "SELECT COALESCE(MAX(awaited_bell), 0) FROM {t} WHERE awaited_until > {now} AND name = ";
    table.number(&format!("{bell}'{name}'")).await
}

/// The number of the connection that has the bell, or 0.
async fn connection_of(table: &Table, bell: i64) -> i64 {
    table.number(&format!("SELECT CAST(COALESCE(IS_USED_LOCK('tenure.bell.{bell}'), 0) AS SIGNED)")).await
}

async fn ring(table: &Table, bell: i64) {
    // The bell may have gone.
    let _ = table
        .raw()
        .await
        .try_execute(&format!("KILL QUERY COALESCE(IS_USED_LOCK('tenure.bell.{bell}'), -1)"))
        .await;
}

/// Releases the grant, and returns that of the waiter, which must have been told.
async fn hand_over(store: &Store, grant: &Grant, waiter: JoinHandle<Grant>) -> Grant {
    let begun = Instant::now();
    assert_eq!(store.release(grant).await.unwrap(), Release::Released { awaited: true });
    let next = soon(waiter).await.unwrap();
    assert!(begun.elapsed() < TOLD, "it was not told: {:?}", begun.elapsed());
    next
}

async fn a_release_is_heard(table: &Table) {
    let open = async || table.options().poll(POLL).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    let next = hand_over(&ours, &grant, waiter).await;
    assert!(next.token > grant.token);
}

async fn a_release_is_heard_in_the_same_client(table: &Table) {
    let store = table.options().poll(POLL).open().await.unwrap();
    let grant = granted(&store, &held("a")).await;
    let waiter = begin(table, &store, "a").await;
    hand_over(&store, &grant, waiter).await;
}

/// They are carried out together, and somebody waits for one of the names.
async fn a_release_among_others_is_heard(table: &Table) {
    const AWAITED: usize = 4;
    let ours = table.options().connections(1).open().await.unwrap();
    let theirs = table.options().poll(POLL).open().await.unwrap();
    let mut grants = Vec::new();
    for number in 0..2 * AWAITED {
        grants.push(granted(&ours, &held(&number.to_string())).await);
    }
    let waiter = begin(table, &theirs, "4").await;
    let begun = Instant::now();
    let told = soon(join_all(grants.iter().map(|grant| ours.release(grant)))).await;
    for (number, told) in told.into_iter().enumerate() {
        assert_eq!(told.unwrap(), Release::Released { awaited: number == AWAITED }, "{number}");
    }
    let next = soon(waiter).await.unwrap();
    assert!(begun.elapsed() < TOLD, "it was not told: {:?}", begun.elapsed());
    assert!(next.token > grants[AWAITED].token);
}

/// The first in line is told, who otherwise asks after a quarter of a second at the earliest.
async fn a_release_is_heard_in_a_queue(table: &Table) {
    const ROUNDS: usize = 11;
    let open = async || table.options().fair().poll(POLL).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let (mut delays, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let asked = Instant::now();
        let grant = granted(&ours, &held("a")).await;
        requests.push(asked.elapsed());
        let store = theirs.clone();
        let waiter = tokio::spawn(async move {
            let grant = store.acquire(&waiting("a")).await.unwrap();
            (grant, Instant::now())
        });
        until(async || table.record("a").await.is_some_and(|record| record["queue"][0]["bell"].is_u64()))
            .await;
        let released = Instant::now();
        ours.release(&grant).await.unwrap();
        let (next, had) = soon(waiter).await.unwrap();
        delays.push(had - released);
        theirs.release(&next).await.unwrap();
    }
    delays.sort_unstable();
    requests.sort_unstable();
    // Beside other work some rounds are slow. Who is not told is slow in each. The release, the ring and the grant are a
    // request each; where one takes long, so do they.
    let prompt = (requests[ROUNDS / 2] * 6).max(Duration::from_millis(150));
    assert!(delays[ROUNDS / 4] < prompt, "{delays:?}, and a request takes {requests:?}");
}

async fn rings_for_nothing_and_late_ones_do_no_harm(table: &Table) {
    let open = async || table.options().poll(POLL).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    let bell = bell_of(table, "a").await;
    let connection = connection_of(table, bell).await;
    assert!(connection > 0);
    for _ in 0..20 {
        ring(table, bell).await;
    }
    until(async || table.is_asleep(connection).await).await;
    assert!(!waiter.is_finished());
    let next = hand_over(&ours, &grant, waiter).await;
    // Nobody waits.
    ring(table, bell).await;
    ring(table, bell + 1).await;
    theirs.release(&next).await.unwrap();
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    assert_eq!((bell_of(table, "a").await, connection_of(table, bell).await), (bell, connection));
    hand_over(&ours, &grant, waiter).await;
}

/// Where a client waits for several names, its bell looks which of them is free: each time as the table is by then, and
/// nothing stays open in which it looked.
async fn a_session_that_begins_without_autocommit_hears_of_every_release(table: &Table) {
    let ours = table.open().await;
    let theirs = table.options().poll(POLL).open_with("autocommit", "0").await.unwrap();
    let mut waits = Vec::new();
    for name in ["a", "b", "c"] {
        let grant = granted(&ours, &held(name)).await;
        waits.push((grant, begin(table, &theirs, name).await));
    }
    let connection = connection_of(table, bell_of(table, "c").await).await;
    assert!(connection > 0);
    for (grant, waiter) in waits {
        // A ring between two sleeps is lost.
        until(async || table.is_asleep(connection).await).await;
        hand_over(&ours, &grant, waiter).await;
    }
    let mut migration = table.raw().await;
    migration.execute("SET SESSION lock_wait_timeout = 10").await;
    migration.execute(&table.sql("ALTER TABLE {t} COMMENT = 'altered'")).await;
}

/// The server gives up the bell's look at the table before the client does, so a client that has given up leaves no
/// session behind.
async fn a_table_that_is_locked_keeps_no_bell(table: &Table) {
    let ours = table.open().await;
    let theirs = table.options().poll(POLL).open().await.unwrap().locks();
    let mut waits = Vec::new();
    for name in ["a", "b"] {
        granted(&ours, &held(name)).await;
        let lock = theirs.lock(name);
        waits.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
        until(async || bell_of(table, name).await > 1).await;
    }
    let bell = bell_of(table, "b").await;
    let connection = connection_of(table, bell).await;
    assert!(connection > 0);
    until(async || table.is_asleep(connection).await).await;
    let mut stranger = lock_table(table).await;
    ring(table, bell).await;
    until(async || connection_of(table, bell).await == 0).await;
    stranger.execute("UNLOCK TABLES").await;
    for wait in waits {
        wait.abort();
    }
    soon(theirs.close()).await;
}

/// A third client was granted the name before the bell looked which one is free, and the waiter's mark went with that
/// grant.
async fn who_comes_too_late_after_a_ring_hears_the_next(table: &Table) {
    let ours = table.open().await;
    let theirs = table.options().poll(POLL).open().await.unwrap();
    let mut waiters = Vec::new();
    for name in ["a", "b"] {
        granted(&ours, &held(name)).await;
        waiters.push(begin(table, &theirs, name).await);
    }
    let bell = bell_of(table, "a").await;
    let connection = connection_of(table, bell).await;
    until(async || table.is_asleep(connection).await).await;
    let third = held("a").id;
    let taken = format!("version = version + 2, token = token + 1, claim = '{third}', since = {{now}}");
    let taken = format!("UPDATE {{t}} SET {taken}, awaited_until = 0, awaited_by = NULL WHERE name = 'a'");
    table.execute(&taken).await;
    let rung = Instant::now();
    ring(table, bell).await;
    until(async || bell_of(table, "a").await == bell).await;
    assert!(rung.elapsed() < TOLD, "it was not told: {:?}", rung.elapsed());
    for waiter in waiters {
        waiter.abort();
    }
}

/// The server ends what has been idle for long, and so the connection over which bells are rung.
async fn who_rang_long_ago_rings_again(table: &Table) {
    let ours = table.options().open_with("wait_timeout", "4").await.unwrap();
    let theirs = table.options().poll(POLL).open().await.unwrap();
    for (name, idle) in [("a", 0), ("b", 6)] {
        tokio::time::sleep(Duration::from_secs(idle)).await;
        let grant = granted(&ours, &held(name)).await;
        let waiter = begin(table, &theirs, name).await;
        // The release, which is not repeated, needs a connection that is there.
        busy(&ours, &claim(name)).await;
        hand_over(&ours, &grant, waiter).await;
    }
}

async fn a_bell_that_is_lost_is_replaced(table: &Table) {
    let open = async || table.options().poll(POLL).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    let lost = bell_of(table, "a").await;
    let connection = connection_of(table, lost).await;
    table.raw().await.end(connection).await;
    until(async || ![0, 1, lost].contains(&bell_of(table, "a").await)).await;
    let next = hand_over(&ours, &grant, waiter).await;
    theirs.release(&next).await.unwrap();

    // And whoever is never told asks by itself.
    let theirs = table.options().poll(OFTEN).open().await.unwrap();
    let grant = granted(&ours, &held("b")).await;
    let waiter = begin(table, &theirs, "b").await;
    let connection = connection_of(table, bell_of(table, "b").await).await;
    table.raw().await.end(connection).await;
    hand_over(&ours, &grant, waiter).await;
}

/// It polls, and whoever releases does not notice.
async fn another_user_s_bell_is_not_rung(table: &Table) {
    let ours = table.open_with_row("a").await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let theirs = table.options_at(&url).poll(OFTEN).open().await.unwrap();
    for _ in 0..3 {
        let grant = granted(&ours, &held("a")).await;
        // This user does not see how another's connection sleeps.
        let waiter = wait(table, &theirs, "a").await;
        let connection = connection_of(table, bell_of(table, "a").await).await;
        let next = hand_over(&ours, &grant, waiter).await;
        assert!(connection > 0);
        theirs.release(&next).await.unwrap();
    }
}

async fn a_hundred_waiters_have_one_bell(table: &Table) {
    const WAITERS: usize = 100;
    table.open_with_row("a").await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let open = async || table.options_at(&url).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let names = || (0..WAITERS).map(|number| format!("n{number}"));
    let mut grants = Vec::new();
    for name in names() {
        grants.push(granted(&ours, &held(&name)).await);
    }
    let mut waiters = JoinSet::new();
    for name in names() {
        let store = theirs.clone();
        waiters.spawn(async move { store.acquire(&waiting(&name)).await.unwrap() });
    }
    // A slow machine may not keep all of the marks fresh at once.
    let marks = "SELECT COUNT(*) FROM {t} WHERE awaited_bell > 1";
    until(async || table.number(marks).await == 100).await;
    assert_eq!(table.number("SELECT COUNT(DISTINCT awaited_bell) FROM {t} WHERE awaited_bell > 1").await, 1);
    // Between two sleeps there is none.
    let bells = async {
        loop {
            match table.sessions(&user, "DO SLEEP(%").await {
                0 => tokio::time::sleep(Duration::from_millis(5)).await,
                some => break some,
            }
        }
    };
    assert_eq!(soon(bells).await, 1);
    for grant in &grants {
        ours.release(grant).await.unwrap();
    }
    let all = async {
        while let Some(grant) = waiters.join_next().await {
            grant.unwrap();
        }
    };
    soon(all).await;
}

/// All are carried out together, and each rings before the connection for rings is there. The last one rings another
/// bell than the rest.
async fn a_release_behind_a_hundred_others_is_heard(table: &Table) {
    const OTHERS: usize = 99;
    let ours = table.options().connections(1).open().await.unwrap();
    let (others, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let (mut grants, mut waiters) = (Vec::new(), JoinSet::new());
    for name in (0..OTHERS).map(|number| format!("n{number}")) {
        grants.push(granted(&ours, &held(&name)).await);
        let store = others.clone();
        waiters.spawn(async move { store.acquire(&waiting(&name)).await.unwrap() });
    }
    grants.push(granted(&ours, &held("last")).await);
    let last = begin(table, &theirs, "last").await;
    // A slow machine may not keep all of the marks fresh at once.
    let marks = "SELECT COUNT(*) FROM {t} WHERE awaited_bell > 1";
    until(async || table.number(marks).await == 100).await;
    let begun = Instant::now();
    for told in soon(join_all(grants.iter().map(|grant| ours.release(grant)))).await {
        told.unwrap();
    }
    soon(last).await.unwrap();
    assert!(begun.elapsed() < TOLD, "it was not told: {:?}", begun.elapsed());
}

async fn a_bell_goes_with_its_waiters(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(OFTEN).open().await.unwrap());
    let last_bell = async |name: &'static str| {
        let grant = granted(&ours, &held(name)).await;
        let waiter = begin(table, &theirs, name).await;
        let bell = bell_of(table, name).await;
        assert!(connection_of(table, bell).await > 0);
        hand_over(&ours, &grant, waiter).await;
        bell
    };
    let bell = last_bell("a").await;
    until(async || connection_of(table, bell).await == 0).await;
    let next = last_bell("b").await;
    assert_ne!(next, bell);
    theirs.close().await;
    until(async || connection_of(table, next).await == 0).await;
}

/// A client of the same backend, and so of the same bell.
async fn a_bell_stays_for_those_who_wait_when_another_client_closes(table: &Table) {
    let open = async || table.options().poll(POLL).open().await.unwrap();
    let (ours, theirs) = (open().await, open().await);
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    let bell = bell_of(table, "a").await;
    let connection = connection_of(table, bell).await;
    assert!(connection > 0);
    theirs.close().await;
    let next = hand_over(&ours, &grant, waiter).await;
    theirs.release(&next).await.unwrap();
    // The next one to wait would have hung another.
    let grant = granted(&ours, &held("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    assert_eq!((bell_of(table, "a").await, connection_of(table, bell).await), (bell, connection));
    hand_over(&ours, &grant, waiter).await;
}
