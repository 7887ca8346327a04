//! The database file: how to open it, run statements and read rows.

use super::{
    access,
    errors::{self, Origin},
    files::{Entry, Files, LOOK},
    lease_statements::Statements,
    options::Checked,
};
use crate::{
    lane::{Server, Verdict},
    lease_rows::record_rows::{Row, Seen},
    statement::Statement,
};
use sqlx::{
    ConnectOptions, Connection as _, FromRow, Row as _,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteLockingMode, SqliteRow,
        SqliteSynchronous,
    },
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Moment, StoreError};

/// How many rows the driver's thread may be ahead of us: more than any statement returns while it holds the write lock.
/// Otherwise a task that is not polled would keep that lock.
const ROWS_AHEAD: usize = 1024;

/// The file: how to open it, and its statements.
pub(super) struct File {
    /// The store's name for messages.
    pub(super) store: String,
    pub(super) options: Checked,
    pub(super) statements: Statements,
    pub(super) files: Arc<Files>,
    connect: SqliteConnectOptions,
    /// Whether we create the file: for a pool, its own settings decide.
    creates: bool,
}

impl File {
    pub(super) fn new(options: Checked, base: SqliteConnectOptions, creates: bool) -> Self {
        // NORMAL: in write-ahead mode a commit then does not wait for the disk, and a program's crash loses nothing. A
        // power failure may undo the last commits, but it also ends every process that held a lock by them, because all
        // of them run on this machine. Tokens still rise, because they follow the clock.
        let connect = base
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(options.values.busy_timeout)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        let store = format!("sqlite:{}", options.path.display());
        let (statements, files) = (Statements::new(&options.table), Files::new(options.path.clone()));
        Self { store, options, statements, files, connect, creates }
    }

    pub(super) fn origin(&self) -> Origin<'_> {
        let Checked { path, table, values } = &self.options;
        Origin { path, table: table.as_str(), busy_timeout: values.busy_timeout }
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, SqliteRow>>(&self, row: &SqliteRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.explain(error))
    }

    /// Reads a row that was selected with the time, the floor and all columns but the key.
    pub(super) fn seen(&self, sent: Moment, row: Option<&SqliteRow>) -> Result<Seen, StoreError> {
        let row = row.ok_or_else(|| self.explain(sqlx::Error::RowNotFound))?;
        seen(sent, row).map_err(|error| self.explain(error))
    }

    async fn open_once(&self) -> Result<Open, Refusal> {
        let mut entry = self.files.enter().ok_or(Refusal::InUse)?;
        if self.files.are_missing() {
            self.look_for_others().await?;
        }
        let mut connection = self.connect.connect().await?;
        let mode: Vec<String> =
            sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_all(&mut connection).await?;
        if mode != ["wal"] {
            return Err(Refusal::Said(StoreError::failed(errors::no_log(self.origin(), &mode))));
        }
        self.ensure_table(&mut connection).await?;
        if !self.files.settle(&mut entry) {
            connection.close().await?;
            return Err(Refusal::InUse);
        }
        Ok(Open { entry, connection })
    }

    /// Refuses a database that others have open although its `-wal` or `-shm` file is missing: these were removed, and
    /// others' commits are not seen here. A connection that wants to be the only one makes no files unless it is.
    async fn look_for_others(&self) -> Result<(), Refusal> {
        let alone =
            self.connect.clone().locking_mode(SqliteLockingMode::Exclusive).busy_timeout(Duration::ZERO);
        let looked = async {
            let mut connection = alone.connect().await?;
            let read = sqlx::query("SELECT 1 FROM sqlite_schema").fetch_all(&mut connection).await;
            connection.close().await?;
            read
        };
        match looked.await {
            Err(error) if errors::is_busy(&error) => Err(Refusal::InUse),
            // The connection that is opened next reports the error.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn ensure_table(&self, connection: &mut SqliteConnection) -> Result<(), Refusal> {
        let table = self.options.table.as_str();
        let exists =
            "SELECT 1 FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
        if sqlx::query(exists).bind(table).fetch_all(&mut *connection).await?.is_empty() {
            if !self.options.values.create_table {
                return Err(Refusal::Said(StoreError::failed(errors::missing_table(self.origin()))));
            }
            // Of many clients that do this at the same time, at most one creates it.
            sqlx::query(self.statements.create.sql()).execute(&mut *connection).await?;
        }
        sqlx::query(self.statements.check.sql()).fetch_all(connection).await?;
        Ok(())
    }
}

impl Server for File {
    type Connection = Open;
    type Arguments = SqliteArguments;
    type Answer = Vec<SqliteRow>;

