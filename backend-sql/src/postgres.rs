//! Locks in PostgreSQL.

mod errors;
mod latches;
mod listener;
mod options;
mod queue;
mod row_locks;
mod row_statements;
mod rows;
mod server;
mod statements;
mod values;

pub use latches::postgres_latch_schema;
pub use options::{Durability, PostgresOptions};
pub use row_statements::postgres_row_schema;
pub use statements::postgres_schema;

use crate::{lease_rows::LeaseRows, options::Strategy, row_locks::RowLocks};
use latches::PostgresLatches;
use options::Checked;
use row_locks::PostgresRowLocks;
use rows::PostgresRows;
use sqlx::{PgConnection, PgPool, postgres::PgConnectOptions};
use std::{fmt, ops::Deref, sync::Arc, time::Duration};
use tenure_core::{
    Ability, Attempt, Backend, Background, Capabilities, Claim, Conversion, Doing, Error, Grant, Holder,
    LatchState, LatchStep, Mode, Name, Release, Renewal, StoreError, Together, async_trait,
};

/// Locks in a PostgreSQL database, version 11 or later.
///
/// A row per name, taken by one upsert when it is free or its lease is over, by the server's clock. Readers and holders of
/// permits stand in that row beside each other, each with its own lease. Acquiring and releasing are one prepared statement
/// each, which commits by itself, so nothing is left open when a client dies. Waiters are told of
/// releases by [`NOTIFY`](https://www.postgresql.org/docs/current/sql-notify.html), and ask again every
/// [`poll`](PostgresOptions::poll) in case they were not.
///
/// Connections are opened when they are needed: [two](PostgresOptions::connections) that acquire and release, one for
/// renewals, which nothing else can hold up, and one that listens once somebody waits.
///
/// With [`Strategy::RowLock`] a lock is a row that a transaction has locked, on a connection of its own; waiters stand in the
/// server's queue. The fencing token comes with the lock; a note of it is written by a statement of its own: what the holder's
/// transaction wrote, a crash would undo.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{PostgresBackend, PostgresOptions};
///
/// let options = PostgresOptions::new("postgres://app:secret@db.example/app");
/// let locks = Locks::new(PostgresBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresBackend {
    locks: Locks,
    /// None where the table's name is too long for one of latches beside it.
    latches: Option<Arc<PostgresLatches>>,
}

/// By strategy.
#[derive(Clone)]
enum Locks {
    LeaseRows(Arc<LeaseRows<PostgresRows>>),
    RowLocks(Arc<RowLocks<PostgresRowLocks>>),
}

impl Deref for Locks {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        match self {
            Self::LeaseRows(rows) => &**rows,
            Self::RowLocks(rows) => &**rows,
        }
    }
}

impl PostgresBackend {
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
    pub async fn connect(options: PostgresOptions) -> Result<Self, Error> {
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
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), tenure_core::Error> {
    /// use tenure_sql::{PostgresBackend, PostgresOptions};
    ///
    /// let backend = PostgresBackend::from_pool(&pool, PostgresOptions::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_pool(pool: &PgPool, options: PostgresOptions) -> Result<Self, Error> {
        let connect = (*pool.connect_options()).clone();
        Self::open(options.check()?, connect).await
    }

    async fn open(options: Checked, connect: PgConnectOptions) -> Result<Self, Error> {
        let store = Arc::from(server::store(&connect));
        let latches = PostgresLatches::new(options.clone(), connect.clone()).ok().map(Arc::new);
        let background = Background::new();
        let opened = match options.strategy {
            Strategy::LeaseRow => {
                let rows = LeaseRows::open(PostgresRows::new(options, connect, background)).await;
                rows.map(|rows| Locks::LeaseRows(Arc::new(rows)))
            }
            Strategy::RowLock => {
                let rows = RowLocks::open(PostgresRowLocks::new(options, connect), background).await;
                rows.map(|rows| Locks::RowLocks(Arc::new(rows)))
            }
        };
        let opened = opened.map(|locks| Self { locks, latches });
        opened.map_err(|error| Error::from_store(&store, Doing::Connecting, error))
    }

