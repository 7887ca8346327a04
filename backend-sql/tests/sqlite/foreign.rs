//! Rows that another program wrote or damaged: none makes a client panic or report a held lock as free.

#[path = "../common/damaged_rows.rs"]
mod damaged_rows;

use crate::{File, claim, claims::LEASE, granted, lease_rows::Rows};
use damaged_rows::{Kept, Row, ask, rows, rows_that_were_wrong_once, texts};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use sqlx::SqliteConnection;
use std::time::Duration;
use tenure_core::{Locks, Mode};

/// SQLite looks neither how long a text is, nor whether it is UTF-8.
fn text() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        2 => texts(),
        1 => any::<String>().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
    .boxed()
}

async fn put(row: &Row, raw: &mut SqliteConnection) {
    let insert = "INSERT OR REPLACE INTO tenure_locks VALUES ('', 'a', ?1, ?2, CAST(?3 AS TEXT), CAST(?4 AS TEXT), ?5, ?6, \
         ?7, CAST(?8 AS TEXT), CAST(?9 AS TEXT), CAST(?10 AS TEXT), ?11, CAST(?12 AS TEXT))";
    let insert = sqlx::query(insert)
        .bind(row.version)
        .bind(row.token)
        .bind(row.claim.clone())
        .bind(row.mode.clone())
        .bind(row.since)
        .bind(row.expires_at)
        .bind(row.awaited_until)
        .bind(row.awaited_by.clone())
        .bind(row.label.clone())
        .bind(row.host.clone())
        .bind(row.pid)
        .bind(row.record.as_ref().map(Kept::text));
    insert.execute(raw).await.unwrap();
}

/// Asks of every such row, with a queue and without.
fn ask_of(rows: &impl Strategy<Value = Row>, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let file = File::new();
    // Sweeps are hourly, so no client sweeps during the test.
    runtime.block_on(file.swept());
    for fair in [false, true] {
        let backend = runtime.block_on(file.client(fair));
        let beside = runtime.block_on(granted(&backend, &claim(&format!("beside.{fair}"))));
        let raw = tokio::sync::Mutex::new(runtime.block_on(file.raw()));
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let run = runner.run(rows, |row| {
            runtime.block_on(async {
                let mut raw = raw.lock().await;
                ask(&backend, &beside, &row, async || put(&row, &mut raw).await).await?;
                put(&row, &mut raw).await;
                let locks = Locks::new(backend.clone());
                let waited = locks.lock("a").lease(LEASE).wait(Duration::from_millis(5)).acquire().await;
                prop_assert!(waited.is_err() || row.may_be_had(Mode::Exclusive), "{waited:?}");
                drop(waited);
                // Waits for the withdrawal, which would otherwise change the next row.
                locks.close().await;
                Ok(())
            })
        });
        run.unwrap_or_else(|error| panic!("fair={fair}: {error}"));
    }
}

#[test]
fn whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free() {
    ask_of(&rows(&text()), 200);
}

#[test]
fn rows_that_were_wrong_once_are_not_wrong_again() {
    for row in rows_that_were_wrong_once() {
        ask_of(&Just(row), 1);
    }
}
