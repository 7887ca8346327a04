//! A PostgreSQL server: how to connect, and how to ask.

use super::{
    errors::{self, Place},
    options::{Checked, Durability},
};
use crate::{
    lane::{Server, Verdict},
    statement::Statement,
};
use sqlx::{
    ConnectOptions, Executor, FromRow, SqlSafeStr,
    postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow},
};
use std::time::Duration;
use tenure_core::{Moment, StoreError};

/// The server: how to connect to it, and what to ask of it.
pub(super) struct Postgres {
    pub(super) options: Checked,
    /// The table's DDL.
    create: Statement,
    /// A statement that tells a table of another shape.
    probe: Statement,
    /// The store in words.
    pub(super) store: String,
    pub(super) connect: PgConnectOptions,
}

/// The store in words.
pub(super) fn store(connect: &PgConnectOptions) -> String {
    let (host, port) = (connect.get_host(), connect.get_port());
    let place = match connect.get_socket() {
        Some(socket) => socket.display().to_string(),
        None if host.contains(':') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    };
    let database = connect.get_database().unwrap_or_else(|| connect.get_username());
    format!("postgres://{place}/{database}")
}

impl Postgres {
    pub(super) fn new(
        options: Checked,
        connect: PgConnectOptions,
        create: Statement,
        probe: Statement,
    ) -> Self {
        let store = store(&connect);
        // Poolers refuse parameters that they do not know, and no statement reads a floating-point number.
        let connect = connect.extra_float_digits(None).disable_statement_logging();
        Self { options, create, probe, store, connect }
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, PgRow>>(&self, row: &PgRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.explain(error))
    }

    /// Rows of ours.
    pub(super) fn rows<T: for<'r> FromRow<'r, PgRow>>(&self, rows: &[PgRow]) -> Result<Vec<T>, StoreError> {
        rows.iter().map(|row| self.row(row)).collect()
    }

    async fn open_once(&self) -> Result<PgConnection, Refusal> {
        let mut connection = self.connect.connect().await?;
        if self.options.durability == Durability::Relaxed && !self.options.pooler {
            connection.execute("SET synchronous_commit = off").await?;
        }
        if self.options.pooler {
            // Otherwise a statement may be parsed in one server process and carried out in another.
            connection.execute("BEGIN").await?;
            self.ensure_table(&mut connection).await?;
            connection.execute("COMMIT").await?;
        } else {
            self.ensure_table(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn ensure_table(&self, connection: &mut PgConnection) -> Result<(), Refusal> {
        let table = self.options.table.quoted('"');
        let asked = sqlx::query_scalar("SELECT to_regclass($1::text) IS NOT NULL").bind(table);
        let asked = asked.persistent(false);
        let there: bool = asked.fetch_one(&mut *connection).await?;
        if !there {
            if !self.options.create_table {
                let missing = errors::missing_table(&self.options.table.to_string());
                return Err(Refusal::Said(StoreError::failed(missing)));
            }
            sqlx::raw_sql(self.create.sql()).execute(&mut *connection).await?;
        }
        if !self.options.pooler {
            // Tells a table of another shape, and is needed soon in any case.
            connection.prepare(self.probe.sql().into_sql_str()).await?;
        }
        Ok(())
    }

    /// For poolers: the statement in a transaction, because only then are all of its messages for one server process.
    async fn run_in_transaction(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let begin = match self.options.durability {
            Durability::Full => "BEGIN",
            Durability::Relaxed => "BEGIN; SET LOCAL synchronous_commit = off",
        };
        connection.execute(begin).await?;
        let asked = sqlx::query_with(statement.sql(), arguments).persistent(false);
        match asked.fetch_all(&mut *connection).await {
            Ok(rows) => {
                connection.execute("COMMIT").await?;
                Ok(rows)
            }
            Err(error) => {
                if verdict_keeps(&error) {
                    connection.execute("ROLLBACK").await?;
                }
                Err(error)
            }
        }
    }

    fn place(&self) -> Place<'_> {
        let (store, user) = (&self.store, self.connect.get_username());
        Place { store, user, table: self.options.table.to_string() }
    }
}

fn verdict_keeps(error: &sqlx::Error) -> bool {
    errors::verdict(error) != Verdict::Broken
}

enum Refusal {
    Postgres(sqlx::Error),
    Said(StoreError),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Postgres(error)
    }
}

impl Server for Postgres {
    type Connection = PgConnection;
    type Arguments = PgArguments;
    type Answer = Vec<PgRow>;

    fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    fn response_timeout(&self) -> Duration {
        self.options.response_timeout
    }

    async fn open(&self) -> Result<PgConnection, StoreError> {
        let longest = self.options.connect_timeout;
        let give_up = Moment::now() + longest;
        loop {
            let Ok(opened) = tokio::time::timeout(give_up.left(), self.open_once()).await else {
                let what = format!("no connection to {} within {longest:?}", self.store);
                return Err(StoreError::unavailable(what));
            };
            match opened {
                Ok(connection) => return Ok(connection),
                // `IF NOT EXISTS` does not keep two that create the same table from colliding.
                Err(Refusal::Postgres(error))
                    if errors::is_creation_race(&error) && !give_up.has_passed() =>
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(Refusal::Postgres(error)) => return Err(self.explain(error)),
                Err(Refusal::Said(error)) => return Err(error),
            }
        }
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.options.pooler {
            return self.run_in_transaction(connection, statement, arguments).await;
        }
        sqlx::query_with(statement.sql(), arguments).fetch_all(connection).await
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        errors::verdict(error)
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        errors::explain(&self.place(), error)
    }
}

/// Parameters of a statement, in order.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        $crate::postgres::server::with![sqlx::postgres::PgArguments::default(); $($value),*]
    };
}
pub(super) use arguments;

/// These parameters, and more.
macro_rules! with {
    ($arguments:expr; $($value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "a statement may have no parameters")]
        let mut arguments = $arguments;
        $(
            sqlx::Arguments::add(&mut arguments, $value)
                .map_err(|error| StoreError::failed(error.to_string()))?;
        )*
        arguments
    }};
}
pub(super) use with;
