//! Locks and fences inside the user's own transactions.

use super::*;
use tenure_core::{Error, Token};
use tenure_sql::{Fence, FenceError, Strategy};

async fn open(table: &Table) -> PostgresBackend {
    PostgresBackend::connect(table.options().strategy(Strategy::RowLock)).await.unwrap()
}

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends() {
    let table = Table::new().await;
    let backend = open(&table).await;
    let (mut one, mut other) = (table.raw().await, table.raw().await);
    for commits in [true, false] {
        let mut transaction = one.begin().await.unwrap();
        backend.in_transaction(&mut transaction, "a").await.unwrap();
        // Once more is as good as once.
        backend.in_transaction(&mut transaction, "a").await.unwrap();
        let mut second = other.begin().await.unwrap();
        assert!(!backend.try_in_transaction(&mut second, "a").await.unwrap());
        assert!(backend.try_in_transaction(&mut second, "b").await.unwrap());
        busy(&backend, &claim("a")).await;
        let waiter = backend.clone();
        let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let grant = acquiring.await.unwrap().unwrap();
        assert!(!backend.try_in_transaction(&mut second, "a").await.unwrap(), "a holder was not excluded");
        assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
        backend.in_transaction(&mut second, "a").await.unwrap();
        second.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn what_ends_the_wait_is_said() {
    let table = Table::new().await;
    let backend = open(&table).await;
    let grant = granted(&backend, &claim("a")).await;
    let mut connection = table.raw().await;
    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("SET LOCAL lock_timeout = 50").await.unwrap();
    let error = backend.in_transaction(&mut transaction, "a").await.unwrap_err();
    assert!(error.is_retryable() && chain(&error).contains("begin again"), "{}", chain(&error));
    transaction.rollback().await.unwrap();
    backend.release(&grant).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let error = backend.in_transaction(&mut transaction, "").await.unwrap_err();
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
    let leases = PostgresBackend::connect(Table::new().await.options()).await.unwrap();
    let error = leases.in_transaction(&mut transaction, "a").await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "strategy", .. }), "{error:?}");
}

#[tokio::test]
async fn a_fence_refuses_the_overtaken() {
    let table = Table::new().await;
    table
        .execute("CREATE TABLE {t} (id text PRIMARY KEY, value bigint, fence bigint NOT NULL DEFAULT 0)")
        .await;
    table.execute("INSERT INTO {t} VALUES ('x', 1)").await;
    let fence = Fence::new(&table.name, "id", "fence").unwrap();
    let token = |number| Token::new(number).unwrap();
    let (mut one, mut other) = (table.raw().await, table.raw().await);
    let mut later = one.begin().await.unwrap();
    fence.raise_in_postgres(&mut later, "x", token(8)).await.unwrap();
    fence.raise_in_postgres(&mut later, "x", token(8)).await.unwrap();
    later.execute(table.sql("UPDATE {t} SET value = 2")).await.unwrap();
    // The overtaken one waits until it is known which of them was later.
    let (overtaken, earlier) = (fence.clone(), token(7));
    let refused = tokio::spawn(async move {
        let mut transaction = other.begin().await.unwrap();
        overtaken.raise_in_postgres(&mut transaction, "x", earlier).await
    });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{t}%fence%'";
    until(async || table.number(waits).await == 1).await;
    later.commit().await.unwrap();
    let error = refused.await.unwrap().unwrap_err();
    assert!(matches!(&error, FenceError::Refused { token, .. } if token.get() == 7), "{error:?}");
    assert!(error.to_string().contains("later token"), "{error}");
    assert_eq!(table.number("SELECT value * 10 + fence FROM {t}").await, 28);
    let missing = fence.raise_in_postgres(&mut table.raw().await, "y", token(9)).await;
    assert!(matches!(missing, Err(FenceError::Refused { .. })), "{missing:?}");
    assert!(Fence::new("orders; --", "id", "fence").is_err());
}
