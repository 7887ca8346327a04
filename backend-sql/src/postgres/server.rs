//! A PostgreSQL server: how to connect, and how to ask.

use super::{
    errors::{self, Origin},
    options::{Durability, Own},
    values::{Values, beside, written},
};
use crate::{
    lane::{Server, Verdict},
    lease_rows::known_rows::KnownRows,
    patience::{Patience, in_millis},
    server::{Checked, in_time, place, table_in_time, tls::choose_cryptography},
    session_locks::requests::Found,
    silence::SILENCE,
    statement::Statement,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Executor, FromRow, Row, SqlSafeStr,
    postgres::{PgConnectOptions, PgConnection, PgRow, PgSslMode},
};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{ClaimId, StoreError};

/// The server: how to connect to it, and how to send statements.
pub(super) struct Postgres {
    pub(super) options: Checked<Own>,
    /// The table's DDL.
    create: Statement,
    /// A statement that detects a table of another shape.
    shape_check: Statement,
    /// The store's name for messages.
    pub(super) store: String,
    /// The store's name with the table's schema, once it was found in another than `public`.
    placed: OnceLock<String>,
    /// Whether the database's encoding lacks characters, once a connection has been opened.
    lacks_characters: AtomicBool,
    pub(super) connect: PgConnectOptions,
    /// A text that each session has in [`MARK`], unless a pooler has begun it.
    mark: String,
    /// The beginning of each request through a pooler: settings for that request only.
    locally: String,
    pub(super) known: KnownRows,
}

/// A setting that means nothing to the server.
const MARK: &str = "tenure.session";
/// How often the server checks that the client of a waiting statement is still connected.
const STILL_THERE: Duration = Duration::from_secs(1);
/// How many times to try to make the table, once every 10 ms, while others are making it too.
const RACES: u32 = 100;

/// The longest lease that the server can represent, in milliseconds.
pub(super) const LONGEST_LEASE: Duration = Duration::from_millis(i32::MAX as u64);

/// The store in words.
pub(super) fn store(connect: &PgConnectOptions) -> String {
    let place = place(connect.get_host(), connect.get_port(), connect.get_socket());
    format!("postgres://{place}/{}", connect.get_database().unwrap_or_else(|| connect.get_username()))
}

impl Postgres {
    pub(super) fn new(
        options: Checked<Own>,
        connect: PgConnectOptions,
        create: Statement,
        shape_check: Statement,
    ) -> Self {
        let store = store(&connect);
        // Poolers refuse parameters that they do not know, and no statement reads a floating-point number.
        let connect = connect.extra_float_digits(None).disable_statement_logging();
        if matches!(connect.get_ssl_mode(), PgSslMode::VerifyCa) {
            choose_cryptography();
        }
        let durability = match options.own.durability {
            Durability::Full => "",
            Durability::Relaxed => "SET LOCAL synchronous_commit = off; ",
        };
        let locally = format!("{}{durability}", within(options.response_timeout));
        let mark = ClaimId::new().to_string();
        let connect = match options.own.pooler {
            None => connect.options([(MARK, &mark)]),
            Some(_) => connect,
        };
        Self {
            options,
            create,
            shape_check,
            store,
            placed: OnceLock::new(),
            lacks_characters: AtomicBool::new(false),
            connect,
            mark,
            locally,
            known: KnownRows::default(),
        }
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, PgRow>>(&self, row: &PgRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.explain(error))
    }

    /// Rows of ours.
    pub(super) fn rows<T: for<'r> FromRow<'r, PgRow>>(&self, rows: &[PgRow]) -> Result<Vec<T>, StoreError> {
        rows.iter().map(|row| self.row(row)).collect()
    }

    /// The store's name, with the schema that `search_path` leads this user to. Another user may be led to another table.
    pub(super) fn store(&self) -> &str {
        self.placed.get().unwrap_or(&self.store)
    }

