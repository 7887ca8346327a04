//! Locks and fences inside the user's own transactions.

use crate::table::Raw;
use crate::{
    Backend, Kind, RELEASED, Table, busy, case::cases, claim, granted, lease_rows::Rows, said, soon, waiting,
};
use tenure_core::{Error, Token};
use tenure_sql::{Fence, FenceError, Strategy};

cases!("transactions":
    a_lock_is_held_until_the_transaction_ends.of_row_locks(), what_ends_the_wait_is_said.of_row_locks(),
    a_row_that_cannot_be_seen_is_not_taken_for_locked.on(&[Kind::Postgres]).of_row_locks(),
    lease_rows_have_none.of_lease_rows(), a_fence_refuses_the_overtaken.of_row_locks(),
);

pub(crate) async fn a_lock_is_held_until_the_transaction_ends(table: &Table) {
    let store = table.open().await;
    let (mut first, mut second) = (table.raw().await, table.raw().await);
    for end in ["COMMIT", "ROLLBACK"] {
        first.execute("BEGIN").await;
        store.in_transaction(&mut first, "a").await.unwrap();
        // Once more is as good as once.
        store.in_transaction(&mut first, "a").await.unwrap();
        second.execute("BEGIN").await;
        assert!(!store.try_in_transaction(&mut second, "a").await.unwrap());
        assert!(store.try_in_transaction(&mut second, "b").await.unwrap());
        busy(&store, &claim("a")).await;
        let waiter = store.clone();
        let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
        first.execute(end).await;
        let grant = soon(acquiring).await.unwrap().unwrap();
        assert!(!store.try_in_transaction(&mut second, "a").await.unwrap(), "a holder was not excluded");
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
        store.in_transaction(&mut second, "a").await.unwrap();
        second.execute("ROLLBACK").await;
    }
}

async fn what_ends_the_wait_is_said(table: &Table) {
    let store = table.open().await;
    let grant = granted(&store, &claim("a")).await;
    let mut transaction = table.raw().await;
    transaction.execute(table.either("SET lock_timeout = 50", "SET innodb_lock_wait_timeout = 1")).await;
    transaction.execute("BEGIN").await;
    let error = store.in_transaction(&mut transaction, "a").await.unwrap_err();
    assert!(error.is_retryable() && said(&error).contains("begin again"), "{}", said(&error));
    transaction.execute("ROLLBACK").await;
    store.release(&grant).await.unwrap();
    let error = store.in_transaction(&mut transaction, "").await.unwrap_err();
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
}

/// A transaction sees nothing that came after its first read, and its lock's row is made on another connection.
async fn a_row_that_cannot_be_seen_is_not_taken_for_locked(table: &Table) {
    let store = table.open().await;
    let begin = async || {
        let mut transaction = table.raw().await;
        transaction.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        assert_eq!(transaction.number("SELECT 1::bigint").await, 1);
        transaction
    };
    let error = store.try_in_transaction(&mut begin().await, "a").await.unwrap_err();
    assert!(error.is_retryable() && said(&error).contains("begin again"), "{}", said(&error));
    let (mut first, mut second) = (begin().await, begin().await);
    assert!(store.try_in_transaction(&mut first, "a").await.unwrap());
    assert!(!store.try_in_transaction(&mut second, "a").await.unwrap());
}

async fn lease_rows_have_none(table: &Table) {
    assert_eq!(table.strategy, Strategy::LeaseRow);
    let error = table.open().await.in_transaction(&mut table.raw().await, "a").await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "strategy", .. }), "{error:?}");
}

async fn raise(fence: &Fence, raw: &mut Raw, id: i64, token: u64) -> Result<(), FenceError> {
    let token = Token::new(token).unwrap();
    match raw {
        Raw::Postgres(raw) => fence.raise_in_postgres(raw, id, token).await,
        Raw::MySql(raw) => fence.raise_in_mysql(raw, id, token).await,
    }
}

async fn a_fence_refuses_the_overtaken(table: &Table) {
    table
        .execute("CREATE TABLE {t} (id BIGINT PRIMARY KEY, value BIGINT, fence BIGINT NOT NULL DEFAULT 0)")
        .await;
    table.execute("INSERT INTO {t} VALUES (1, 1, 0)").await;
    let fence = Fence::new(&table.name, "id", "fence").unwrap();
    let (mut later, mut earlier) = (table.raw().await, table.raw().await);
    later.execute("BEGIN").await;
    raise(&fence, &mut later, 1, 8).await.unwrap();
    raise(&fence, &mut later, 1, 8).await.unwrap();
    later.execute(&table.sql("UPDATE {t} SET value = 2")).await;
    // The overtaken one waits until it is known which of them was later.
    let overtaken = fence.clone();
    let refused = tokio::spawn(async move { raise(&overtaken, &mut earlier, 1, 7).await });
    table.until_asked(&table.sql("UPDATE {q}{t}{q} SET {q}fence{q}")).await;
    later.execute("COMMIT").await;
    let error = soon(refused).await.unwrap().unwrap_err();
    assert!(matches!(&error, FenceError::Refused { token, .. } if token.get() == 7), "{error:?}");
    assert!(error.to_string().contains("later token"), "{error}");
    assert_eq!(table.number("SELECT value * 10 + fence FROM {t}").await, 28);
    raise(&fence, &mut later, 1, 9).await.unwrap();
    let missing = raise(&fence, &mut later, 2, 10).await;
    assert!(matches!(missing, Err(FenceError::Refused { .. })), "{missing:?}");
}
