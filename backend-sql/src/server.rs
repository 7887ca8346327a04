//! Locks on a database server: the code that all kinds of servers share.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `url`, `options` | from a URL to options |
//! | `dialect` | the code specific to one kind of server |
//! | `checked` | options that have been checked |
//! | `lanes`, `connecting` | the connections of lease rows; how a server is connected to |
//! | `spelling`, `tls` | labels in other encodings; what is wrong with an encrypted connection |

mod checked;
mod connecting;
mod dialect;
mod lanes;
mod options;
mod spelling;
pub(crate) mod tls;
pub(crate) mod url;

pub(crate) use checked::Checked;
pub(crate) use connecting::{in_time, place, table_in_time};
pub use dialect::Dialect;
pub(crate) use dialect::{ConnectOptions, Parts};
pub(crate) use lanes::Lanes;
pub use options::ServerOptions;
#[cfg(test)]
pub(crate) use options::tests as options_tests;

use crate::{
    lease_rows::{self, LeaseRows, lease_table::LeaseTable},
    session_locks::SessionLocks,
    strategy::Strategy,
};
use std::{borrow::Cow, fmt, ops::Deref, sync::Arc};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Capability, Claim, Error, Grant, Holder,
    HolderInfo, LatchState, LatchStep, Name, Operation, StoreError, Waiter, async_trait, forward_backend,
};

/// Locks in a database on a server: a `PostgresBackend` or a `MySqlBackend`.
///
/// There is one row per name, which can be acquired when it is free or its lease has expired by the server's clock. A
/// single holder of a name, in any mode, is in the row's columns: acquiring and releasing take one prepared statement
/// each. Several holders, each with its own lease, and a queue are in the row's record. It is read, and written back if
/// the row is unchanged since. Each message to the server commits its work, so nothing is left open when a client dies.
///
/// Connections are opened when needed: [two](ServerOptions::connections) that acquire and release, and one for
/// renewals, which nothing else can delay.
///
/// With [`Strategy::RowLock`] a lock is a row that a transaction has locked, on its own connection; waiters are in the
/// server's queue. The fencing token comes with the lock. A separate statement writes a note of it, because a crash
/// would undo writes of the holder's transaction.
///
/// With [`Strategy::Advisory`] a lock is one of the server's own named locks, on its own connection. PostgreSQL's locks
/// have no rows; those of MySQL and MariaDB have one for each name, with the note of the last grant.
///
/// Cloning is cheap, and clones share the connections.
pub struct ServerBackend<D: Dialect>(Arc<Inner<D>>);

struct Inner<D: Dialect> {
    locks: Locks<D>,
    /// For row locks and advisory locks, a separate table of lease rows; none if the table's name is too long for that.
    latches: Option<D::LeaseRows>,
}

/// The locks, by strategy.
enum Locks<D: Dialect> {
    LeaseRows(LeaseRows<D::LeaseRows>),
    LockedRows(SessionLocks<D::RowLocks>),
    Advisory(SessionLocks<D::AdvisoryLocks>),
}

impl<D: Dialect> Deref for Locks<D> {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        match self {
            Self::LeaseRows(rows) => rows,
            Self::LockedRows(locks) => locks,
            Self::Advisory(locks) => locks,
        }
    }
}

impl<D: Dialect> Locks<D> {
    fn has_all_characters(&self) -> bool {
        match self {
            Self::LeaseRows(rows) => rows.has_all_characters(),
            Self::LockedRows(locks) => locks.has_all_characters(),
            Self::Advisory(locks) => locks.has_all_characters(),
        }
    }

    /// The claim, with a holder that the database can store.
    fn written<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        if self.has_all_characters() { Cow::Borrowed(claim) } else { Cow::Owned(spelling::in_ascii(claim)) }
    }

    /// Undoes [`Self::written`] for holders or waiters that were stored.
    fn read<T>(&self, mut stored: Vec<T>, info: impl Fn(&mut T) -> &mut HolderInfo) -> Vec<T> {
        if !self.has_all_characters() {
            for one in &mut stored {
                spelling::read(info(one));
            }
        }
        stored
    }
}

