//! What only PostgreSQL has: notifications, schemas, isolation levels that collide.

use crate::{
    Duration, Kind, LONG, RELEASED, Release, Store, Table,
    blocked::stranger,
    busy,
    case::cases,
    chain, claim, granted,
    sharing::{permits, reader},
    soon,
    store::Options,
    until, waiting,
};
use futures_util::{FutureExt, future::join_all};
use std::pin::pin;
use tenure_core::{AttemptAll, Claim, Renewal};
use tenure_sql::{Durability, Strategy};

cases!("postgres":
    a_waiter_is_told_of_a_release.on(POSTGRES).of_lease_rows(),
    a_waiter_is_told_of_a_forced_release_and_of_a_withdrawal.on(POSTGRES).of_lease_rows(),
    a_listener_that_was_cut_off_listens_again.on(POSTGRES).of_lease_rows(),
    a_waiter_is_told_after_another_client_closes.on(POSTGRES).of_lease_rows(),
    a_batch_is_renewed_by_one_transaction.on(POSTGRES).of_lease_rows(),
    a_serialization_failure_is_no_answer.on(POSTGRES), a_missing_schema.on(POSTGRES), a_table_without_a_key.on(POSTGRES),
    nothing_waits_for_the_disk.on(POSTGRES),
    a_set_of_which_a_part_is_taken_meanwhile_is_not_granted.on(POSTGRES).of_lease_rows(),
    a_set_dropped_on_its_way_is_withdrawn_behind_its_grant.on(POSTGRES).of_lease_rows(),
    schema_other_than_public_is_shown_with_the_store.on(POSTGRES),
    waiting_connection_is_kept_alive.on(POSTGRES).of_row_locks(),
    refused_attempt_locks_no_row_and_waits_for_none.on(&[Kind::Postgres, Kind::Pgbouncer]).of_lease_rows(),
);

const POSTGRES: &[Kind] = &[Kind::Postgres];
/// So long that only a notification can have come first.
const POLL: Duration = Duration::from_mins(1);

async fn until_awaited(table: &Table) {
    let marks = "SELECT count(*) FROM {t} WHERE awaited_until > {now} OR record LIKE '%\"mark\"%'";
    until(async || table.number(marks).await == 1).await;
}

async fn hand_over(table: &Table, from: &Store, to: &Store) {
    let grant = granted(from, &claim("a")).await;
    let (to, next) = (to.clone(), waiting("a"));
    let acquiring = tokio::spawn(async move { to.acquire(&next).await.map(|grant| (to, grant)) });
    until_awaited(table).await;
    assert_eq!(from.release(&grant).await.unwrap(), Release::Released { awaited: true });
    let told = tokio::time::timeout(POLL / 4, acquiring).await.expect("the waiter was not told");
    let (to, next) = told.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(to.release(&next).await.unwrap(), RELEASED);
}

async fn a_waiter_is_told_of_a_release(table: &Table) {
    let to = table.options().poll(POLL).open().await.unwrap();
    hand_over(table, &table.open().await, &to).await;
}

async fn a_listener_that_was_cut_off_listens_again(table: &Table) {
    let to = table.options().poll(POLL).open().await.unwrap();
    let from = table.open().await;
    hand_over(table, &from, &to).await;
    let listens = "FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{t}\"%'";
    table.execute(&format!("SELECT pg_terminate_backend(pid, 10000) {listens}")).await;
    let count = format!("SELECT count(*) {listens}");
    until(async || table.number(&count).await == 1).await;
    hand_over(table, &from, &to).await;
}

/// A client of the same backend, which the waiter's listener is for as well.
async fn a_waiter_is_told_after_another_client_closes(table: &Table) {
    let (from, to) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let grant = granted(&from, &claim("a")).await;
    let (waiter, next) = (to.clone(), waiting("a"));
    let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
    until_awaited(table).await;
    to.close().await;
    assert_eq!(from.release(&grant).await.unwrap(), Release::Released { awaited: true });
    let told = tokio::time::timeout(POLL / 4, acquiring).await.expect("the waiter was not told");
    assert_eq!(to.release(&told.unwrap().unwrap()).await.unwrap(), RELEASED);
}

/// The server sends nothing until the waiter gets its turn, and a firewall would forget the connection.
async fn waiting_connection_is_kept_alive(table: &Table) {
    let store = table.open().await;
    let (held, next) = (granted(&store, &claim("a")).await, waiting("a"));
    let (waiter, id) = (store.clone(), next.id);
    let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
    table.until_waits(id).await;
    // The server's end of an open connection, its keepalive timer, and how many hundredths of a second are left.
    let kept_alive = format!(
        "SELECT count(*) FROM pg_stat_activity, regexp_split_to_table(pg_read_file('/proc/net/tcp'), E'\\n') AS socket
         WHERE application_name = 'tenure {id}'
         AND socket ~ (':' || upper(lpad(to_hex(client_port), 4, '0')) || ' 01 [^ ]+ 02:')
         AND ('x' || substring(socket FROM ' 02:([0-9A-F]{{8}})'))::bit(32)::integer <= 3000"
    );
    until(async || table.admin().await.number(&kept_alive).await == 1).await;
    store.release(&held).await.unwrap();
    store.release(&acquiring.await.unwrap().unwrap()).await.unwrap();
}