    /// Notes in which schema the table was found.
    fn place(&self, schema: &str) {
        let Self { options: Checked { table, .. }, store, placed, .. } = self;
        if schema != "public"
            && placed.set(format!("{store} (schema {schema})")).is_ok()
            && table.schema().is_none()
        {
            tracing::warn!(lock.store = %store, schema, %table, "search_path chose the schema of the locks; write table=SCHEMA.TABLE, because users with another search_path lock elsewhere");
        }
    }

    /// Connects, with a session that other programs do not use, unless the user says that they do.
    pub(super) async fn session(&self) -> Result<PgConnection, StoreError> {
        let mut connection = self.connect.connect().await.map_err(|error| self.explain(error))?;
        self.check_session(&mut connection).await?;
        Ok(connection)
    }

    /// Connects with a session that holds and waits for locks, and prepares it. `make_table` makes the table if it is missing.
    pub(super) async fn session_for_locks(
        &self,
        prepare: &Statement,
        make_table: impl Future<Output = Result<(), StoreError>>,
    ) -> Result<PgConnection, StoreError> {
        let mut connection = self.session().await?;
        self.bound(&mut connection).await.map_err(|error| self.explain(error))?;
        if let Err(error) = sqlx::raw_sql(prepare.sql()).execute(&mut connection).await {
            if !errors::is_missing_table(&error) {
                return Err(self.explain(error));
            }
            make_table.await?;
            let again = sqlx::raw_sql(prepare.sql()).execute(&mut connection).await;
            again.map_err(|error| self.explain(error))?;
        }
        Ok(connection)
    }

    /// The outcome of asking for a lock.
    pub(super) fn found<V>(&self, asked: Result<Option<V>, sqlx::Error>) -> Result<Found<V>, StoreError> {
        match asked {
            Ok(Some(locked)) => Ok(Found::Locked(locked)),
            Ok(None) => Ok(Found::Nothing),
            Err(error) if errors::is_missing_table(&error) => Ok(Found::NoTable),
            Err(error) if errors::ended_the_wait(&error) => Ok(Found::Again),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Fails if a pooler may lend the session to other programs. A setting or a prepared statement there would change
    /// theirs, so this comes first, and only looks. A session of the server has the options of the message that began
    /// it. A pooler begins sessions with messages of its own: it refuses those options, or drops them.
    pub(super) async fn check_session<'c>(
        &self,
        connection: impl Executor<'c, Database = sqlx::Postgres>,
    ) -> Result<(), StoreError> {
        if self.options.own.pooler.is_some() {
            return Ok(());
        }
        let look = format!("SELECT current_setting('{MARK}', true) IS NOT DISTINCT FROM '{}'", self.mark);
        let seen = sqlx::raw_sql(AssertSqlSafe(look)).fetch_one(connection).await;
        if seen.and_then(|row| row.try_get(0)).map_err(|error| self.explain(error))? {
            return Ok(());
        }
        Err(StoreError::failed(errors::pooler(&self.store, &format!("it drops the option {MARK}"))))
    }

    /// Sets up the session, or behind a pooler only looks whether it can be used as it is.
    async fn set_up(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let explain = |error| self.explain(error);
        if self.options.own.pooled() {
            let read_only = self.say(connection, &format!("SELECT 1 {READ_ONLY}")).await.map_err(explain)?;
            let user = self.connect.get_username();
            return if read_only.is_empty() {
                Ok(())
            } else {
                Err(StoreError::failed(errors::read_only_sessions(user)))
            };
        }
        self.bound(connection).await.map_err(explain)?;
        if self.options.own.durability == Durability::Relaxed {
            connection.execute("SET synchronous_commit = off").await.map_err(explain)?;
        }
        Ok(())
    }

    /// Makes the server give up statements that take too long, or whose client is gone, unless its own limits are
    /// shorter. And lets the session write, unless the whole server is read-only.
    pub(super) async fn bound(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Patience { lock, statement } = Patience::of(self.options.response_timeout);
        let bounds = [("lock_timeout", lock), ("statement_timeout", statement)];
        // From version 14 on.
        let check = ("client_connection_check_interval", STILL_THERE);
        // A claim that waits for a row may be silent for longer than a firewall remembers its connection.
        let keepalive = ("tcp_keepalives_idle", SILENCE);
        match set_at_most(connection, bounds.iter().chain([&check, &keepalive])).await {
            // Some systems cannot check for disconnected clients. The time limits work without that.
            Err(error) if errors::verdict(&error) != Verdict::Broken => {
                tracing::debug!(%error, "the server cannot check whether its clients are still connected");
                set_at_most(connection, bounds.iter().chain([&keepalive])).await
            }
            done => done,
        }
    }

    /// Sends a message without parameters, which is carried out as a whole or not at all.
    async fn say(&self, connection: &mut PgConnection, text: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        let locally = if self.options.own.pooled() { &*self.locally } else { "" };
        sqlx::raw_sql(AssertSqlSafe(format!("{locally}{text}"))).fetch_all(connection).await
    }

    /// Whether there is a table. Fails if it has another shape.
    async fn finds_table(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let table = self.options.table.quoted('"');
        let look = format!(
            "SELECT (SELECT nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
             WHERE pg_class.oid = to_regclass('{table}')), \
             current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII')"
        );
        let found = self.say(connection, &look).await?;
        let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
        self.lacks_characters.store(row.try_get(1)?, Ordering::Relaxed);
        let schema: Option<&str> = row.try_get(0)?;
        if let Some(schema) = schema {
            self.place(schema);
            self.check_shape(connection).await?;
        }
        Ok(schema.is_some())
    }

