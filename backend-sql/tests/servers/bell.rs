//! How waiters learn of a release where the server cannot notify them.

use crate::{
    AWAITED, Duration, Grant, Kind, RELEASED, Table, blocked::lock_table, busy, case::cases, claim, granted,
    lease_rows::Rows, leases::keep_places, soon, stopped::Stopped, until, waiting,
};
use futures_util::future::join_all;
use tenure_conformance::pause;
use tenure_core::{Backend, Release};
use tokio::task::JoinHandle;

cases!("bell":
    a_release_is_heard.of_lease_rows().on(SERVERS),
    releases_that_are_carried_out_together_are_heard.of_lease_rows().on(SERVERS),
    a_release_is_heard_in_a_queue.of_lease_rows().on(SERVERS),
    rings_for_nothing_and_late_ones_do_no_harm.of_lease_rows().on(SERVERS),
    a_session_that_begins_without_autocommit_hears_of_every_release.of_lease_rows().on(SERVERS),
    a_table_that_is_locked_keeps_no_bell.of_lease_rows().on(SERVERS),
    who_comes_too_late_after_a_ring_hears_the_next.of_lease_rows().on(SERVERS),
    who_rang_long_ago_rings_again.of_lease_rows().on(SERVERS),
    a_bell_that_is_lost_is_replaced.of_lease_rows().on(SERVERS),
    another_user_s_bell_is_not_rung.of_lease_rows().on(SERVERS),
    a_bell_goes_with_its_waiters.of_lease_rows().on(SERVERS),
);

const SERVERS: &[Kind] = &[Kind::Mariadb, Kind::Mysql];
/// Marks stand for three times as long as that.
const POLL: Duration = Duration::from_mins(1);
/// Of those who are not told. A mark of theirs outlasts a slow request.
const OFTEN: Duration = Duration::from_secs(3);

/// A client that asks again only if it is told.
async fn deaf(table: &Table) -> Stopped {
    Stopped::open(table.options().poll(POLL)).await
}

/// Another client's wait, once its bell can be rung.
async fn begin(table: &Table, theirs: &Stopped, name: &str) -> JoinHandle<Grant> {
    let waiter = theirs.acquire(waiting(name));
    until_asleep(table, name).await;
    waiter
}

/// Waits until the bell of the name's waiter sleeps: a ring before that is lost.
async fn until_asleep(table: &Table, name: &str) {
    until(async || {
        let connection = connection_of(table, bell_of(table, name).await).await;
        connection > 0 && table.is_asleep(connection).await
    })
    .await;
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
    let ring = format!("KILL QUERY COALESCE(IS_USED_LOCK('tenure.bell.{bell}'), -1)");
    // The bell may have gone.
    let _ = table.raw().await.try_execute(&ring).await;
}

/// Releases the grant, and returns that of the waiter, which must have been told.
async fn hand_over(store: &dyn Backend, grant: &Grant, waiter: JoinHandle<Grant>) -> Grant {
    assert_eq!(store.release(grant).await.unwrap(), AWAITED);
    let next = soon(waiter).await.unwrap();
    assert!(next.token > grant.token);
    next
}

/// In another client, and in the waiter's own.
async fn a_release_is_heard(table: &Table) {
    let (ours, theirs) = (table.open().await, deaf(table).await);
    for store in [&ours, &*theirs] {
        let grant = granted(store, &claim("a")).await;
        let waiter = begin(table, &theirs, "a").await;
        let next = hand_over(store, &grant, waiter).await;
        assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    }
}

/// Each rings before the connection for rings is there. A hundred waiters share one bell, the last one has another, and
/// the first release has no waiter.
async fn releases_that_are_carried_out_together_are_heard(table: &Table) {
    const WAITERS: usize = 100;
    table.open_with_row("a").await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let ours = table.options_at(&url).connections(1).open().await.unwrap();
    let theirs = table.options_at(&url).poll(OFTEN).open().await.unwrap();
    let last = Stopped::open(table.options_at(&url).poll(POLL)).await;
    let names: Vec<String> = (0..WAITERS + 2).map(|number| format!("n{number}")).collect();
    let mut grants = Vec::new();
    for name in &names {
        grants.push(granted(&ours, &claim(name)).await);
    }
    let mut waiters = Vec::new();
    for name in &names[1..=WAITERS] {
        let (store, next) = (theirs.clone(), waiting(name));
        waiters.push(tokio::spawn(async move { store.acquire(&next).await.unwrap() }));
    }
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE awaited_bell > 1").await == 100).await;
    assert_eq!(table.number("SELECT COUNT(DISTINCT awaited_bell) FROM {t} WHERE awaited_bell > 1").await, 1);
    waiters.push(last.acquire(waiting(names.last().unwrap())));
    until(async || bell_of(table, names.last().unwrap()).await > 1).await;
    // Between two sleeps of a bell there is none.
    until(async || table.sessions(&user, "DO SLEEP(%").await == 2).await;
    let told = soon(join_all(grants.iter().map(|grant| ours.release(grant)))).await;
    for (number, told) in told.into_iter().enumerate() {
        assert_eq!(told.unwrap(), Release::Released { awaited: number > 0 }, "{number}");
    }
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
}