impl<D: Dialect> ServerBackend<D> {
    /// Connects to the server, and creates the table as far as the options say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a table that was created stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the server is asked; [`Error::Store`] if it refuses the user or the database, or
    /// has no such table or one of another shape; [`Error::Unavailable`] if it cannot be reached, does not answer in
    /// time, is read-only, or has no connection left.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time and I/O enabled.
    pub async fn connect(options: ServerOptions<D>) -> Result<Self, Error> {
        let connect = options.connection()?;
        Self::open(options.check()?, connect).await
    }

    /// Connects with settings of the driver: those of a pool that the program already has, or its own.
    ///
    /// `connect` provides the server, the database, the user, TLS, and all else that the driver sets when it connects.
    /// `options` provide the rest; their URL is ignored. A pool lends nothing but these settings. The connections are
    /// tenure's own, so an application that uses all of its connections loses no lease, and no lock is ever part of one
    /// of its transactions. A pool's hooks, such as `after_connect`, are not run.
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
    /// # #[cfg(feature = "postgres")]
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), tenure_core::Error> {
    /// use tenure_sql::{PostgresBackend, PostgresOptions};
    ///
    /// let backend = PostgresBackend::connect_with(&pool.connect_options(), PostgresOptions::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with(
        connect: &<D::Connection as sqlx::Connection>::Options,
        options: ServerOptions<D>,
    ) -> Result<Self, Error> {
        Self::open(options.check()?, connect.clone()).await
    }

    async fn open(options: Checked<D::Own>, connect: ConnectOptions<D>) -> Result<Self, Error> {
        let store = Arc::from(D::store(&connect));
        let background = Background::new();
        // Its connections are opened when the first latch is used.
        let latches = options.strategy.ends_with_connections().then(|| options.of_latches().ok()).flatten();
        let latches = latches.map(|options| D::lease_rows(options, connect.clone(), background.clone()));
        let locks = match options.strategy {
            Strategy::LeaseRow => {
                LeaseRows::open(D::lease_rows(options, connect, background)).await.map(Locks::LeaseRows)
            }
            Strategy::RowLock => {
                SessionLocks::open(D::row_locks(options, connect), background).await.map(Locks::LockedRows)
            }
            Strategy::Advisory => {
                let requests = D::advisory_locks(options, connect)?;
                SessionLocks::open(requests, background).await.map(Locks::Advisory)
            }
        };
        let opened = locks.map(|locks| Self(Arc::new(Inner { locks, latches })));
        opened.map_err(|error| Error::from_store(&store, Operation::Connecting, error))
    }

    /// Locks `name` inside your own transaction, waiting as long as the server lets that transaction wait. The lock is
    /// held until the transaction ends, by commit or rollback.
    ///
    /// There is no guard, lease, renewal or token: the transaction's writes take effect only if it held the lock until
    /// the end. Such a lock, and one acquired from a backend with the same table, prefix and [`Strategy`], exclude each
    /// other. `tenure ls` does not show it.
    ///
    /// `transaction` must be on the database that this backend uses. Acquire several locks in the same order
    /// everywhere, or the server ends one of the transactions as a deadlock.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the wait goes on in the server, and a rollback waits for its end. Close the connection. To bound
    /// the wait, set `lock_timeout` (PostgreSQL) or `innodb_lock_wait_timeout` (MySQL, MariaDB) in the transaction, or use
    /// `try_in_transaction`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] unless the strategy is [`Strategy::RowLock`], or in PostgreSQL [`Strategy::Advisory`];
    /// [`Error::InvalidName`];
    /// [`Error::Unavailable`] if the server ended the wait or the transaction, or if the transaction's snapshot is older
    /// than the lock's row (PostgreSQL, from `REPEATABLE READ` on); [`Error::Store`] if it refuses. Roll the transaction
    /// back then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
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
        transaction: &mut D::Connection,
        name: impl AsRef<str>,
    ) -> Result<(), Error> {
        self.lock_in(transaction, name.as_ref(), true).await.map(drop)
    }

    /// Like [`in_transaction`](Self::in_transaction), without waiting. Returns `false` if another holds the name.
    ///
    /// # Cancel safety
    ///
    /// As for [`in_transaction`](Self::in_transaction).
    ///
    /// # Errors
    ///
    /// As for [`in_transaction`](Self::in_transaction).
    pub async fn try_in_transaction(
        &self,
        transaction: &mut D::Connection,
        name: impl AsRef<str>,
    ) -> Result<bool, Error> {
        self.lock_in(transaction, name.as_ref(), false).await
    }

    async fn lock_in(&self, transaction: &mut D::Connection, name: &str, waits: bool) -> Result<bool, Error> {
        let name = Name::new(name)?;
        let locked = match &self.0.locks {
            Locks::LockedRows(locks) => locks.lock_in(transaction, &name, waits).await,
            Locks::Advisory(locks) => locks.lock_in(transaction, &name, waits).await,
            Locks::LeaseRows(_) => {
                let allowed = "row-lock, for locks inside a transaction, or in PostgreSQL advisory";
                return Err(Error::invalid_option("strategy", "lease-row", allowed));
            }
        };
        locked.map_err(|error| Error::from_store(&self.store().into(), Operation::Acquiring(name), error))
    }

    /// Deletes rows that have not been used for a day, and returns how many. Their tokens stay below every later one.
    ///
    /// You need not call this: once an hour per table, the first client that releases something does it in the
    /// background. Row locks keep their rows, and advisory locks their notes: 0.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may have been deleted.
    ///
    /// # Errors
    ///
    /// The server's error.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        match &self.0.locks {
            Locks::LeaseRows(rows) => rows.sweep().await,
            Locks::LockedRows(_) | Locks::Advisory(_) => Ok(0),
        }
    }
}