    /// Whether the database stores every character. One in `SQL_ASCII` keeps the bytes of UTF-8 as they are.
    pub(super) fn has_all_characters(&self) -> bool {
        !self.lacks_characters.load(Ordering::Relaxed)
    }

    /// Fails if the database cannot store the prefix.
    async fn check_prefix(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let prefix = &self.options.prefix;
        if prefix.is_ascii() || self.has_all_characters() {
            return Ok(());
        }
        let look = Statement::new("SELECT $1::text".to_owned());
        let looked = self.run(connection, &look, vec![prefix.as_str().into()]).await;
        looked.map(drop).map_err(|error| {
            errors::beyond_encoding(&format!("the prefix {prefix:?}"), error)
                .unwrap_or_else(|error| self.explain(error))
        })
    }

    /// Makes the table. If another client makes it first, waits until that table is on disk.
    async fn make_table(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        // Before version 13, the session's own limit for a statement also applies to this message.
        let create = format!("{}{}", within(self.options.making_timeout()), self.create.text());
        let mut races = 0;
        while let Err(error) = sqlx::raw_sql(AssertSqlSafe(create.clone())).execute(&mut *connection).await {
            // `IF NOT EXISTS` does not keep two clients that create the same table from colliding. But the client that
            // lost that race soon finds the table: a lasting collision has another cause, such as a type of that name.
            races += 1;
            if !errors::is_creation_race(&error) || races > RACES {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.finds_table(connection).await.map(drop)
    }

    /// Detects a table of another shape, with a statement that is needed soon in any case.
    async fn check_shape(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.options.own.pooled() {
            return Ok(());
        }
        connection.prepare(self.shape_check.sql().into_sql_str()).await.map(drop)
    }

    fn origin(&self) -> Origin<'_> {
        let (store, user) = (&self.store, self.connect.get_username());
        let (table, schema) = (self.options.table.to_string(), self.options.schema_command("postgres"));
        Origin { store, user, table, schema }
    }
}

/// The beginning of a message that the server is to give up on before a client that waits this long does.
fn within(longest: Duration) -> String {
    let Patience { lock, statement } = Patience::of(longest);
    let (lock, statement) = (in_millis(lock), in_millis(statement));
    format!("SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}; ")
}

/// Where sessions of this user or in this database begin as read-only. A setting of the whole server is left alone: such
/// a server may be full, or about to be switched off.
const READ_ONLY: &str = "FROM pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on' \
                         AND source IN ('global', 'database', 'user', 'database user', 'client')";

/// Applies these settings to the session, except those that are unknown or already smaller. 0 means for ever.
async fn set_at_most<'b>(
    connection: &mut PgConnection,
    bounds: impl IntoIterator<Item = &'b (&'static str, Duration)>,
) -> Result<(), sqlx::Error> {
    let bounds = bounds.into_iter().map(|(name, longest)| format!("('{name}', {})", in_millis(*longest)));
    let set = format!(
        "SELECT set_config(name, 'off', false) {READ_ONLY};
         SELECT set_config(name, longest || 'ms', false) FROM (VALUES {}) AS bounds (name, longest)
         WHERE current_setting(name, true)::interval NOT BETWEEN interval '1 ms' AND longest * interval '1 ms'",
        bounds.collect::<Vec<_>>().join(", ")
    );
    sqlx::raw_sql(AssertSqlSafe(set)).execute(connection).await.map(drop)
}

