//! A foreign session keeps a row or the table locked: what that costs, and what it does not.

use crate::{
    Attempt, Claim, Duration, Kind, LONG, LossCause, RELEASED, Table, busy, case::cases, claim, granted,
    lease_rows::Rows, permits, reader, soon, table::Raw, until, waiting,
};
use futures_util::future::join_all;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{AttemptAll, Backend, Renewal};

cases!("blocked":
    a_blocked_row_is_told_apart_from_a_lost_one.on(ALL).of_lease_rows(),
    blocked_row_or_table_uses_up_no_connections.on(ALL),
    a_try_at_a_blocked_table_fails_in_time.on(ALL).of_row_locks(),
    a_table_that_is_being_made_is_waited_for.on(&[Kind::Postgres]),
    a_client_cut_off_within_a_request_keeps_no_row.on(&[Kind::Pgbouncer]).of_lease_rows(),
    refused_attempt_locks_no_row_and_waits_for_none.on(ALL).of_lease_rows(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];
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

/// A client retries a blocked renewal until the deadline. A grant is lost only if its row no longer shows it as held.
async fn a_blocked_row_is_told_apart_from_a_lost_one(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for name in ["a", "b", "c"] {
        grants.push(granted(&store, &claim(name)).await);
    }
    let set = |text: &str| format!("UPDATE {{t}} SET expires_at = {{now}} {text} WHERE name = 'b'");
    // Shorter than what a renewal would give.
    table.execute(&set("+ 300 * {second}")).await;
    for blocked in [Renewal::Unanswered, Renewal::Lost(LossCause::Expired)] {
        let mut stranger = stranger(table, "b").await;
        // Other renewals go on meanwhile.
        let (told, others) = tokio::join!(soon(store.renew(&grants)), soon(store.renew(&grants[..1])));
        assert_eq!(told.unwrap(), [Renewal::Renewed, blocked, Renewal::Renewed]);
        assert_eq!(others.unwrap(), [Renewal::Renewed]);
        stranger.execute("ROLLBACK").await;
        let left = table.number("SELECT expires_at - {now} FROM {t} WHERE name = 'b'").await;
        assert!(left <= 300_000, "what was blocked was renewed");
        table.execute(&set("- {second}")).await;
    }
}

async fn blocked_row_or_table_uses_up_no_connections(table: &Table) {
    let store = table.open_with_row("a").await;
    // A row lock waits for its row in the server's queue.
    if table.strategy == tenure_sql::Strategy::LeaseRow {
        few_wait(table, async || stranger(table, "a").await, "ROLLBACK").await;
    }
    few_wait(table, async || lock_table(table).await, table.either("ROLLBACK", "UNLOCK TABLES")).await;
    let grant = soon(store.acquire(&waiting("a"))).await.unwrap();
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

/// A try does not wait for the row, and waits for the table no longer than any request may.
async fn a_try_at_a_blocked_table_fails_in_time(table: &Table) {
    drop(table.open_with_row("a").await);
    let store = table.options().response_timeout(RESPONSE).open().await.unwrap();
    let _stranger = lock_table(table).await;
    let error = soon(store.try_acquire(&claim("a"))).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}

/// Making it takes another client longer than connecting or an answer may take, as where the disk stands still.
async fn a_table_that_is_being_made_is_waited_for(table: &Table) {
    let mut maker = table.raw().await;
    maker.execute("BEGIN").await;
    maker.execute(&table.ddl()).await;
    let pid = maker.number("SELECT pg_backend_pid()::bigint").await;
    let options = table.options().connect_timeout(RESPONSE * 2).response_timeout(RESPONSE);
    let opening = tokio::spawn(options.open());
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid)) \
         AND now() - backend_start > interval '9 s'"
    );
    until(async || opening.is_finished() || table.number(&waits).await > 0).await;
    maker.execute("COMMIT").await;
    let store = soon(opening).await.unwrap().unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
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

/// All clients want the lock that is blocked, and give up several times if they do not wait in the server's queue. The server's sessions that wait are no more than
/// those of the requests that are under way, and none once the clients have gone.
async fn few_wait(table: &Table, block: impl AsyncFn() -> Raw, end: &str) {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(table.options().response_timeout(RESPONSE).open().await.unwrap().locks());
    }
    let mut stranger = block().await;
    let waits = clients.iter().map(|locks| {
        // A client that gives up tries to withdraw for the length of the lease.
        let lock = locks.lock("a").lease(RESPONSE * 2);
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    });
    let waits: Vec<_> = waits.collect();
    let (most, begun) = (std::cell::Cell::new(0), table.number("SELECT {now}").await);
    until(async || {
        most.set(most.get().max(waiting_sessions(table).await));
        table.number("SELECT {now}").await - begun > 12_000
    })
    .await;
    assert!(most.get() > 0, "nothing was blocked: this shows nothing");
    // A request, a withdrawal of the one before, and a new connection's check of the table.
    assert!(most.get() <= 3 * i64::try_from(CLIENTS).unwrap(), "{} sessions waited", most.get());
    for wait in waits {
        wait.abort();
    }
    for locks in clients {
        soon(locks.close()).await;
    }
    until(async || waiting_sessions(table).await == 0).await;
    stranger.execute(end).await;
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

/// Which transaction last changed or locked a row of PostgreSQL is noted in it: a lock is a write.
async fn refused_attempt_locks_no_row_and_waits_for_none(table: &Table) {
    let holder = table.open().await;
    for held in [claim("a"), reader("b"), reader("c"), reader("c"), permits("d", 1, 2)] {
        granted(&holder, &held).await;
    }
    let names = ["a", "b", "c", "d"];
    for options in [table.options(), table.options().fair(true)] {
        let store = options.open().await.unwrap();
        // In MySQL and MariaDB a client that has not seen the row yet asks by a write.
        for name in names {
            busy(&store, &claim(name)).await;
        }
        let mut strangers = join_all(names.map(|name| stranger(table, name))).await;
        let stamp = table.either("concat_ws(' ', ctid, xmin, xmax)", "CAST(version AS CHAR)");
        let stamps = table.sql(&format!("SELECT {stamp} FROM {{t}} ORDER BY name"));
        let before = table.raw().await.texts(&stamps).await;
        for refused in [claim("a"), reader("a"), claim("b"), claim("c"), claim("d"), permits("d", 2, 2)] {
            busy(&store, &refused).await;
        }
        // Many at once, so that each waits for the connection.
        let many: Vec<Claim> = names.into_iter().cycle().take(100).map(claim).collect();
        join_all(many.iter().map(|refused| busy(&store, refused))).await;
        let set = store.try_acquire_all(&["a", "e"].map(claim)).await.unwrap();
        assert!(!matches!(set, AttemptAll::Granted(_)), "{set:?}");
        assert_eq!(table.raw().await.texts(&stamps).await, before);
        for stranger in &mut strangers {
            stranger.execute("ROLLBACK").await;
        }
    }
}
