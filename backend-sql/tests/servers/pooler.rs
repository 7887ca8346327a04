//! Behind a real PgBouncer in transaction mode.

use crate::{
    Backend, Kind, LONG, RELEASED, Store, Table, busy, case::cases, claim, granted, said, table::Raw, waiting,
};
use std::collections::HashSet;
use tenure_core::Error;
use tenure_sql::{Durability, PostgresBackend, PostgresOptions};
use tokio::task::JoinSet;

cases!("faults":
    pooler_in_transaction_mode.on(&[Kind::Pgbouncer]).of_row_locks(),
    unannounced_pooler_is_named_and_its_sessions_stay_as_they_are.on(&[Kind::Pgbouncer]).alone(),
    pooler_in_session_mode_works_once_it_is_announced.on(&[Kind::Pgbouncer]),
    pooler_in_statement_mode_refuses_row_locks_for_good.on(&[Kind::Pgbouncer]).of_row_locks(),
);

/// The suite shows lease rows behind it. Clients of row locks take turns and leave no transaction open.
async fn pooler_in_transaction_mode(table: &Table) {
    let mut turns = JoinSet::new();
    for _ in 0..4 {
        let locks = table.locks().await;
        turns.spawn(async move {
            for _ in 0..5 {
                locks.lock("a").acquire().await.unwrap().release().await.unwrap();
            }
            locks.close().await;
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
    let (ours, theirs) = (table.open().await, table.open().await);
    let grant = granted(&ours, &claim("a")).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(theirs.force_release(&grant.name).await.unwrap().len(), 1);
    let after = theirs.acquire(&waiting("a")).await.unwrap();
    assert!(after.token > grant.token);
    assert_eq!(theirs.release(&after).await.unwrap(), RELEASED);
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
            assert!(said(&error).contains("pooler=true"), "{}", said(&error));
        }
    }
}

async fn pooler_in_session_mode_works_once_it_is_announced(table: &Table) {
    let unannounced = || unannounced(table, "session");
    let error = PostgresBackend::connect(unannounced()).await.map(drop).unwrap_err();
    assert!(said(&error).contains("pooler=false"), "{}", said(&error));
    let store = Store::Postgres(PostgresBackend::connect(unannounced().pooler(false)).await.unwrap());
    let grant = granted(&store, &claim("a")).await;
    busy(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn pooler_in_statement_mode_refuses_row_locks_for_good(table: &Table) {
    let options = unannounced(table, "statement").pooler(true);
    let store = Store::Postgres(PostgresBackend::connect(options).await.unwrap());
    let (tried, waited) = (store.try_acquire(&claim("a")).await, store.acquire(&waiting("a")).await);
    for error in [tried.unwrap_err(), waited.unwrap_err()] {
        assert!(!error.is_unavailable() && said(&error).contains("pool_mode"), "{error}");
    }
}
