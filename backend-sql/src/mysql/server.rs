//! A MySQL or MariaDB server: how to connect, and how to ask.

use super::{
    cluster,
    errors::{self, Origin},
    options::Own,
};
use crate::{
    lane::{Server, Verdict},
    patience::{Patience, in_seconds},
    server::{Checked, in_time, place, table_in_time, tls::choose_cryptography},
    session_locks::rows::hexadecimal,
    statement::Statement,
};
use futures_util::TryStreamExt;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Either, Executor, FromRow, Row, SqlSafeStr,
    mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode},
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tenure_core::StoreError;

/// The server: how to connect to it, and how to send statements.
pub(super) struct MySql {
    pub(super) options: Checked<Own>,
    /// The table's DDL.
    create: Statement,
    /// A statement that detects a table of another shape.
    shape_check: Statement,
    /// Whether this client has seen the table.
    seen: AtomicBool,
    /// The store's name for messages.
    pub(super) store: String,
    pub(super) connect: MySqlConnectOptions,
}

/// However the server's sessions begin, each sees only what was committed: a change that is undone leaves the row with
/// its old version, so a client that saw the new one must not write by it. `REPEATABLE READ` is these servers' own default,
/// and works with every kind of binary log. `READ WRITE`, because a session may begin as read-only, to protect people
/// from their own statements; a server that is read-only as a whole still refuses writes. Each statement commits by
/// itself, a statement about several rows is carried out (MariaDB takes it for one that has forgotten its key), and all
/// rows are returned.
const PLAIN: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE; \
                     SET SESSION autocommit = 1, SESSION sql_safe_updates = 0, \
                     SESSION sql_select_limit = 18446744073709551615";

/// Restores the time limits that the server had before the table was made.
const AS_BEFORE: &str = "SET SESSION innodb_lock_wait_timeout = @tenure_rows, \
                         SESSION lock_wait_timeout = @tenure_table \
                         /*M! , SESSION max_statement_time = @tenure_statement */";

/// The result of a statement.
#[derive(Default)]
pub(super) struct Done {
    pub(super) rows: Vec<MySqlRow>,
    /// How many rows a changing statement found, whether or not it changed them.
    pub(super) affected: u64,
    pub(super) last_insert_id: u64,
}

/// The store in words.
pub(super) fn store(connect: &MySqlConnectOptions) -> String {
    let place = place(connect.get_host(), connect.get_port(), connect.get_socket());
    format!("mysql://{place}/{}", connect.get_database().unwrap_or_default())
}

impl MySql {
    pub(super) fn new(
        options: Checked<Own>,
        connect: MySqlConnectOptions,
        create: Statement,
        shape_check: Statement,
    ) -> Self {
        let store = store(&connect);
        let connect = connect.disable_statement_logging();
        if matches!(connect.get_ssl_mode(), MySqlSslMode::VerifyCa) {
            choose_cryptography();
        }
        Self { options, create, shape_check, seen: AtomicBool::new(false), store, connect }
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, MySqlRow>>(&self, row: &MySqlRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.explain(error))
    }

    /// Rows of ours.
    pub(super) fn rows<T: for<'r> FromRow<'r, MySqlRow>>(&self, done: &Done) -> Result<Vec<T>, StoreError> {
        done.rows.iter().map(|row| self.row(row)).collect()
    }

    /// Connects, and sets up the session.
    async fn connected(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        // No commit begins another transaction. The numbers of a batch's rows must fit into one text. The upsert needs
        // its assignments to be made one after another, which a mode of MariaDB changes.
        let Patience { lock, statement } = Patience::of(self.options.response_timeout);
        let (lock, seconds, millis) =
            (in_seconds(lock), statement.as_secs_f64(), statement.as_millis().max(1));
        // Makes the server give up statements that take too long, unless its own limit is shorter. MySQL has no limit
        // for a whole statement that writes. 0 is no limit.
        let settings = format!(
            "{PLAIN}, SESSION completion_type = 0, SESSION group_concat_max_len = 1024, \
             SESSION {}, {}, \
             SESSION sql_mode = REPLACE(@@sql_mode, 'SIMULTANEOUS_ASSIGNMENT', '') /*M! , SESSION max_statement_time = \
             IF(@@max_statement_time > 0, LEAST(@@max_statement_time, {seconds:.3}), {seconds:.3}) */ \
             /*!80000 , SESSION max_execution_time = CAST(IF(@@max_execution_time > 0, \
             LEAST(@@max_execution_time, {millis}), {millis}) AS SIGNED) */",
            at_most("innodb_lock_wait_timeout", lock),
            self.table_bound()
        );
        connection.execute(AssertSqlSafe(settings)).await?;
        Ok(connection)
    }

