//! Behaviour of PostgreSQL alone: notifications, schemas, isolation levels that collide.

use crate::{
    AWAITED, Backend, Duration, Kind, LONG, Mode, RELEASED, Store, Table, busy,
    case::cases,
    claim, granted,
    lease_rows::Rows,
    leases::{keep_places, waiter},
    permits, reader, said, soon,
    stopped::Stopped,
    store::Options,
    until, waiting,
};
use sqlx::postgres::PgListener;
use std::collections::HashSet;
use tenure_core::{Claim, Conversion, Grant, Renewal};
use tenure_sql::{Durability, Strategy};

cases!("postgres":
    waiter_is_told_when_there_is_room.on(POSTGRES).of_lease_rows(),
    waiter_beside_a_mark_looks_for_itself.on(POSTGRES).of_lease_rows(),
    the_next_in_line_is_told_and_nobody_else.on(POSTGRES).of_lease_rows(),
    a_batch_is_renewed_by_one_transaction.on(POSTGRES).of_lease_rows(),
    a_serialization_failure_is_no_answer.on(POSTGRES), a_missing_schema.on(POSTGRES), a_table_without_a_key.on(POSTGRES),
    nothing_waits_for_the_disk.on(POSTGRES),
    schema_other_than_public_is_shown_with_the_store.on(POSTGRES),
    waiting_connection_is_kept_alive.on(POSTGRES).of_sessions(),
);

const POSTGRES: &[Kind] = &[Kind::Postgres];
/// Marks stand for three times as long as that.
const POLL: Duration = Duration::from_mins(1);

/// Waits until there is the mark of one who waits. The columns tell only of one who wants to hold it alone.
async fn until_awaited(table: &Table, name: &str) {
    let mark = "(record::jsonb #>> '{mark,until}')::bigint > {now} * 1000";
    let awaited = "SELECT count(*) FROM {t} WHERE name = '{name}' AND (awaited_until > {now} OR {mark})";
    let awaited = awaited.replace("{name}", name).replace("{mark}", mark);
    until(async || table.number(&awaited).await == 1).await;
}

/// Makes room for those who wait.
async fn leave(store: &Store, how: &str, grant: &Grant) {
    match how {
        "released" => assert_eq!(store.release(grant).await.unwrap(), AWAITED),
        "converted" => {
            assert_eq!(store.convert(grant, Mode::Shared).await.unwrap(), Conversion::Converted);
        }
        "forced" => assert_eq!(store.force_release(&grant.name).await.unwrap().len(), 1),
        _ => store.withdraw(&Claim { id: grant.claim, ..claim(&grant.name) }).await.unwrap(),
    }
}

/// Over a listener that the server cut off, too.
async fn waiter_is_told_when_there_is_room(table: &Table) {
    let (ours, store) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let first = granted(&ours, &claim("first")).await;
    let listener = store.clone();
    // Time passes for the listener of this wait.
    let waiter = tokio::spawn(async move { listener.acquire(&waiting("first")).await.unwrap() });
    until_awaited(table, &first.name).await;
    leave(&ours, "released", &first).await;
    soon(waiter).await.unwrap();
    let theirs = Stopped::with(store);
    for (how, holds, wants) in [
        ("released", claim("alone"), claim("alone")),
        ("released", reader("reader"), claim("reader")),
        ("released", permits("permit", 2, 3), permits("permit", 2, 3)),
        ("converted", claim("writer"), reader("writer")),
        ("forced", claim("forced"), claim("forced")),
        ("withdrawn", claim("withdrawn"), claim("withdrawn")),
        ("released", claim("cut off"), claim("cut off")),
    ] {
        if &*holds.name == "cut off" {
            let listens = "FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{t}\"%'";
            table.execute(&format!("SELECT pg_terminate_backend(pid, 10000) {listens}")).await;
            let count = format!("SELECT count(*) {listens}");
            until(async || table.number(&count).await == 1).await;
        }
        let grant = granted(&ours, &holds).await;
        let waiter = theirs.acquire(Claim { waits: true, ..wants });
        until_awaited(table, &grant.name).await;
        leave(&ours, how, &grant).await;
        let next = soon(waiter).await.unwrap();
        assert!(next.token > grant.token, "{how}");
    }
}

