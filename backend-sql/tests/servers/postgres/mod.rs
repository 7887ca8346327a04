//! PostgreSQL.

mod errors;
mod leases;
mod pooler;
mod row_locks;
mod transactions;
mod waiting;

use super::*;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tenure_sql::{PostgresBackend, PostgresOptions};

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// A table of its own on the server that all share.
struct Table {
    url: String,
    name: String,
}

impl Table {
    async fn new() -> Self {
        Self { url: server(Kind::Postgres, &SERVER).await.url(), name: fresh_table() }
    }

    fn options(&self) -> PostgresOptions {
        PostgresOptions::new(&self.url).table(&self.name)
    }

    async fn open(&self) -> PostgresBackend {
        PostgresBackend::connect(self.options()).await.unwrap()
    }

    /// A connection beside the locks' own.
    async fn raw(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
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

    /// A user who may log in and no more, and the URL with which it does.
    async fn user(&self, settings: &str) -> (String, String) {
        let user = format!("u_{}", self.name);
        self.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD 'hunter2' {settings}")).await;
        let url = self.url.split_once('@').unwrap().1;
        (format!("postgres://{user}:hunter2@{url}"), user)
    }
}