    /// Refuses row locks in a cluster that accepts writes on several nodes: two nodes would each let a holder in.
    pub(super) async fn refuse_several_writers(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<(), StoreError> {
        match cluster::with_several_writers(connection).await.map_err(|error| self.explain(error))? {
            Some(cluster) => Err(StoreError::failed(errors::several_writers(cluster))),
            None => Ok(()),
        }
    }

    /// Looks for the table with a statement that detects one of another shape, and that is needed soon in any case.
    async fn look(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        connection.prepare(self.shape_check.sql().into_sql_str()).await?;
        self.seen.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether another client may be making the table: it cannot be read until it is on disk.
    fn may_be_new(&self, error: &sqlx::Error) -> bool {
        self.options.create_table && !self.seen.load(Ordering::Relaxed) && errors::ended_the_wait(error)
    }

    /// Makes the table, or waits until another client has made it. The server gets more time for this.
    async fn make_table(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let Patience { lock, statement } = Patience::of(self.options.making_timeout());
        let (lock, seconds) = (in_seconds(lock), statement.as_secs_f64());
        let patient = format!(
            "SET @tenure_rows = @@innodb_lock_wait_timeout, @tenure_table = @@lock_wait_timeout, \
             SESSION innodb_lock_wait_timeout = {lock}, SESSION lock_wait_timeout = {lock} \
             /*M! , @tenure_statement = @@max_statement_time, SESSION max_statement_time = {seconds:.3} */"
        );
        connection.execute(AssertSqlSafe(patient)).await?;
        if let Err(error) = self.look(connection).await {
            if !errors::is_missing_table(&error) {
                return Err(error);
            }
            connection.execute(self.create.sql()).await?;
        }
        connection.execute(AS_BEFORE).await?;
        self.look(connection).await
    }

    /// A connection for bells: its statements may take as long as they like, except to wait for a table. Each sees the
    /// others' commits, and keeps no table from being altered.
    pub(super) async fn open_bare(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        // The last two are MariaDB's setting, and MySQL's.
        let settings = format!(
            "{PLAIN}, {}, \
             SESSION /*M! max_statement_time = 0 */ /*!80000 max_execution_time = 0 */",
            self.table_bound()
        );
        connection.execute(AssertSqlSafe(settings)).await?;
        Ok(connection)
    }

    /// Calls the server's [`explain`](Server::explain).
    pub(super) fn said(&self, error: sqlx::Error) -> StoreError {
        self.explain(error)
    }

    /// The setting that bounds waits for a table, or, in MySQL's words, for its metadata.
    pub(super) fn table_bound(&self) -> String {
        let patience = in_seconds(Patience::of(self.options.response_timeout).lock);
        format!("SESSION {}", at_most("lock_wait_timeout", patience))
    }

    fn origin(&self) -> Origin<'_> {
        let (store, user) = (&self.store, self.connect.get_username());
        let (table, schema) = (self.options.table.to_string(), self.options.schema_command("mysql"));
        Origin { store, user, table, schema }
    }
}

/// Whether `JSON_TABLE` returns strings unquoted. [Some versions of MariaDB do
/// not](https://jira.mariadb.org/browse/MDEV-27412), and would write unreadable records.
async fn unquotes(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let quote = "CHAR(34 USING utf8mb4)";
    let ask = format!(
        "SELECT told.it = {quote} FROM JSON_TABLE(JSON_ARRAY({quote}), '$[*]' COLUMNS (it VARCHAR(9) PATH '$')) AS told"
    );
    let told = sqlx::raw_sql(AssertSqlSafe(ask)).fetch_all(connection).await?;
    told.first().map_or(Ok(false), |row| row.try_get(0))
}

/// Limits an integer setting to at most this number. (In MySQL, the smaller of two integers is a decimal.)
fn at_most(setting: &str, number: u64) -> String {
    format!("{setting} = CAST(LEAST(@@{setting}, {number}) AS SIGNED)")
}

impl Server for MySql {
    type Connection = MySqlConnection;
    type Arguments = MySqlArguments;
    type Answer = Done;

    fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    fn response_timeout(&self) -> Duration {
        self.options.response_timeout
    }

    async fn open(&self) -> Result<MySqlConnection, StoreError> {
        let Checked { table, connect_timeout, create_table, .. } = &self.options;
        let connecting = async {
            let mut connection = self.connected().await.map_err(|error| self.explain(error))?;
            if self.options.strategy.ends_with_connections() {
                self.refuse_several_writers(&mut connection).await?;
            } else if !unquotes(&mut connection).await.map_err(|error| self.explain(error))? {
                return Err(StoreError::failed(errors::QUOTES_JSON));
            }
            match self.look(&mut connection).await {
                Ok(()) => Ok((connection, true)),
                Err(error) if errors::is_missing_table(&error) || self.may_be_new(&error) => {
                    Ok((connection, false))
                }
                Err(error) => Err(self.explain(error)),
            }
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

    async fn ping(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        sqlx::Connection::ping(connection).await
    }

    async fn close(&self, connection: MySqlConnection) -> Result<(), sqlx::Error> {
        sqlx::Connection::close(connection).await
    }

    async fn run(
        &self,
        connection: &mut MySqlConnection,
        statement: &Statement,
        arguments: MySqlArguments,
    ) -> Result<Done, sqlx::Error> {
        let mut answers = connection.fetch_many(sqlx::query_with(statement.sql(), arguments));
        let mut done = Done::default();
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(end) => {
                    (done.affected, done.last_insert_id) = (end.rows_affected(), end.last_insert_id());
                }
                Either::Right(row) => done.rows.push(row),
            }
        }
        Ok(done)
    }

    /// Sends one message, so texts are written into it.
    async fn run_together(
        &self,
        connection: &mut MySqlConnection,
        many: &Statement,
        objects: String,
    ) -> Result<Vec<(String, Done)>, sqlx::Error> {
        let (prefix, objects) = (hexadecimal(&self.options.prefix), hexadecimal(&objects));
        let asked =
            format!("@tenure_prefix = X'{prefix}', @tenure_asked = CONVERT(X'{objects}' USING utf8mb4)");
        let message = AssertSqlSafe(format!("SET {asked}; {}", many.text()));
        match sqlx::raw_sql(message).fetch_all(&mut *connection).await {
            Ok(rows) => rows.iter().map(told).collect(),
            Err(error) => {
                if errors::verdict(&error) != Verdict::Broken {
                    roll_back(connection).await?;
                }
                Err(error)
            }
        }
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        errors::verdict(error)
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        errors::explain(&self.origin(), error)
    }
}

/// A row of a batch's answer, as the answer of a statement for one.
fn told(row: &MySqlRow) -> Result<(String, Done), sqlx::Error> {
    let (name, last_insert_id) = <(String, u64)>::from_row(row)?;
    Ok((name, Done { affected: 1, last_insert_id, ..Done::default() }))
}

/// Ends the transaction that an error has left open. If that fails, the connection must not be used again: an error
/// without a number says so.
async fn roll_back(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let rolled_back = connection.execute("ROLLBACK").await.map(drop);
    rolled_back.map_err(|error| sqlx::Error::Protocol(format!("no rollback: {error}")))
}

/// Parameters of a statement, in order.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        $crate::statement::arguments![sqlx::mysql::MySqlArguments; $($value),*]
    };
}
pub(super) use arguments;