/// It leaves no mark of its own, so no client wakes it when the other is granted the name and leaves.
async fn waiter_beside_a_mark_looks_for_itself(table: &Table) {
    let ours = table.options().poll(POLL).open().await.unwrap();
    let theirs = table.options().poll(POLL).open_with("application_name", &table.name).await.unwrap();
    let requests = table
        .sql("SELECT coalesce(query_start::text, '') FROM pg_stat_activity WHERE application_name = '{t}'");
    for (leaves, stays, first, next) in [
        (claim("reader"), None, claim("reader"), reader("reader")),
        (
            permits("permit", 2, 3),
            Some(permits("permit", 1, 3)),
            permits("permit", 2, 3),
            permits("permit", 3, 3),
        ),
    ] {
        let [first, next] = [first, next].map(|claim| Claim { waits: true, ..claim });
        let leaving = granted(&ours, &leaves).await;
        let mut held = Vec::new();
        if let Some(stays) = stays {
            held.push(granted(&ours, &stays).await);
        }
        tokio::select! {
            acquired = ours.acquire(&first) => panic!("it was had: {acquired:?}"),
            () = until_awaited(table, &first.name) => {}
        }
        assert_eq!(ours.release(&leaving).await.unwrap(), AWAITED);
        let store = theirs.clone();
        let waiter = tokio::spawn(async move { store.acquire(&next).await.unwrap() });
        let (mut raw, mut seen) = (table.raw().await, HashSet::new());
        let looks = async {
            while seen.len() < 6 {
                seen.extend(raw.texts(&requests).await);
            }
        };
        // A waiter that relies on wake-ups asks again after `POLL / 2` at the earliest.
        tokio::time::timeout(POLL / 4, looks).await.expect("it trusts to be told");
        assert!(!waiter.is_finished(), "it passed one that waits");
        held.push(granted(&ours, &first).await);
        for grant in &held {
            ours.release(grant).await.unwrap();
        }
        soon(waiter).await.unwrap();
    }
}

/// A client granted the name beside others wakes the next waiter, if that one may be granted it too.
async fn the_next_in_line_is_told_and_nobody_else(table: &Table) {
    let mut listener = PgListener::connect(&table.server.url()).await.unwrap();
    listener.listen(&table.name).await.unwrap();
    let mut told = async || soon(listener.recv()).await.unwrap().payload().to_owned();
    let ours = table.client(true).await;
    let held = granted(&ours, &claim("a")).await;
    let claims = [claim("a"), reader("a"), reader("a"), claim("a")];
    for claim in &claims {
        // It is never heard of again: nothing above the store withdraws it.
        let acquiring = waiter(table, claim.clone()).await;
        acquiring.abort();
        assert!(acquiring.await.err().is_some_and(|end| end.is_cancelled()));
    }
    // They ask no more by themselves, and keep their places all the same.
    keep_places(table, POLL * 5).await;
    let words = |claim: &Claim| format!("\na\n{}", claim.id);
    ours.release(&held).await.unwrap();
    assert_eq!(told().await, words(&claims[0]));
    let writing = granted(&ours, &claims[0]).await;
    ours.release(&writing).await.unwrap();
    let mut reading = Vec::new();
    for claim in &claims[1..3] {
        assert_eq!(told().await, words(claim));
        reading.push(granted(&ours, claim).await);
    }
    // The writer is told once both of them have gone, and not before.
    for reading in reading {
        busy(&ours, &claims[3]).await;
        ours.release(&reading).await.unwrap();
    }
    assert_eq!(told().await, words(&claims[3]));
    granted(&ours, &claims[3]).await;
    table.execute("NOTIFY {t}, 'the last'").await;
    assert_eq!(told().await, "the last");
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
         WHERE application_name = 'tenure {}'
         AND socket ~ (':' || upper(lpad(to_hex(client_port), 4, '0')) || ' 01 [^ ]+ 02:')
         AND ('x' || substring(socket FROM ' 02:([0-9A-F]{{8}})'))::bit(32)::integer <= 3000",
        table.shown(id)
    );
    until(async || table.admin().await.number(&kept_alive).await == 1).await;
    store.release(&held).await.unwrap();
    store.release(&acquiring.await.unwrap().unwrap()).await.unwrap();
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
    // A sweep inserts "AS swept".
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
    assert!(
        said(&error).contains("the schema of the table") && said(&error).contains(&path),
        "{}",
        said(&error)
    );
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
    assert!(!error.is_unavailable() && error.to_string().contains("tenure's schema"), "{error}");
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