async fn a_waiter_is_told_of_a_forced_release_and_of_a_withdrawal(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    for force in [true, false] {
        let held = claim("a");
        granted(&ours, &held).await;
        let (waiter, next) = (theirs.clone(), waiting("a"));
        let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
        until_awaited(table).await;
        if force {
            assert_eq!(ours.force_release(&held.name).await.unwrap().len(), 1);
        } else {
            ours.withdraw(&held).await.unwrap();
        }
        let told = tokio::time::timeout(POLL / 4, acquiring).await.expect("the waiter was not told");
        theirs.release(&told.unwrap().unwrap()).await.unwrap();
    }
}

async fn a_batch_is_renewed_by_one_transaction(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for number in 0..50 {
        grants.push(granted(&store, &claim(&number.to_string())).await);
    }
    let before = table.number("SELECT max(xmin::text::bigint) FROM {t}").await;
    assert_eq!(store.renew(&grants).await.unwrap(), [Renewal::Renewed; 50]);
    let written = format!("SELECT count(DISTINCT xmin::text) FROM {{t}} WHERE xmin::text::bigint > {before}");
    assert_eq!(table.number(&written).await, 1, "transactions that renewed");
}

/// The row changes while the request waits for it, and the server wants the whole transaction again.
async fn a_serialization_failure_is_no_answer(table: &Table) {
    let options = table.options().response_timeout(LONG);
    let store = options.open_with("default_transaction_isolation", "serializable").await.unwrap();
    let earlier = granted(&store, &claim("a")).await;
    store.release(&earlier).await.unwrap();
    let mut blocker = table.raw().await;
    blocker.execute("BEGIN").await;
    // Of lease rows the one there is, of row locks that which is told of the last grant.
    blocker.execute(&table.sql("UPDATE {t} SET host = 'x' WHERE host IS NOT NULL")).await;
    let asks = store.clone();
    let asking = tokio::spawn(async move { granted(&asks, &claim("a")).await });
    // What sweeps is "AS swept".
    let row = if table.strategy == Strategy::RowLock { "last" } else { "held" };
    table.until_asked(&table.sql(&format!("INSERT INTO {{q}}{{t}}{{q}} AS {row}"))).await;
    blocker.execute("COMMIT").await;
    let grant = soon(asking).await.unwrap();
    assert!(grant.token > earlier.token);
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn a_missing_schema(table: &Table) {
    let path = format!("{0}.{0}", table.name);
    let error = table.options().table(&path).open().await.map(drop).unwrap_err();
    assert!(chain(&error).contains("no schema") && chain(&error).contains(&path), "{}", chain(&error));
    table.execute("CREATE SCHEMA {t}").await;
    let store = table.options().table(&path).open().await.unwrap();
    granted(&store, &claim("a")).await;
    assert!(table.number("SELECT count(*) FROM {t}.{t}").await > 0);
}

async fn a_table_without_a_key(table: &Table) {
    drop(table.open().await);
    table.execute("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey").await;
    let store = table.open().await;
    let error = store.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!error.is_unavailable() && error.to_string().contains("shape"), "{error}");
}

async fn nothing_waits_for_the_disk(table: &Table) {
    let Options::Postgres { options, .. } = table.options() else { panic!("not PostgreSQL") };
    for pooler in [false, true] {
        let options = options.clone().durability(Durability::Relaxed).pooler(pooler);
        let store = Store::Postgres(tenure_sql::PostgresBackend::connect(options).await.unwrap());
        let grant = granted(&store, &claim("a")).await;
        busy(&store, &claim("a")).await;
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    }
    table.until_nothing_is_locked().await;
}

/// For requests that wait for a row until the test has looked at them.
async fn patient(table: &Table) -> Store {
    table.options().response_timeout(LONG).open().await.unwrap()
}