    /// Locks `name` inside a transaction of yours, and waits for it as long as the server lets that transaction wait: it is
    /// held until the transaction ends, however it does.
    ///
    /// There is no guard, no lease and no renewal, and no token: what the transaction writes is there only if it held the
    /// lock until the end. Such a lock and one that was acquired from a backend with the same table, prefix and
    /// [`Strategy::RowLock`] exclude each other. `tenure ls` does not show it.
    ///
    /// `transaction` must be one of the database that this backend uses. Take several locks in one order everywhere, or the
    /// server ends one of the transactions as a deadlock.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the wait goes on in the server, and a rollback waits for its end. Close the connection. To bound
    /// the wait, set `lock_timeout` in the transaction, or use `try_in_transaction`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] unless the strategy is [`Strategy::RowLock`]; [`Error::InvalidName`]; [`Error::Unavailable`]
    /// when the server ended the wait or the transaction; [`Error::Store`] when it refuses. The transaction is to be rolled
    /// back then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, locks: tenure_sql::PostgresBackend) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = pool.begin().await?;
    /// locks.in_transaction(&mut transaction, "orders/42").await?;
    /// sqlx::query("UPDATE orders SET state = 'shipped' WHERE id = 42").execute(&mut *transaction).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn in_transaction(
        &self,
        transaction: &mut PgConnection,
        name: impl AsRef<str>,
    ) -> Result<(), Error> {
        self.lock_in(transaction, name.as_ref(), true).await.map(drop)
    }

    /// As [`in_transaction`](Self::in_transaction), without waiting: `false` when another holds the name.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the wait goes on in the server, and a rollback waits for its end. Close the connection. To bound
    /// the wait, set `lock_timeout` in the transaction, or use `try_in_transaction`.
    ///
    /// # Errors
    ///
    /// As for [`in_transaction`](Self::in_transaction).
    pub async fn try_in_transaction(
        &self,
        transaction: &mut PgConnection,
        name: impl AsRef<str>,
    ) -> Result<bool, Error> {
        self.lock_in(transaction, name.as_ref(), false).await
    }

    async fn lock_in(&self, transaction: &mut PgConnection, name: &str, waits: bool) -> Result<bool, Error> {
        let name = Name::new(name)?;
        let Locks::RowLocks(rows) = &self.locks else {
            let allowed = "row-lock, for locks inside a transaction";
            return Err(Error::invalid_option("strategy", "lease-row", allowed));
        };
        let locked = rows.lock_in(transaction, &name, waits).await;
        locked.map_err(|error| Error::from_store(&self.store().into(), Doing::Acquiring(name), error))
    }

    /// Deletes the rows that nobody has used for a day, and tells how many. Their tokens stay below every later one.
    ///
    /// Not needed: it is done in the background, once an hour for a table, by whichever client is the first to release
    /// something then. Row locks keep their rows: 0.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may have been deleted.
    ///
    /// # Errors
    ///
    /// What the server could not do.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        match &self.locks {
            Locks::LeaseRows(rows) => rows.sweep().await,
            Locks::RowLocks(_) => Ok(0),
        }
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn store(&self) -> &str {
        self.locks.store()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { latches: self.latches.is_some(), ..self.locks.capabilities() }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.locks.try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        self.locks.try_acquire_all(claims).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.locks.acquire(claim).await
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        self.locks.wait_for_release(claim, at_most).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.locks.release(grant).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.locks.renew(grants).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.locks.withdraw(claim).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        match &self.latches {
            Some(latches) => latches.step(name, step).await,
            None => Err(StoreError::unsupported(Ability::Latches)),
        }
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        self.locks.convert(grant, to).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.locks.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.locks.list(prefix).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.locks.force_release(name).await
    }

    fn background(&self) -> Background {
        self.locks.background()
    }

    async fn close(&self) {
        if let Some(latches) = &self.latches {
            latches.close().await;
        }
        self.locks.close().await;
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend").field("store", &self.store()).finish_non_exhaustive()
    }
}
