//! A server whose answers take long, or do not come.

use crate::{
    Claim, Duration, Kind, LONG, LossCause, Mode, Release, Store, Table, blocked::stranger, case::cases,
    claim, granted, soon, until,
};
use std::{pin::pin, slice};
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Guard, Locks, Moment, Renewal};

cases!("distance":
    a_lease_is_kept.on(ALL).of_lease_rows(),
    a_lease_too_short_costs_no_other.on(ALL).of_lease_rows(),
    a_blocked_row_costs_no_other_lease.on(ALL).of_lease_rows(),
    a_row_that_cannot_be_renewed_costs_no_other_lease.on(ALL).of_lease_rows(),
    a_connection_that_hangs_is_not_waited_for.on(ALL).of_lease_rows(),
    a_late_renewal_revives_nothing.on(ALL).of_lease_rows(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];
/// As long as fifty ways, which are long themselves: what a busy server takes beside counts for little.
const LEASE: Duration = Duration::from_secs(12);
/// So long does each request take on its way.
const WAY: Duration = Duration::from_millis(240);
/// Two that ask and one that renews.
const CONNECTIONS: usize = 3;

/// Locks at a server that comes to be far away once `hold` has acquired what it wants.
async fn far<T>(table: &Table, way: Duration, hold: impl AsyncFnOnce(&Locks) -> T) -> (Locks, Proxy, T) {
    let (proxy, options) = table.through_proxy().await;
    let locks = options.open().await.unwrap().locks();
    let held = hold(&locks).await;
    until(async || proxy.connections().len() >= CONNECTIONS).await;
    // Until the one for renewals is more than accepted; nothing is renewed over it yet.
    tokio::time::sleep(way).await;
    proxy.delay(Direction::Requests, way);
    (locks, proxy, held)
}

async fn hold(locks: &Locks, name: &str, lease: Duration) -> Guard {
    locks.lock(name).lease(lease).acquire().await.unwrap()
}

async fn hold_many(locks: &Locks) -> Vec<Guard> {
    let mut held = Vec::new();
    for number in 0..100 {
        held.push(hold(locks, &format!("other {number}"), LEASE).await);
    }
    held
}

fn lost(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| !guard.is_held()).count()
}

/// Also where its renewals are given up until the server knows the statement.
async fn a_lease_is_kept(table: &Table) {
    let way = WAY * 5;
    // MySQL needs two statements.
    let lease = if table.is_postgres() { way * 10 } else { way * 20 };
    let (locks, _proxy, guard) = far(table, way, async |locks| hold(locks, "a", lease).await).await;
    tokio::time::sleep(lease * 2).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    locks.close().await;
}

async fn a_lease_too_short_costs_no_other(table: &Table) {
    let (locks, _proxy, long) = far(table, WAY, async |locks| {
        let long = hold(locks, "long", LEASE).await;
        // Until the server knows the statement.
        tokio::time::sleep(LEASE / 2).await;
        long
    })
    .await;
    let end = Moment::now() + LEASE * 2;
    while !end.has_passed() {
        // Where that takes several requests, it is hardly ever granted in time; but it is renewed all the same.
        if let Ok(short) = locks.lock("short").lease(WAY * 4).wait(WAY * 10).acquire().await {
            short.lost().await;
        }
    }
    assert!(long.is_held(), "{:?}", long.loss());
    locks.close().await;
}

/// Asking again for the one that is blocked is not to take the time in which the others' answer is awaited.
async fn a_blocked_row_costs_no_other_lease(table: &Table) {
    let (locks, _proxy, (blocked, others)) =
        far(table, WAY, async |locks| (hold(locks, "blocked", LEASE).await, hold_many(locks).await)).await;
    let mut stranger = stranger(table, "blocked").await;
    assert_eq!(soon(blocked.lost()).await, LossCause::Expired);
    tokio::time::sleep(LEASE).await;
    assert_eq!(lost(&others), 0, "leases were lost beside the blocked one");
    stranger.execute("ROLLBACK").await;
    locks.close().await;
}

/// Nor is the search for one that cannot be renewed.
async fn a_row_that_cannot_be_renewed_costs_no_other_lease(table: &Table) {
    // MySQL needs two requests where others need one.
    let way = if table.is_postgres() { WAY } else { WAY * 2 / 3 };
    let (locks, _proxy, (spoilt, others)) =
        far(table, way, async |locks| (hold(locks, "spoilt", LEASE).await, hold_many(locks).await)).await;
    table.execute("UPDATE {t} SET record = '{broken' WHERE name = 'spoilt'").await;
    soon(spoilt.lost()).await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(lost(&others), 0, "leases were lost beside the spoilt one");
    locks.close().await;
}

/// A renewal that may take long stands before one that may not, on a connection that is dead without a word.
async fn a_connection_that_hangs_is_not_waited_for(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let store: Store = options.response_timeout(LONG).open().await.unwrap();
    let grants = [granted(&store, &claim("long")).await, granted(&store, &claim("short")).await];
    assert_eq!(soon(store.renew(&grants)).await.unwrap(), [Renewal::Renewed; 2]);
    for connection in proxy.connections() {
        connection.set(Direction::Requests, Flow::Hold);
    }
    let moment = Duration::from_secs(2);
    let mut patient = pin!(store.renew(&grants[..1]));
    assert!(tokio::time::timeout(moment, &mut patient).await.is_err(), "the connection does not hang");
    let begun = Moment::now();
    loop {
        let renewed = tokio::time::timeout(moment, store.renew(&grants[1..])).await;
        if matches!(renewed.as_ref().map(Result::as_deref), Ok(Ok([Renewal::Renewed]))) {
            break;
        }
        // After nine tenths of the response timeout the server's answer would not be waited for any more.
        assert!(Moment::now().since(begun) < LONG * 4 / 5, "{renewed:?}");
    }
}

/// The row is read while the lease lasts, and is to be written when it has expired. Nobody has written it in between.
async fn a_late_renewal_revives_nothing(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let (ours, theirs) = (table.open().await, options.response_timeout(LONG).open().await.unwrap());
    let read = async |store: &Store, name: &str, lease: Duration| {
        granted(store, &Claim { mode: Mode::Shared, lease, ..claim(name) }).await
    };
    // So that the server knows the statements.
    let [_, first] = [read(&ours, "first", LONG).await, read(&theirs, "first", LONG).await];
    assert_eq!(soon(theirs.renew(slice::from_ref(&first))).await.unwrap(), [Renewal::Renewed]);
    let way = WAY * 8;
    // The second request reads and the third writes; in MySQL, which also asks what is locked, the third and the fifth.
    let lease = if table.is_postgres() { way * 5 / 2 } else { way * 4 };
    let [_, brief] = [read(&ours, "a", LONG).await, read(&theirs, "a", lease).await];
    proxy.delay(Direction::Requests, way);
    let told = soon(theirs.renew(slice::from_ref(&brief))).await.unwrap();
    assert_ne!(told, [Renewal::Renewed], "an expired lease was renewed");
    assert_eq!(ours.release(&brief).await.unwrap(), Release::Lost(LossCause::Expired));
}
