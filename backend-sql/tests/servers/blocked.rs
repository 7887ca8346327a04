//! A foreign session keeps a row or the table locked: what that costs, and what it does not.

use crate::{
    Attempt, Claim, Duration, Kind, LONG, LossCause, RELEASED, Store, Table, busy,
    case::cases,
    claim, granted,
    sharing::{permits, reader},
    soon,
    table::Raw,
    until,
};
use futures_util::future::join_all;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Grant, Locks, Renewal};

cases!("blocked":
    a_blocked_row_costs_no_other_lease.on(ALL).of_lease_rows(),
    a_blocked_row_is_told_apart_from_a_lost_one.on(ALL).of_lease_rows(),
    a_row_that_cannot_be_renewed_costs_no_other_lease.on(ALL).of_lease_rows(),
    a_blocked_row_uses_up_no_connections.on(ALL).of_lease_rows(),
    a_blocked_table_uses_up_no_connections.on(ALL),
    a_try_at_a_blocked_table_fails_in_time.on(ALL).of_row_locks(),
    a_table_that_is_being_made_is_waited_for.on(&[Kind::Postgres]),
    a_client_cut_off_within_a_request_keeps_no_row.on(&[Kind::Pgbouncer]).of_lease_rows(),
    refused_attempt_waits_for_no_row.on(ALL).of_lease_rows(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// The clients that want what is blocked.
const CLIENTS: usize = 3;
/// How long an answer may take: so short that each client gives up several times, and long enough for a busy machine.
const RESPONSE: Duration = Duration::from_secs(3);

/// A stranger's transaction that has locked a row.
pub(crate) async fn stranger(table: &Table, name: &str) -> Raw {
    let mut stranger = table.raw().await;
    stranger.execute("BEGIN").await;
    // By the whole key, so that MySQL locks nothing else.
    let lock = format!("UPDATE {{t}} SET host = 'x' WHERE prefix = '' AND name = '{name}'");
    stranger.execute(&table.sql(&lock)).await;
    stranger
}

async fn a_blocked_row_costs_no_other_lease(table: &Table) {
    let locks = table.locks().await;
    let hold = async |name: &str| locks.lock(name).lease(SHORT_LEASE).acquire().await.unwrap();
    let blocked = hold("blocked").await;
    let mut others = Vec::new();
    for number in 0..100 {
        others.push(hold(&format!("other {number}")).await);
    }
    let mut stranger = stranger(table, "blocked").await;
    assert_eq!(soon(blocked.lost()).await, LossCause::Expired);
    tokio::time::sleep(SHORT_LEASE).await;
    let lost = others.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "leases were lost beside the blocked one");
    stranger.execute("ROLLBACK").await;
    for guard in others {
        guard.release().await.unwrap();
    }
}

/// A claim whose renewal has time: a part of it is left unanswered when a twelfth of the shortest lease has passed.
fn unhurried(text: &str) -> Claim {
    Claim { lease: Duration::from_mins(10), ..claim(text) }
}

/// What is blocked is asked for again, as long as the holder believes; only what the row does not say any more is lost.
async fn a_blocked_row_is_told_apart_from_a_lost_one(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for name in ["a", "b", "c"] {
        grants.push(granted(&store, &unhurried(name)).await);
    }
    let left = "SELECT expires_at - {now} FROM {t} WHERE name = 'b'";
    // Long enough for a busy machine to ask while it stands, and shorter than what a renewal would give.
    table.execute("UPDATE {t} SET expires_at = {now} + 10 * {second} WHERE name = 'b'").await;
    let mut stranger = stranger(table, "b").await;
    let (told, answered) = tokio::join!(soon(store.renew(&grants)), answer_of_others(&store, &grants));
    assert_eq!(told.unwrap(), [Renewal::Renewed, Renewal::Unanswered, Renewal::Renewed]);
    answered.unwrap();
    assert!(table.number(left).await <= 10_000, "what was blocked was renewed");
    until(async || table.number(left).await < 0).await;
    let told = soon(store.renew(&grants)).await.unwrap();
    assert_eq!(told, [Renewal::Renewed, Renewal::Lost(LossCause::Expired), Renewal::Renewed]);
    stranger.execute("ROLLBACK").await;
}

/// Whatever else is asked meanwhile goes on.
async fn answer_of_others(store: &Store, grants: &[Grant]) -> Result<(), String> {
    let told = soon(store.renew(&grants[..1])).await.map_err(|error| error.to_string())?;
    if told == [Renewal::Renewed] { Ok(()) } else { Err(format!("{told:?}")) }
}

/// Here because a stranger wrote into it what no statement can work with.
async fn a_row_that_cannot_be_renewed_costs_no_other_lease(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for number in 0..9 {
        grants.push(granted(&store, &unhurried(&number.to_string())).await);
    }
    table.execute("UPDATE {t} SET record = '{broken' WHERE name = '4'").await;
    let told = soon(store.renew(&grants)).await.unwrap();
    for (number, told) in told.into_iter().enumerate() {
        let expected = if number == 4 { Renewal::Unanswered } else { Renewal::Renewed };
        assert_eq!(told, expected, "{number}");
    }
}

async fn a_blocked_row_uses_up_no_connections(table: &Table) {
    drop(table.open_with_row("a").await);
    let clients = clients(table).await;
    let mut stranger = stranger(table, "a").await;
    few_wait(table, clients).await;
    stranger.execute("ROLLBACK").await;
    let store = table.open().await;
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn a_blocked_table_uses_up_no_connections(table: &Table) {
    drop(table.open_with_row("a").await);
    let clients = clients(table).await;
    let mut stranger = lock_table(table).await;
    few_wait(table, clients).await;
    stranger.execute(table.either("ROLLBACK", "UNLOCK TABLES")).await;
    let store = table.open().await;
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

/// A stranger's session that has locked the whole table, as a migration does.
pub(crate) async fn lock_table(table: &Table) -> Raw {
    let mut stranger = table.raw().await;
    if table.is_postgres() {
        stranger.execute("BEGIN").await;
    }
    let lock = table.either("LOCK TABLE {t} IN ACCESS EXCLUSIVE MODE", "LOCK TABLES {t} WRITE");
    stranger.execute(&table.sql(lock)).await;
    stranger
}

/// Whoever does not wait for the row does not wait for the table either, except as long as any request may.
async fn a_try_at_a_blocked_table_fails_in_time(table: &Table) {
    drop(table.open_with_row("a").await);
    let store = table.options().response_timeout(RESPONSE).open().await.unwrap();
    let _stranger = lock_table(table).await;
    let tried = tokio::time::timeout(RESPONSE * 4, store.try_acquire(&claim("a"))).await;
    let error = tried.expect("the try goes on").unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}

/// Making it takes another client longer than connecting or an answer may take, as where the disk stands still.
async fn a_table_that_is_being_made_is_waited_for(table: &Table) {
    const CONNECTING: Duration = Duration::from_secs(10);
    let mut maker = table.raw().await;
    maker.execute("BEGIN").await;
    maker.execute(&table.ddl()).await;
    let options = table.options().connect_timeout(CONNECTING).response_timeout(RESPONSE);
    let opening = tokio::spawn(options.open());
    tokio::time::sleep(CONNECTING * 3 / 2).await;
    maker.execute("COMMIT").await;
    let store = soon(opening).await.unwrap().unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn clients(table: &Table) -> Vec<Locks> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(table.options().response_timeout(RESPONSE).open().await.unwrap().locks());
    }
    clients
}

/// The server's sessions that wait for the table or one of its rows.
async fn waiting_sessions(table: &Table) -> i64 {
    if !table.is_postgres() {
        return table.asking(&table.name).await;
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND (query LIKE '%{t}%' \
                   OR pid IN (SELECT pid FROM pg_locks WHERE NOT granted AND relation = '{t}'::regclass))";
    table.number(waiting).await
}

/// All of them want the lock that is blocked, and each time give up before it is theirs. The server's sessions that wait are
/// no more than those of the requests that are under way, and none once the clients have gone.
async fn few_wait(table: &Table, clients: Vec<Locks>) {
    let waiting = clients.iter().map(|locks| {
        // Whoever gives up tries to take its claim back for a lease.
        let lock = locks.lock("a").lease(SHORT_LEASE).wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    });
    let waiting: Vec<_> = waiting.collect();
    let watched = tokio::time::Instant::now() + RESPONSE * 4;
    let (mut most, mut seen) = (0, Vec::new());
    while tokio::time::Instant::now() < watched {
        let number = waiting_sessions(table).await;
        most = most.max(number);
        seen.push(number);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(most > 0, "nothing was blocked: this shows nothing");
    // A request, a withdrawal of the one before, and a new connection's check of the table.
    assert!(most <= 3 * i64::try_from(CLIENTS).unwrap(), "sessions that waited: {seen:?}");
    for waiting in waiting {
        waiting.abort();
    }
    for locks in clients {
        soon(locks.close()).await;
    }
    until(async || waiting_sessions(table).await == 0).await;
}

/// It may be frozen at any moment, here when its request waits for a row. Then it hears of nothing and says nothing, and the
/// pooler hears nothing of its end.
async fn a_client_cut_off_within_a_request_keeps_no_row(table: &Table) {
    drop(table.open_with_row("a").await);
    let (proxy, options) = table.through_proxy().await;
    // The server waits for the row until it has been looked at.
    let store = options.response_timeout(LONG).open().await.unwrap();
    let mut stranger = stranger(table, "a").await;
    let asking = tokio::spawn(async move { (store.try_acquire(&claim("a")).await, store) });
    table.until_asked(&table.sql("INSERT INTO {q}{t}{q} AS held")).await;
    proxy.set(Direction::Requests, Flow::Hold);
    stranger.execute("COMMIT").await;
    table.until_nothing_is_locked().await;
    let (asked, _store) = soon(asking).await.unwrap();
    assert!(matches!(asked, Ok(Attempt::Granted(_))), "{asked:?}");
}

/// So it locks none, and writes nothing.
async fn refused_attempt_waits_for_no_row(table: &Table) {
    let holder = table.open().await;
    for held in [claim("a"), reader("b"), reader("c"), reader("c"), permits("d", 1, 2)] {
        // Nothing renews it.
        granted(&holder, &Claim { lease: Duration::from_hours(1), ..held }).await;
    }
    let names = ["a", "b", "c", "d"];
    for options in [table.options(), table.options().fair()] {
        let store = options.open().await.unwrap();
        // In MySQL and MariaDB a client that has not seen the row yet asks by a write.
        for name in names {
            busy(&store, &claim(name)).await;
        }
        let mut strangers = join_all(names.map(|name| stranger(table, name))).await;
        for refused in [claim("a"), reader("a"), claim("b"), claim("c"), claim("d"), permits("d", 2, 2)] {
            busy(&store, &refused).await;
        }
        // Many at once, so that each waits for the connection.
        let many: Vec<Claim> = names.into_iter().cycle().take(100).map(claim).collect();
        join_all(many.iter().map(|refused| busy(&store, refused))).await;
        for stranger in &mut strangers {
            stranger.execute("ROLLBACK").await;
        }
    }
}
