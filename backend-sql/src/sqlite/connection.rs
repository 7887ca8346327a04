//! One connection to the file, opened when it is needed.

use super::{
    errors::{self, Place},
    options::Checked,
    statements::Statements,
};
use crate::statement::Statement;
use sqlx::{
    ConnectOptions, Connection as _, FromRow, Row,
    query::Query,
    sqlite::{Sqlite, SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow, SqliteSynchronous},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Moment, StoreError};
use tokio::sync::Mutex;

/// How many rows the driver's thread may be ahead of us: more than any statement returns while it holds the write
/// lock, or a task that is not polled would keep the lock from everybody.
const ROWS_AHEAD: usize = 1024;

/// The file: how to open it, and what to ask of it.
pub(super) struct File {
    pub(super) options: Checked,
    pub(super) statements: Statements,
    connect: SqliteConnectOptions,
}

impl File {
    pub(super) fn new(options: Checked, base: SqliteConnectOptions) -> Self {
        // NORMAL: in write-ahead mode a commit then waits for no disk, and a crash of a program loses nothing. A
        // power failure may undo the last commits, but it also ends every process that held a lock by them, since
        // all of them run on this machine; and tokens rise all the same, because they follow the clock.
        let connect = base
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(options.busy_timeout)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        Self { statements: Statements::new(&options.table), options, connect }
    }

    pub(super) fn place(&self) -> Place<'_> {
        let Checked { path, table, busy_timeout, .. } = &self.options;
        Place { path, table: table.as_str(), busy_timeout: *busy_timeout }
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        errors::explain(self.place(), error)
    }

    /// Opens a connection, and makes sure of the journal and the table.
    async fn open(&self) -> Result<Open, StoreError> {
        if self.options.create_directory
            && let Some(directory) = self.options.path.parent()
        {
            std::fs::create_dir_all(directory).map_err(|error| {
                StoreError::failed(format!(
                    "the directory {} cannot be created: {error}",
                    directory.display()
                ))
            })?;
        }
        if let Some(why) = errors::no_file(&self.options.path) {
            return Err(StoreError::failed(why));
        }
        let give_up = Moment::now() + self.options.busy_timeout;
        loop {
            // Two that turn a new file's write-ahead log on at the same time are told at once that it is busy: SQLite
            // does not wait there.
            match self.open_once().await {
                Err(Refusal::Sqlite(error)) if errors::is_busy(&error) && !give_up.has_passed() => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(Refusal::Sqlite(error)) => return Err(self.explain(error)),
                Err(Refusal::Said(error)) => return Err(error),
                Ok(open) => return Ok(open),
            }
        }
    }

    async fn open_once(&self) -> Result<Open, Refusal> {
        let mut connection = self.connect.connect().await?;
        let identity = Identity::of(self);
        let mode: Vec<String> =
            sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_all(&mut connection).await?;
        if mode != ["wal"] {
            return Err(Refusal::Said(StoreError::failed(errors::no_log(self.place(), &mode))));
        }
        self.ensure_table(&mut connection).await?;
        Ok(Open { connection, identity })
    }

    async fn ensure_table(&self, connection: &mut SqliteConnection) -> Result<(), Refusal> {
        let table = self.options.table.as_str();
        let exists =
            "SELECT 1 FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
        if sqlx::query(exists).bind(table).fetch_all(&mut *connection).await?.is_empty() {
            if !self.options.create_table {
                return Err(Refusal::Said(StoreError::failed(errors::missing_table(self.place()))));
            }
            // At most one of many that do this at the same time creates it.
            sqlx::query(self.statements.create.sql()).execute(&mut *connection).await?;
        }
        sqlx::query(self.statements.check.sql()).fetch_all(connection).await?;
        Ok(())
    }
}

enum Refusal {
    Sqlite(sqlx::Error),
    Said(StoreError),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// One connection, for one request at a time, which is how SQLite writes anyway.
///
/// The driver runs each connection in a thread of its own, which carries out what it was sent one by one, in order,
/// and whole: a statement whose future was dropped still runs, commits by itself, and only its rows go nowhere. So there
/// is nothing half done that a later request could find, and whatever is sent after it runs after it. A pool would lose
/// that order, which the withdrawal of a claim rests on.
pub(super) struct Connection {
    file: Arc<File>,
    open: Mutex<Option<Open>>,
}

struct Open {
    connection: SqliteConnection,
    identity: Option<Identity>,
}

impl Connection {
    pub(super) fn new(file: &Arc<File>) -> Self {
        Self { file: Arc::clone(file), open: Mutex::new(None) }
    }

    /// Opens the connection, so that what is wrong with the file is known early.
    pub(super) async fn open(&self) -> Result<(), StoreError> {
        let mut open = self.open.lock().await;
        if open.is_none() {
            *open = Some(self.file.open().await?);
        }
        Ok(())
    }

    /// Carries out one statement to its end, and returns its rows.
    ///
    /// To its end, because the driver's `fetch_one` and `fetch_optional` stop at the first row: the commit then happens
    /// when the statement is reset, and its failure, of a full disk for instance, would go unheard.
    pub(super) async fn run(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Bound) -> Bound + Send,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut slot = self.open.lock().await;
        // Somebody deleted or replaced the file under us. Others now lock in the new one, so we have to as well.
        slot.take_if(|open| open.identity.is_some() && open.identity != Identity::of(&self.file));
        let open = match &mut *slot {
            Some(open) => open,
            none => none.insert(self.file.open().await?),
        };
        match bind(sqlx::query(statement.sql())).fetch_all(&mut open.connection).await {
            Ok(rows) => Ok(rows),
            Err(error) => {
                if !errors::is_busy(&error) {
                    *slot = None;
                }
                Err(self.file.explain(error))
            }
        }
    }

    /// Closes the connection; the next request opens it again.
    pub(super) async fn close(&self) {
        let open = self.open.lock().await.take();
        if let Some(open) = open
            && let Err(error) = open.connection.close().await
        {
            tracing::debug!(path = %self.file.options.path.display(), %error, "a connection did not close well");
        }
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, SqliteRow>>(&self, row: &SqliteRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.file.explain(error))
    }

    /// A column of a row of ours.
    pub(super) fn column<'r, T>(&self, row: &'r SqliteRow, index: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        row.try_get(index).map_err(|error| self.file.explain(error))
    }
}

/// A statement that is being given its parameters.
pub(super) type Bound = Query<'static, Sqlite, SqliteArguments>;

/// Which file stands at a path.
#[derive(PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    #[cfg(unix)]
    fn of(file: &File) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(&file.options.path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Elsewhere a file that is open cannot be deleted.
    #[cfg(not(unix))]
    fn of(_: &File) -> Option<Self> {
        None
    }
}
