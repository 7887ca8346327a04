//! Behind a real PgBouncer in transaction mode.

use crate::{
    Duration, Kind, LONG, RELEASED, Store, Table, busy, case::cases, chain, claim, granted, soon, table::Raw,
    until, waiting,
};
use std::collections::HashSet;
use tenure_core::{Error, Renewal};
use tenure_sql::{Durability, PostgresBackend, PostgresOptions, Strategy};
use tokio::task::JoinSet;

cases!("faults":
    pooler_in_transaction_mode.on(&[Kind::Pgbouncer]),
    clients_take_turns.on(&[Kind::Pgbouncer]),
    unannounced_pooler_is_named_and_its_sessions_stay_as_they_are.on(&[Kind::Pgbouncer]).alone(),
    pooler_in_session_mode_works_once_it_is_announced.on(&[Kind::Pgbouncer]),
    pooler_in_statement_mode_refuses_row_locks_for_good.on(&[Kind::Pgbouncer]).of_row_locks(),
);

async fn pooler_in_transaction_mode(table: &Table) {
    match table.strategy {
        Strategy::LeaseRow => lease_rows(table).await,
        _ => row_locks(table).await,
    }
    table.until_nothing_is_locked().await;
}

async fn lease_rows(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let grant = granted(&ours, &claim("a")).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(ours.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    let waiter = theirs.clone();
    let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
    until(async || table.number("SELECT count(*) FROM {t} WHERE awaited_until > {now}").await == 1).await;
    ours.release(&grant).await.unwrap();
    let next = soon(acquiring).await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

async fn row_locks(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let held = claim("a");
    let grant = granted(&ours, &held).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(theirs.holders(&held.name).await.unwrap().len(), 1);
    let waits = waiting("a");
    let gave_up = tokio::time::timeout(Duration::from_millis(300), theirs.acquire(&waits)).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    theirs.withdraw(&waits).await.unwrap();
    let waiter = theirs.clone();
    let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let next = soon(acquiring).await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.force_release(&held.name).await.unwrap().len(), 1);
    let after = ours.acquire(&waiting("a")).await.unwrap();
    assert!(after.token > next.token);
    assert_eq!(ours.release(&after).await.unwrap(), RELEASED);
}

async fn clients_take_turns(table: &Table) {
    let mut turns = JoinSet::new();
    for _ in 0..4 {
        let locks = table.locks().await;
        turns.spawn(async move {
            for _ in 0..5 {
                locks.lock("a").wait(LONG).acquire().await.unwrap().release().await.unwrap();
            }
            locks.close().await;
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
    table.until_nothing_is_locked().await;
}

/// Options that say nothing about a pooler, for a database behind one.
fn unannounced(table: &Table, database: &str) -> PostgresOptions {
    let options = PostgresOptions::new(table.url_of(database)).table(&table.name).strategy(table.strategy);
    options.connect_timeout(LONG)
}

/// All that one program can leave to the next in a session. A pooler passes on a name of its own accord, and begins
/// another session after a client that left within a request.
async fn session(neighbour: &mut Raw) -> HashSet<String> {
    let all = "SELECT name || '=' || setting FROM pg_settings WHERE name <> 'application_name' \
               UNION ALL SELECT 'prepared ' || name FROM pg_prepared_statements \
               UNION ALL SELECT 'listens ' || channel FROM pg_listening_channels() AS channel";
    neighbour.texts(all).await.into_iter().collect()
}

/// With one session for all clients, and a pooler that refuses the options of a session or ignores them.
async fn unannounced_pooler_is_named_and_its_sessions_stay_as_they_are(table: &Table) {
    let mut neighbour = Raw::connect(&table.url_of("one")).await;
    let before = session(&mut neighbour).await;
    for ignored in ["extra_float_digits, options", "extra_float_digits"] {
        let mut console = Raw::connect(&table.url_of("pgbouncer")).await;
        console.execute(&format!("SET ignore_startup_parameters = '{ignored}'")).await;
        for durability in [Durability::Full, Durability::Relaxed] {
            let options = unannounced(table, "one").durability(durability);
            let opened = PostgresBackend::connect(options).await.map(drop);
            let after = session(&mut neighbour).await;
            let changed: Vec<&String> = after.symmetric_difference(&before).collect();
            assert!(changed.is_empty(), "{changed:?}");
            let error = opened.expect_err("it was not noticed");
            assert!(matches!(error, Error::Store { .. }), "{error:?}");
            assert!(chain(&error).contains("pooler=true"), "{}", chain(&error));
        }
    }
}

async fn pooler_in_session_mode_works_once_it_is_announced(table: &Table) {
    let unannounced = || unannounced(table, "session");
    let error = PostgresBackend::connect(unannounced()).await.map(drop).unwrap_err();
    assert!(chain(&error).contains("pooler=false"), "{}", chain(&error));
    let store = Store::Postgres(PostgresBackend::connect(unannounced().pooler(false)).await.unwrap());
    let grant = granted(&store, &claim("a")).await;
    busy(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn pooler_in_statement_mode_refuses_row_locks_for_good(table: &Table) {
    let options = unannounced(table, "statement").pooler(true);
    let store = Store::Postgres(PostgresBackend::connect(options).await.unwrap());
    for claim in [claim("a"), waiting("a")] {
        let asked = if claim.waits {
            store.acquire(&claim).await.map(drop)
        } else {
            store.try_acquire(&claim).await.map(drop)
        };
        let error = asked.unwrap_err();
        assert!(!error.is_unavailable() && chain(&error).contains("pool_mode"), "{error}");
    }
}
