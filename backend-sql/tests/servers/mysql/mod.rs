//! MariaDB, and with it what MySQL does alike.

mod errors;
mod leases;
mod row_locks;
mod transactions;

use super::*;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use tenure_sql::{MySqlBackend, MySqlOptions};

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// A table of its own on the server that all share.
struct Table {
    url: String,
    name: String,
}

impl Table {
    async fn new() -> Self {
        Self { url: server(Kind::Mariadb, &SERVER).await.url(), name: fresh_table() }
    }

    fn options(&self) -> MySqlOptions {
        MySqlOptions::new(&self.url).table(&self.name)
    }

    async fn open(&self) -> MySqlBackend {
        MySqlBackend::connect(self.options()).await.unwrap()
    }

    /// A connection beside the locks' own.
    async fn raw(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url).await.unwrap()
    }

    fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{t}", &self.name))
    }

    async fn execute(&self, sql: &str) {
        self.raw().await.execute(self.sql(sql)).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(self.sql(sql)).fetch_one(&mut self.raw().await).await.unwrap()
    }
}
