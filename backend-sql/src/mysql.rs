//! Locks in MySQL and MariaDB.

mod errors;
mod options;
mod rows;
mod server;
mod statements;

pub use options::MySqlOptions;
pub use statements::mysql_schema;

use crate::lease_rows::LeaseRows;
use options::Checked;
use rows::MySqlRows;
use server::MySql;
use sqlx::{MySqlPool, mysql::MySqlConnectOptions};
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Doing, Error, Grant, Holder, Name, Release, Renewal, StoreError,
    async_trait,
};

/// Locks in a MySQL database, version 8.0.19 or later, or a MariaDB database, version 10.6 or later.
///
/// A row per name, taken by one upsert when it is free or its lease is over, by the server's clock. Acquiring and releasing
/// are one prepared statement each, which commits by itself, so nothing is left open when a client dies. Waiters look again
/// and again, with growing pauses up to [`poll`](MySqlOptions::poll), because the servers have nothing to tell them with.
///
/// Connections are opened when they are needed: [two](MySqlOptions::connections) that acquire and release, and one for
/// renewals, which nothing else can hold up.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{MySqlBackend, MySqlOptions};
///
/// let options = MySqlOptions::new("mysql://app:secret@db.example/app");
/// let locks = Locks::new(MySqlBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySqlBackend(Arc<LeaseRows<MySqlRows>>);

impl MySqlBackend {
    /// Connects to the server, and creates the table as far as the options say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a table that was created stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the server is asked; [`Error::Store`] when it refuses the user or the database, or
    /// has no such table or one of another shape; [`Error::Unavailable`] when it cannot be reached, does not answer in time,
    /// is read-only, or has no connection left.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time and I/O enabled.
    pub async fn connect(options: MySqlOptions) -> Result<Self, Error> {
        let connect = options.connection()?;
        Self::open(options.check()?, connect).await
    }

    /// Connects to the server and database that `pool` uses, as the same user, with the same TLS.
    ///
    /// Only the settings are the pool's. The connections are tenure's own, so an application that has all of its
    /// connections in use loses no lease, and no lock is ever part of one of its transactions. Hooks such as `after_connect`
    /// are not run. `options` say the rest; their URL is not used.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::MySqlPool) -> Result<(), tenure_core::Error> {
    /// use tenure_sql::{MySqlBackend, MySqlOptions};
    ///
    /// let backend = MySqlBackend::from_pool(&pool, MySqlOptions::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_pool(pool: &MySqlPool, options: MySqlOptions) -> Result<Self, Error> {
        let connect = (*pool.connect_options()).clone();
        Self::open(options.check()?, connect).await
    }

    async fn open(options: Checked, connect: MySqlConnectOptions) -> Result<Self, Error> {
        let server = MySql::new(options, connect);
        let store = Arc::from(server.store.as_str());
        match LeaseRows::open(MySqlRows::new(server)).await {
            Ok(rows) => Ok(Self(Arc::new(rows))),
            Err(error) => Err(Error::from_store(&store, Doing::Connecting, error)),
        }
    }

    /// Deletes the rows that nobody has used for a day, and tells how many. Their tokens stay below every later one.
    ///
    /// Not needed: it is done in the background, once an hour for a table, by whichever client is the first to release
    /// something then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may have been deleted.
    ///
    /// # Errors
    ///
    /// What the server could not do.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        self.0.sweep().await
    }
}

#[async_trait]
impl Backend for MySqlBackend {
    fn store(&self) -> &str {
        self.0.store()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.0.try_acquire(claim).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.0.acquire(claim).await
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        self.0.wait_for_release(claim, at_most).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.0.release(grant).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.0.renew(grants).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.0.withdraw(claim).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.0.list(prefix).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.force_release(name).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for MySqlBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlBackend").field("store", &self.store()).finish_non_exhaustive()
    }
}