    /// SQLite itself stops waiting for writers after the busy timeout.
    const ENDS_BY_ITSELF: bool = true;

    fn connect_timeout(&self) -> Duration {
        self.options.values.busy_timeout
    }

    fn response_timeout(&self) -> Duration {
        self.options.values.busy_timeout
    }

    /// Also checks the journal mode, and checks or creates the table.
    async fn open(&self) -> Result<Open, StoreError> {
        if self.options.values.create_directory
            && let Some(directory) = self.options.path.parent()
        {
            access::create_directory(directory).map_err(|error| {
                StoreError::failed(format!(
                    "the directory {} cannot be created: {error}; create it, or choose another path",
                    directory.display()
                ))
            })?;
        }
        let unfit = errors::no_file(&self.options.path).or_else(|| access::open_to_all(&self.options.path));
        if let Some(why) = unfit {
            return Err(StoreError::failed(why));
        }
        if self.creates {
            access::create_file(&self.options.path);
        }
        let give_up = Moment::now() + self.options.values.busy_timeout;
        loop {
            // Clients that turn on a new file's write-ahead log at the same time get "busy" at once: SQLite does not
            // wait there.
            match self.open_once().await {
                Err(Refusal::Sqlite(error)) if errors::is_busy(&error) && !give_up.has_passed() => {
                    pause().await;
                }
                Err(Refusal::InUse) if !give_up.has_passed() => pause().await,
                Err(Refusal::Sqlite(error)) => return Err(self.explain(error)),
                Err(Refusal::InUse) => {
                    return Err(StoreError::unavailable(errors::in_use(self.origin())));
                }
                Err(Refusal::Said(error)) => return Err(error),
                Ok(open) => return Ok(open),
            }
        }
    }

    /// Whether the file, or one beside it, was removed or replaced. Others now lock in the new one, so we must too.
    fn is_elsewhere(&self, open: &Open) -> bool {
        self.files.look();
        open.entry.epoch.has_ended()
    }

    /// Looks, although this client may hold nothing: others wait until this connection is closed.
    async fn elsewhere(&self, open: &Open) {
        while tokio::time::timeout(LOOK, open.entry.epoch.ended()).await.is_err() {
            self.files.look();
        }
    }

    async fn close(&self, Open { entry, connection }: Open) -> Result<(), sqlx::Error> {
        let _last_epochs = entry.leave();
        connection.close().await
    }

    /// Runs the statement to its end. The driver's `fetch_one` and `fetch_optional` stop at the first row: the commit
    /// then happens when the statement is reset, and its failure, for instance on a full disk, would go unnoticed.
    async fn run(
        &self,
        open: &mut Open,
        statement: &Statement,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        sqlx::query_with(statement.sql(), arguments).fetch_all(&mut open.connection).await
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        if errors::is_busy(error) { Verdict::Refused } else { Verdict::Spoilt }
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        errors::explain(self.origin(), error)
    }
}

/// A connection to the file.
pub(super) struct Open {
    /// Dropped first.
    entry: Entry,
    connection: SqliteConnection,
}

enum Refusal {
    Sqlite(sqlx::Error),
    Said(StoreError),
    /// Others have files open that were removed.
    InUse,
}

/// Before another attempt to open the file. Two that look for others see each other, so neither may keep step.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5).mul_f64(0.5 + fastrand::f64())).await;
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn seen(sent: Moment, row: &SqliteRow) -> Result<Seen, sqlx::Error> {
    let (now, floor) = (row.try_get(0)?, row.try_get(1)?);
    let Some(version) = row.try_get(2)? else { return Ok(Seen::new(sent, now, floor, None)) };
    let row = Row {
        version,
        token: row.try_get(3)?,
        claim: text(row, 4)?,
        mode: text(row, 5)?,
        since: row.try_get(6)?,
        expires_at: row.try_get(7)?,
        awaited_until: row.try_get(8)?,
        awaited_by: text(row, 9)?,
        awaited_bell: None,
        label: text(row, 10)?,
        host: text(row, 11)?.unwrap_or_default(),
        pid: row.try_get(12)?,
        record: text(row, 13)?,
    };
    Ok(Seen::new(sent, now, floor, Some(row)))
}

/// SQLite stores any bytes as a text. Those that are none are replaced, so that the row is read as one that is not
/// ours: an error would cost all others of a renewal their leases (clause L9).
fn text(row: &SqliteRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    let text = row.try_get(column);
    if matches!(text, Err(sqlx::Error::ColumnDecode { .. })) {
        let bytes: Vec<u8> = row.try_get(column)?;
        return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
    }
    text
}
