//! The databases without tenure: one connection, and a lock of the server's own.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};

/// One connection.
pub(crate) enum Bare {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Bare {
    pub(crate) async fn connect(url: &str) -> Self {
        if url.starts_with("postgres") {
            Self::Postgres(PgConnection::connect(url).await.expect("a server"))
        } else {
            Self::MySql(MySqlConnection::connect(url).await.expect("a server"))
        }
    }

    pub(crate) async fn execute(&mut self, sql: &'static str) {
        match self {
            Self::Postgres(bare) => drop(bare.execute(sql).await.expect(sql)),
            Self::MySql(bare) => drop(bare.execute(sql).await.expect(sql)),
        }
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(bare) => sqlx::query_scalar(sql).fetch_one(bare).await.expect("a number"),
            Self::MySql(bare) => sqlx::query_scalar(sql).fetch_one(bare).await.expect("a number"),
        }
    }

    /// How many statements clients have sent.
    pub(crate) async fn questions(&mut self) -> i64 {
        let Self::MySql(bare) = self else { panic!("not counted so") };
        let row = bare.fetch_one("SHOW GLOBAL STATUS LIKE 'Questions'").await.expect("a row");
        row.get::<String, _>(1).parse().expect("a number")
    }

    /// Waits in the server for a lock of its own.
    pub(crate) async fn lock(&mut self) {
        match self {
            Self::Postgres(bare) => {
                sqlx::query("SELECT pg_advisory_lock($1)").bind(1_i64).fetch_all(bare).await.map(drop)
            }
            Self::MySql(bare) => {
                sqlx::query("SELECT GET_LOCK(?, 60)").bind("bare").fetch_all(bare).await.map(drop)
            }
        }
        .expect("it comes free");
    }

    pub(crate) async fn unlock(&mut self) {
        match self {
            Self::Postgres(bare) => {
                sqlx::query("SELECT pg_advisory_unlock($1)").bind(1_i64).fetch_all(bare).await.map(drop)
            }
            Self::MySql(bare) => {
                sqlx::query("SELECT RELEASE_LOCK(?)").bind("bare").fetch_all(bare).await.map(drop)
            }
        }
        .expect("it was held");
    }
}