/// The set looks free when it is asked for, and one of its names is not when its row's turn comes.
async fn a_set_of_which_a_part_is_taken_meanwhile_is_not_granted(table: &Table) {
    let (store, set) = (patient(table).await, ["a", "b"].map(claim));
    let AttemptAll::Granted(grants) = store.try_acquire_all(&set).await.unwrap() else {
        panic!("all were free")
    };
    let again = store.try_acquire_all(&set).await.unwrap();
    let tokens = |answer: AttemptAll| match answer {
        AttemptAll::Granted(grants) => grants.iter().map(|grant| grant.token).collect(),
        AttemptAll::Busy | AttemptAll::Apart => Vec::new(),
    };
    assert_eq!(tokens(again), grants.iter().map(|grant| grant.token).collect::<Vec<_>>(), "asked for twice");
    for grant in &grants {
        assert_eq!(store.release(grant).await.unwrap(), RELEASED);
    }
    let mut other = table.raw().await;
    other.execute("BEGIN").await;
    let take = "claim = gen_random_uuid(), expires_at = {now} + 3600 * {second} WHERE name = 'b'";
    other.execute(&table.sql(&format!("UPDATE {{t}} SET version = version + 1, {take}"))).await;
    let asks = store.clone();
    let asking = tokio::spawn(async move { asks.try_acquire_all(&["a", "b"].map(claim)).await });
    table.until_asked(&table.sql("WITH asked AS (%{q}{t}{q} AS held")).await;
    other.execute("COMMIT").await;
    let answer = soon(asking).await.unwrap().unwrap();
    assert!(matches!(answer, AttemptAll::Busy), "{answer:?}");
    granted(&store, &claim("a")).await;
}

/// As for one claim; but those of a set are withdrawn one by one, and their names are spread over all connections.
async fn a_set_dropped_on_its_way_is_withdrawn_behind_its_grant(table: &Table) {
    let (store, names) = (patient(table).await, ["a", "b", "c", "d", "e", "f"]);
    let AttemptAll::Granted(earlier) = store.try_acquire_all(&names.map(claim)).await.unwrap() else {
        panic!("busy")
    };
    for grant in &earlier {
        store.release(grant).await.unwrap();
    }
    let mut blocker = table.raw().await;
    blocker.execute("BEGIN").await;
    blocker.execute(&table.sql("UPDATE {t} SET host = 'x'")).await;
    let dropped: [Claim; 6] = names.map(claim);
    {
        let mut asking = pin!(store.try_acquire_all(&dropped));
        assert!(asking.as_mut().now_or_never().is_none());
        table.until_asked(&table.sql("WITH asked AS (%{q}{t}{q} AS held")).await;
    }
    let mut withdrawing =
        pin!(futures_util::future::join_all(dropped.iter().map(|claim| store.withdraw(claim))));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    blocker.execute("COMMIT").await;
    assert!(soon(withdrawing).await.iter().all(Result::is_ok));
    let least = table.number("SELECT min(token) FROM {t} WHERE name <> ''").await;
    let last = earlier.iter().map(|grant| grant.token.as_i64()).max().unwrap();
    assert!(least > last, "the dropped request was never carried out: this shows nothing");
    assert_eq!(table.number("SELECT count(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
}

/// Users whose `search_path` differs have tables of their own.
async fn schema_other_than_public_is_shown_with_the_store(table: &Table) {
    let (user, url) = table.user().await;
    let mut admin = table.admin().await;
    admin.execute(&table.sql(&format!("CREATE SCHEMA {{t}} AUTHORIZATION {user}"))).await;
    admin.execute(&table.sql(&format!("ALTER ROLE {user} SET search_path = {{t}}, public"))).await;
    let schema = format!("(schema {})", table.name);
    // Made, and then found.
    for _ in 0..2 {
        let store = table.options_at(&url).open().await.unwrap();
        assert!(store.store().ends_with(&schema), "{}", store.store());
    }
    let store = table.open().await;
    assert!(!store.store().contains("schema"), "{}", store.store());
}

/// Which transaction last changed or locked a row is noted in it: a lock is a write.
async fn refused_attempt_locks_no_row_and_waits_for_none(table: &Table) {
    let store = table.open().await;
    for held in [claim("a"), reader("b"), reader("c"), reader("c"), permits("d", 1, 2)] {
        granted(&store, &held).await;
    }
    let stamps = table.sql("SELECT concat_ws(' ', name, ctid, xmin, xmax) FROM {t} ORDER BY name");
    let before = table.raw().await.texts(&stamps).await;
    for options in [table.options(), table.options().fair()] {
        let store = options.open().await.unwrap();
        for refused in [claim("a"), reader("a"), claim("b"), claim("c"), claim("d"), permits("d", 2, 2)] {
            busy(&store, &refused).await;
        }
        // Those that wait for the connection are carried out together.
        let many: Vec<Claim> = ["a", "b", "c", "d"].into_iter().cycle().take(40).map(claim).collect();
        join_all(many.iter().map(|refused| busy(&store, refused))).await;
    }
    let set = store.try_acquire_all(&["a", "e"].map(claim)).await.unwrap();
    assert!(matches!(set, AttemptAll::Busy), "{set:?}");
    assert_eq!(table.raw().await.texts(&stamps).await, before);
    let mut stranger = stranger(table, "a").await;
    busy(&store, &claim("a")).await;
    stranger.execute("ROLLBACK").await;
}