#[async_trait]
impl<D: Dialect> Backend for ServerBackend<D> {
    forward_backend!(
        self => *self.0.locks,
        except capabilities, try_acquire, try_acquire_all, acquire, latch, holders, list, waiting, force_release, close,
    );

    fn capabilities(&self) -> Capabilities {
        let locks = self.0.locks.capabilities();
        Capabilities { latches: locks.latches || self.0.latches.is_some(), ..locks }
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        match (&self.0.locks, &self.0.latches) {
            (Locks::LeaseRows(rows), _) => rows.latch(name, step).await,
            (_, Some(latches)) => lease_rows::step(latches, name, step).await,
            (_, None) => Err(StoreError::unsupported(Capability::Latches)),
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.0.locks.try_acquire(&self.0.locks.written(claim)).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        if self.0.locks.has_all_characters() {
            return self.0.locks.try_acquire_all(claims).await;
        }
        let claims: Vec<Claim> = claims.iter().map(spelling::in_ascii).collect();
        self.0.locks.try_acquire_all(&claims).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.0.locks.acquire(&self.0.locks.written(claim)).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.0.locks.read(self.0.locks.holders(name).await?, |holder| &mut holder.info))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        Ok(self.0.locks.read(self.0.locks.list(prefix).await?, |holder| &mut holder.info))
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        Ok(self.0.locks.read(self.0.locks.waiting(name).await?, |waiter| &mut waiter.info))
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.0.locks.read(self.0.locks.force_release(name).await?, |holder| &mut holder.info))
    }

    async fn close(&self) {
        if let Some(latches) = &self.0.latches {
            latches.close().await;
        }
        self.0.locks.close().await;
    }
}

impl<D: Dialect> Clone for ServerBackend<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Dialect> fmt::Debug for ServerBackend<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBackend").field("store", &self.store()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
