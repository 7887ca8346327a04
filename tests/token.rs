//! Tokens in the tables of a user's own database.

#![cfg(all(feature = "sqlite", feature = "mysql", feature = "postgres"))]

use sqlx::{Database, Decode, Encode, MySql, Postgres, Sqlite, SqlitePool, Type, sqlite::SqlitePoolOptions};
use tenure::Token;

async fn orders() -> SqlitePool {
    // Each connection to memory is a database of its own.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence INTEGER NOT NULL DEFAULT 0)";
    sqlx::query(table).execute(&pool).await.unwrap();
    sqlx::query("INSERT INTO orders (id) VALUES (42)").execute(&pool).await.unwrap();
    pool
}

/// As in `docs/sql.md`. Returns whether the holder of this token was let in.
async fn ship(pool: &SqlitePool, token: Token) -> bool {
    let done = sqlx::query("UPDATE orders SET state = 'shipped', fence = $1 WHERE id = $2 AND fence <= $1")
        .bind(token)
        .bind(42_i64)
        .execute(pool)
        .await
        .unwrap();
    done.rows_affected() == 1
}

#[tokio::test]
async fn token_is_bound_and_read_unchanged() {
    let pool = orders().await;
    let [earlier, later, last] = [7, 9, Token::MAX.get()].map(|number| Token::new(number).unwrap());
    assert!(ship(&pool, later).await);
    assert!(!ship(&pool, earlier).await, "the stale holder was let in");
    assert!(ship(&pool, last).await);
    let read: Token = sqlx::query_scalar("SELECT fence FROM orders").fetch_one(&pool).await.unwrap();
    assert_eq!(read, last);
}

#[tokio::test]
async fn invalid_token_is_an_error() {
    let pool = orders().await;
    let read: Result<Token, _> = sqlx::query_scalar("SELECT fence FROM orders").fetch_one(&pool).await;
    let error = read.unwrap_err().to_string();
    assert!(error.contains("0 is not a fencing token"), "{error}");
    let none: Option<Token> = sqlx::query_scalar("SELECT NULL").fetch_one(&pool).await.unwrap();
    assert_eq!(none, None);
}

#[test]
fn token_fits_each_database() {
    fn takes<Db: Database>()
    where
        Token: Type<Db> + for<'q> Encode<'q, Db> + for<'r> Decode<'r, Db>,
        i64: Type<Db>,
    {
        assert_eq!(<Token as Type<Db>>::type_info(), <i64 as Type<Db>>::type_info());
    }
    takes::<Sqlite>();
    takes::<Postgres>();
    takes::<MySql>();
}
