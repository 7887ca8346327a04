//! Lease rows in a SQLite file.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `lease_rows` | the requests of lease rows, each one statement |
//! | `file`, `access` | how the file is opened and asked; who may write to it |
//! | `files` | whether the files that SQLite has open are still those that others see |
//! | `lease_statements` | the statements of lease rows |
//! | `errors` | the meaning of SQLite's errors |
//! | `url`, `options` | from a URL to options |

mod access;
mod errors;
mod file;
mod files;
mod lease_rows;
mod lease_statements;
mod options;
mod url;

pub use lease_statements::sqlite_schema;
pub use options::SqliteOptions;

use crate::lease_rows::LeaseRows;
use file::File;
use files::Files;
use lease_rows::SqliteRows;
use options::Checked;
use sqlx::sqlite::SqliteConnectOptions;
use std::{fmt, sync::Arc};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Claim, Epoch, Error, Grant, Operation, StoreError, async_trait,
    forward_backend,
};

/// Locks in a SQLite file, for the processes of one machine.
///
/// There is one row per name, acquired by one upsert when it is free or its lease has expired by SQLite's own clock:
/// the machine's wall clock, in milliseconds. Readers and holders of permits share that row, each with its own lease:
/// see [`Record`](tenure_core::record::Record). If that clock is set forward, leases end early; if it is set back,
/// late. Keep it in sync, and let the resource check the [fencing token](tenure_core::Token), which rises even if the
/// clock is set back.
///
/// The file is kept in [write-ahead mode](https://www.sqlite.org/wal.html), so readers do not delay writers, and a
/// commit does not wait for the disk. Waiters poll, with growing pauses up to [`poll`](SqliteOptions::poll), and take
/// the write lock only if the name looks free. Three connections are opened when needed: one that writes, one that
/// looks, and one for renewals, which nothing else can delay.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{SqliteBackend, SqliteOptions};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("locks.db");
/// let locks = Locks::new(SqliteBackend::open(SqliteOptions::new(path)).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # locks.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteBackend {
    rows: Arc<LeaseRows<SqliteRows>>,
    files: Arc<Files>,
}

impl SqliteBackend {
    /// Opens the file, creating it and the table if the options allow.
    ///
    /// Created files and directories are for this user only (on Unix, modes 0600 and 0700), with any umask.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a file or a table that was created stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the file is touched; [`Error::Store`] if the file cannot be opened or written,
    /// is writable for all users, is not a database, is damaged, or has no such table or one of another shape;
    /// [`Error::Unavailable`] if other connections kept it locked for longer than [`SqliteOptions::busy_timeout`], the
    /// disk has an I/O error, or the process can open no more files.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn open(options: SqliteOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let connect = SqliteConnectOptions::new().filename(&options.path).create_if_missing(true);
        Self::connect(options, connect, true).await
    }

    /// Opens a file with settings of the driver: those of a pool that the program already has, or its own.
    ///
    /// `connect` provides the file, whether it is created, and how it is opened: pragmas, extensions, an encrypted
    /// file's key. `options` provide the rest; their path is ignored. A pool lends nothing but these settings. The
    /// connections are tenure's own, so an application that uses all of its connections loses no lease, and no lock is
    /// ever part of one of its transactions. A pool's hooks, such as `after_connect`, are not run.
    ///
    /// # Cancel safety
    ///
    /// As for [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open). A database in memory is refused.
    ///
    /// # Panics
    ///
    /// As for [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
    /// use tenure_sql::{SqliteBackend, SqliteOptions};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.db");
    /// let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path).create_if_missing(true)).await?;
    /// let backend = SqliteBackend::open_with(&pool.connect_options(), SqliteOptions::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_with(connect: &SqliteConnectOptions, options: SqliteOptions) -> Result<Self, Error> {
        let options = options.at(connect.get_filename()).check()?;
        Self::connect(options, connect.clone(), false).await
    }

    async fn connect(options: Checked, connect: SqliteConnectOptions, creates: bool) -> Result<Self, Error> {
        let file = File::new(options, connect, creates);
        let (store, files) = (Arc::from(file.store.as_str()), Arc::clone(&file.files));
        let opened = LeaseRows::open(SqliteRows::new(file, Background::new())).await;
        opened
            .map(|rows| Self { rows: Arc::new(rows), files })
            .map_err(|error| Error::from_store(&store, Operation::Connecting, error))
    }

    /// Deletes rows that have not been used for a day, and returns how many. Their tokens stay below every later one.
    ///
    /// You need not call this: once an hour per file, the first client that releases something does it in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may have been deleted.
    ///
    /// # Errors
    ///
    /// The file's error.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        self.rows.sweep().await
    }

    /// Makes a request in the current epoch. If that ends first, the answer is about a file that no other program sees.
    async fn in_epoch<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<(T, Epoch), StoreError> {
        let epoch = self.files.watch(&self.rows.background());
        tokio::select! {
            biased;
            () = epoch.ended() => Err(StoreError::unavailable(self.files.removed())),
            answer = request => Ok((answer?, epoch)),
        }
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    forward_backend!(self => *self.rows, except try_acquire, try_acquire_all, acquire);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        Ok(match self.in_epoch(self.rows.try_acquire(claim)).await? {
            (Attempt::Granted(grant), epoch) => Attempt::Granted(grant.in_epoch(&epoch)),
            (busy @ Attempt::Busy { .. }, _) => busy,
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        Ok(match self.in_epoch(self.rows.try_acquire_all(claims)).await? {
            (AttemptAll::Granted(grants), epoch) => {
                AttemptAll::Granted(grants.into_iter().map(|grant| grant.in_epoch(&epoch)).collect())
            }
            (other, _) => other,
        })
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let (grant, epoch) = self.in_epoch(self.rows.acquire(claim)).await?;
        Ok(grant.in_epoch(&epoch))
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend").field("store", &self.store()).finish_non_exhaustive()
    }
}
