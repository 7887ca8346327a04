//! One connection to the file in each runtime, opened when it is needed.

use super::{
    access,
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
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{Moment, PerRuntime, StoreError};
use tokio::sync::{mpsc, oneshot};

/// How many rows the driver's thread may be ahead of us: more than any statement returns while it holds the write
/// lock, or a task that is not polled would keep the lock from everybody.
const ROWS_AHEAD: usize = 1024;

/// The file: how to open it, and what to ask of it.
pub(super) struct File {
    pub(super) options: Checked,
    pub(super) statements: Statements,
    connect: SqliteConnectOptions,
    /// Whether the file is ours to create: the settings of a pool say it themselves.
    creates: bool,
}

impl File {
    pub(super) fn new(options: Checked, base: SqliteConnectOptions, creates: bool) -> Self {
        // NORMAL: in write-ahead mode a commit then waits for no disk, and a crash of a program loses nothing. A
        // power failure may undo the last commits, but it also ends every process that held a lock by them, since
        // all of them run on this machine; and tokens rise all the same, because they follow the clock.
        let connect = base
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(options.busy_timeout)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        Self { statements: Statements::new(&options.table, options.fair), options, connect, creates }
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
            access::create_directory(directory).map_err(|error| {
                StoreError::failed(format!(
                    "the directory {} cannot be created: {error}",
                    directory.display()
                ))
            })?;
        }
        let unfit =
            errors::no_file(&self.options.path).or_else(|| access::open_to_everybody(&self.options.path));
        if let Some(why) = unfit {
            return Err(StoreError::failed(why));
        }
        if self.creates {
            access::create_file(&self.options.path);
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

/// One connection for each runtime that asks, opened when it is needed, in a task of its own that carries out requests one by one, in order, each to
/// its end, which is how SQLite writes anyway.
///
/// A request whose future is dropped before its turn is not carried out. After that it runs to its end, commits by itself,
/// and only its rows go nowhere: there is nothing half done that a later request could find, and whatever is sent after it
/// runs after it, which the withdrawal of a claim rests on. A pool would lose that order. And a request whose future is
/// neither polled nor dropped is in nobody's way, as one that had locked the connection would be.
pub(super) struct Connection {
    file: Arc<File>,
    tasks: PerRuntime<Task>,
}

/// How to reach the task, where it runs.
type Task = Mutex<Option<mpsc::UnboundedSender<Job>>>;

/// What the task is asked, and where the answer goes.
enum Job {
    Open(oneshot::Sender<Result<(), StoreError>>),
    Run(Bound, oneshot::Sender<Result<Vec<SqliteRow>, StoreError>>),
    Close(oneshot::Sender<()>),
}

impl Connection {
    pub(super) fn new(file: &Arc<File>) -> Self {
        Self { file: Arc::clone(file), tasks: PerRuntime::new() }
    }

    /// Opens the connection, so that what is wrong with the file is known early.
    pub(super) async fn open(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Open(answer));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Carries out one statement to its end, and returns its rows.
    pub(super) async fn run(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Bound) -> Bound + Send,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Run(bind(sqlx::query(statement.sql())), answer));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Closes the connections behind what is under way; the next request opens one again.
    pub(super) async fn close(&self) {
        for task in self.tasks.all() {
            let running = locked(&task).take();
            let Some(running) = running else { continue };
            let (done, closed) = oneshot::channel();
            // When either fails the task has ended, and its connection with it. One in a runtime that is kept busy closes
            // later.
            if running.send(Job::Close(done)).is_ok() {
                let _ = tokio::time::timeout(self.file.options.busy_timeout, closed).await;
            }
        }
    }

    /// To the task, which is started anew when there is none, or its runtime has ended.
    fn send(&self, job: Job) {
        let here = self.tasks.get(Mutex::default);
        let mut task = locked(&here);
        let job = match &*task {
            Some(running) => match running.send(job) {
                Ok(()) => return,
                Err(mpsc::error::SendError(job)) => job,
            },
            None => job,
        };
        let (sender, jobs) = mpsc::unbounded_channel();
        tokio::spawn(Worker { file: Arc::clone(&self.file), open: None }.work(jobs));
        // The task has just been given its end of the channel.
        let _ = sender.send(job);
        *task = Some(sender);
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

fn locked(task: &Task) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Job>>> {
    task.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended() -> StoreError {
    StoreError::unavailable("the connection's task ended with its runtime")
}

/// The task of a connection. Whoever asked may have gone when the answer comes.
struct Worker {
    file: Arc<File>,
    open: Option<Open>,
}

struct Open {
    connection: SqliteConnection,
    identity: Option<Identity>,
}

impl Worker {
    async fn work(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Open(answer) => {
                    let opened = self.connection().await.map(drop);
                    let _ = answer.send(opened);
                }
                Job::Run(statement, answer) => {
                    if !answer.is_closed() {
                        let rows = self.run(statement).await;
                        let _ = answer.send(rows);
                    }
                }
                Job::Close(done) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
            }
        }
        self.close().await;
    }

    async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        // Somebody deleted or replaced the file under us. Others now lock in the new one, so we have to as well.
        self.open.take_if(|open| open.identity.is_some() && open.identity != Identity::of(&self.file));
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(self.file.open().await?),
        };
        Ok(&mut open.connection)
    }

    /// To its end, because the driver's `fetch_one` and `fetch_optional` stop at the first row: the commit then happens
    /// when the statement is reset, and its failure, of a full disk for instance, would go unheard.
    async fn run(&mut self, statement: Bound) -> Result<Vec<SqliteRow>, StoreError> {
        match statement.fetch_all(self.connection().await?).await {
            Ok(rows) => Ok(rows),
            Err(error) => {
                if !errors::is_busy(&error) {
                    self.open = None;
                }
                Err(self.file.explain(error))
            }
        }
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take()
            && let Err(error) = open.connection.close().await
        {
            tracing::debug!(path = %self.file.options.path.display(), %error, "a connection did not close well");
        }
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
