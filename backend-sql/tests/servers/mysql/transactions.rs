//! Locks and fences inside the user's own transactions.

use super::*;
use tenure_core::Token;
use tenure_sql::{Fence, FenceError, Strategy};

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends() {
    let table = Table::new().await;
    let backend = MySqlBackend::connect(table.options().strategy(Strategy::RowLock)).await.unwrap();
    let (mut one, mut other) = (table.raw().await, table.raw().await);
    for commits in [true, false] {
        let mut transaction = one.begin().await.unwrap();
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
async fn a_fence_refuses_the_overtaken() {
    let table = Table::new().await;
    table.execute("CREATE TABLE {t} (id INT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0)").await;
    table.execute("INSERT INTO {t} VALUES (1, 0)").await;
    let fence = Fence::new(&table.name, "id", "fence").unwrap();
    let mut connection = table.raw().await;
    for (number, raised) in [(8, true), (8, true), (7, false), (9, true)] {
        let outcome = fence.raise_in_mysql(&mut connection, 1, Token::new(number).unwrap()).await;
        match outcome {
            Ok(()) => assert!(raised, "{number}"),
            Err(FenceError::Refused { token, .. }) => assert!(!raised && token.get() == number, "{number}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(table.number("SELECT fence FROM {t}").await, 9);
}