impl Server for Postgres {
    type Connection = PgConnection;
    type Arguments = Values;
    type Answer = Vec<PgRow>;

    fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    fn response_timeout(&self) -> Duration {
        self.options.response_timeout
    }

    async fn open(&self) -> Result<PgConnection, StoreError> {
        self.known.forget();
        let Checked { table, connect_timeout, create_table, .. } = &self.options;
        let connecting = async {
            let mut connection = self.session().await?;
            self.set_up(&mut connection).await?;
            let found = self.finds_table(&mut connection).await.map_err(|error| self.explain(error))?;
            self.check_prefix(&mut connection).await?;
            Ok((connection, found))
        };
        let (mut connection, found) = in_time(*connect_timeout, connecting).await?;
        if !found {
            if !create_table {
                return Err(StoreError::failed(errors::missing_table(&self.origin())));
            }
            let making =
                async { self.make_table(&mut connection).await.map_err(|error| self.explain(error)) };
            table_in_time(self.options.making_timeout(), table, making).await?;
        }
        Ok(connection)
    }

    async fn ping(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::Connection::ping(connection).await
    }

    async fn close(&self, connection: PgConnection) -> Result<(), sqlx::Error> {
        sqlx::Connection::close(connection).await
    }

    /// Behind a pooler, sends one message, which is one transaction: all of it goes to one server process, and a client
    /// that vanishes leaves none open.
    async fn run(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: Values,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.options.own.pooled() {
            return self.say(connection, &written(statement.text(), &arguments)).await;
        }
        sqlx::query_with(statement.sql(), beside(arguments)?).fetch_all(connection).await
    }

    async fn run_together(
        &self,
        connection: &mut PgConnection,
        many: &Statement,
        objects: String,
    ) -> Result<Vec<(String, Vec<PgRow>)>, sqlx::Error> {
        let arguments = vec![self.options.prefix.as_str().into(), objects.into()];
        let rows = self.run(connection, many, arguments).await?;
        // A row without a name that can be read is left to the statement for one.
        Ok(rows.into_iter().filter_map(|row| Some((row.try_get("name").ok()?, vec![row]))).collect())
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        errors::verdict(error)
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        errors::explain(&self.origin(), error)
    }
}

/// Parameters of a statement, in order.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        <$crate::postgres::values::Values>::from([$($value.into()),*])
    };
}
pub(super) use arguments;

/// These parameters, and more.
macro_rules! with {
    ($arguments:expr; $($value:expr),* $(,)?) => {{
        let mut arguments = $arguments;
        arguments.extend([$($crate::postgres::values::Value::from($value)),*]);
        arguments
    }};
}
pub(super) use with;