/// The first in line is told.
async fn a_release_is_heard_in_a_queue(table: &Table) {
    let ours = table.options().fair(true).open().await.unwrap();
    let theirs = Stopped::open(table.options().fair(true).poll(POLL)).await;
    let grant = granted(&ours, &claim("a")).await;
    let waiter = theirs.acquire(waiting("a"));
    let bell = async || table.record("a").await.and_then(|record| record["queue"][0]["bell"].as_i64());
    until(async || bell().await.is_some()).await;
    // It is not heard of again by itself.
    keep_places(table, POLL * 5).await;
    let connection = connection_of(table, bell().await.unwrap()).await;
    until(async || table.is_asleep(connection).await).await;
    assert!(matches!(ours.release(&grant).await.unwrap(), Release::Released { .. }));
    assert!(soon(waiter).await.unwrap().token > grant.token);
}

async fn rings_for_nothing_and_late_ones_do_no_harm(table: &Table) {
    let (ours, theirs) = (table.open().await, deaf(table).await);
    let grant = granted(&ours, &claim("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    let bell = bell_of(table, "a").await;
    let connection = connection_of(table, bell).await;
    for _ in 0..20 {
        ring(table, bell).await;
    }
    until(async || table.is_asleep(connection).await).await;
    assert!(!waiter.is_finished());
    let next = hand_over(&ours, &grant, waiter).await;
    // No client waits.
    ring(table, bell).await;
    ring(table, bell + 1).await;
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    let grant = granted(&ours, &claim("a")).await;
    let waiter = begin(table, &theirs, "a").await;
    assert_eq!((bell_of(table, "a").await, connection_of(table, bell).await), (bell, connection));
    hand_over(&ours, &grant, waiter).await;
}

/// Where a client waits for several names, its bell looks which of them is free: each time as the table is by then, and
/// nothing stays open in which it looked.
async fn a_session_that_begins_without_autocommit_hears_of_every_release(table: &Table) {
    let ours = table.open().await;
    let theirs = Stopped::with(table.options().poll(POLL).open_with("autocommit", "0").await.unwrap());
    let mut waits = Vec::new();
    for name in ["a", "b", "c"] {
        let grant = granted(&ours, &claim(name)).await;
        waits.push((grant, begin(table, &theirs, name).await));
    }
    let connection = connection_of(table, bell_of(table, "c").await).await;
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
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap().locks());
    let mut waits = Vec::new();
    for name in ["a", "b"] {
        granted(&ours, &claim(name)).await;
        let lock = theirs.lock(name);
        waits.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
        until_asleep(table, name).await;
    }
    let bell = bell_of(table, "b").await;
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
    let (ours, theirs) = (table.open().await, deaf(table).await);
    let mut waiters = Vec::new();
    for name in ["a", "b"] {
        granted(&ours, &claim(name)).await;
        waiters.push(begin(table, &theirs, name).await);
    }
    let bell = bell_of(table, "a").await;
    let third = claim("a").id;
    let taken = format!("version = version + 2, token = token + 1, claim = '{third}', since = {{now}}");
    let taken = format!("UPDATE {{t}} SET {taken}, awaited_until = 0, awaited_by = NULL WHERE name = 'a'");
    table.execute(&taken).await;
    ring(table, bell).await;
    until(async || bell_of(table, "a").await == bell).await;
}

/// The server ends what has been idle for long, and so the connection over which bells are rung.
async fn who_rang_long_ago_rings_again(table: &Table) {
    let ours = table.options().open_with("wait_timeout", "4").await.unwrap();
    let theirs = deaf(table).await;
    for (name, idle) in [("a", 0), ("b", 6)] {
        pause::outlast(Duration::from_secs(idle)).await;
        let grant = granted(&ours, &claim(name)).await;
        let waiter = begin(table, &theirs, name).await;
        // The release, which is not repeated, needs a connection that is there.
        busy(&ours, &claim(name)).await;
        hand_over(&ours, &grant, waiter).await;
    }
}

/// A waiter that is never told asks by itself.
async fn a_bell_that_is_lost_is_replaced(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(OFTEN).open().await.unwrap());
    for (name, is_awaited) in [("a", true), ("b", false)] {
        let grant = granted(&ours, &claim(name)).await;
        let store = theirs.clone();
        let waiter = tokio::spawn(async move { store.acquire(&waiting(name)).await.unwrap() });
        until_asleep(table, name).await;
        let lost = bell_of(table, name).await;
        table.raw().await.end(connection_of(table, lost).await).await;
        if is_awaited {
            until(async || ![0, 1, lost].contains(&bell_of(table, name).await)).await;
        }
        let next = hand_over(&ours, &grant, waiter).await;
        assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    }
}

/// Its waiter polls, and the release succeeds all the same.
async fn another_user_s_bell_is_not_rung(table: &Table) {
    let ours = table.open_with_row("a").await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let theirs = table.options_at(&url).poll(OFTEN).open().await.unwrap();
    for _ in 0..2 {
        let grant = granted(&ours, &claim("a")).await;
        let store = theirs.clone();
        let waiter = tokio::spawn(async move { store.acquire(&waiting("a")).await.unwrap() });
        // This user does not see how another's connection sleeps.
        until(async || connection_of(table, bell_of(table, "a").await).await > 0).await;
        let next = hand_over(&ours, &grant, waiter).await;
        assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    }
}

async fn a_bell_goes_with_its_waiters(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(OFTEN).open().await.unwrap());
    let last_bell = async |name: &'static str| {
        let grant = granted(&ours, &claim(name)).await;
        let store = theirs.clone();
        let waiter = tokio::spawn(async move { store.acquire(&waiting(name)).await.unwrap() });
        until_asleep(table, name).await;
        let bell = bell_of(table, name).await;
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
