//! The databases' clients: one statement a request, in one round trip.

use crate::client::Client;
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::io;

macro_rules! client {
    ($name:ident, $connection:ident, $row:ident) => {
        pub(crate) struct $name($connection);

        impl $name {
            pub(crate) async fn connect(url: &str) -> io::Result<Self> {
                let mut connection = $connection::connect(url).await.map_err(io::Error::other)?;
                // A server that is only read from has the table already, or no value.
                let found = connection.execute("SELECT value FROM tenure_test").await;
                if found.is_err() {
                    let create =
                        "CREATE TABLE IF NOT EXISTS tenure_test (id INT PRIMARY KEY, value VARCHAR(99))";
                    connection.execute(create).await.map_err(io::Error::other)?;
                    let insert = "INSERT INTO tenure_test VALUES (1, NULL)";
                    connection.execute(insert).await.map_err(io::Error::other)?;
                }
                Ok(Self(connection))
            }
        }

        #[async_trait]
        impl Client for $name {
            async fn put(&mut self, value: &str) -> io::Result<()> {
                let update = AssertSqlSafe(format!("UPDATE tenure_test SET value = '{value}'"));
                sqlx::raw_sql(update).execute(&mut self.0).await.map(drop).map_err(io::Error::other)
            }

            async fn get(&mut self) -> io::Result<Option<String>> {
                let select = sqlx::raw_sql("SELECT value FROM tenure_test");
                let row: $row = select.fetch_one(&mut self.0).await.map_err(io::Error::other)?;
                row.try_get(0).map_err(io::Error::other)
            }

            async fn execute(&mut self, statement: &'static str) -> io::Result<()> {
                sqlx::raw_sql(statement).execute(&mut self.0).await.map(drop).map_err(io::Error::other)
            }
        }
    };
}

client!(Postgres, PgConnection, PgRow);
client!(Mysql, MySqlConnection, MySqlRow);
