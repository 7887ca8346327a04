//! The whole suite on each server, in each strategy.

use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use std::{process::ExitCode, sync::Arc};
use tenure_conformance::{
    Absent, BoxError, Subject, Subjects, async_trait,
    saboteur::Saboteur,
    servers::{Kind, Server},
};
use tenure_core::Backend;
use tenure_sql::{MySqlBackend, MySqlOptions, PostgresBackend, PostgresOptions, Strategy};
use tokio::sync::{OnceCell, SetError};

/// As many locks as a case holds at once, and a few more: each takes a connection.
const ROW_LOCKS: usize = 90;

/// One strategy on a server.
struct OnServer {
    name: &'static str,
    kind: Kind,
    server: OnceCell<Server>,
}

impl OnServer {
    fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, server: OnceCell::new() }
    }

    /// In which another process finds the server.
    fn variable(&self) -> String {
        format!("TENURE_SQL_TEST_{}", self.name.to_uppercase().replace('-', "_"))
    }

    fn url(&self) -> Result<String, BoxError> {
        match self.server.get() {
            Some(server) => Ok(server.url()),
            None => Ok(std::env::var(self.variable())?),
        }
    }

    async fn connect(&self, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let url = self.url()?;
        Ok(match self.name {
            "postgres" => Arc::new(PostgresBackend::connect(PostgresOptions::new(url).prefix(prefix)).await?),
            "postgres-row-lock" => {
                let options = PostgresOptions::new(url).prefix(prefix).strategy(Strategy::RowLock);
                Arc::new(PostgresBackend::connect(options.connections(ROW_LOCKS)).await?)
            }
            "mariadb" | "mysql" => {
                Arc::new(MySqlBackend::connect(MySqlOptions::new(url).prefix(prefix)).await?)
            }
            "mariadb-row-lock" | "mysql-row-lock" => {
                let options = MySqlOptions::new(url).prefix(prefix).strategy(Strategy::RowLock);
                Arc::new(MySqlBackend::connect(options.connections(ROW_LOCKS)).await?)
            }
            name => return Err(format!("there is no {name}").into()),
        })
    }
}

#[async_trait]
impl Subject for OnServer {
    fn name(&self) -> &str {
        self.name
    }

    async fn start(&self) -> Result<(), Absent> {
        let server = Server::find(self.kind).await.map_err(|error| Absent::because(error.to_string()))?;
        match self.server.set(server) {
            Ok(()) => Ok(()),
            Err(SetError::AlreadyInitializedError(_) | SetError::InitializingError(_)) => {
                Err(Absent::because("it was started already"))
            }
        }
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.connect("").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        self.connect(namespace).await.map(Some)
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![(self.variable(), self.url().ok()?)])
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(self.server.get()?.saboteur())
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        let drop_tables = "DROP TABLE IF EXISTS tenure_locks, tenure_row_locks";
        if self.kind == Kind::Postgres {
            PgConnection::connect(&self.url()?).await?.execute(drop_tables).await?;
        } else {
            MySqlConnection::connect(&self.url()?).await?.execute(drop_tables).await?;
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async {
        Subjects::new()
            .with(OnServer::new("postgres", Kind::Postgres))
            .with(OnServer::new("postgres-row-lock", Kind::Postgres))
            .with(OnServer::new("mariadb", Kind::Mariadb))
            .with(OnServer::new("mariadb-row-lock", Kind::Mariadb))
            .with(OnServer::new("mysql", Kind::Mysql))
            .with(OnServer::new("mysql-row-lock", Kind::Mysql))
    })
}
