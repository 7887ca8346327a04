//! The locks of one store.

use crate::{
    Backend, Capabilities, Election, Error, Holder, Latch, Lock, LockSet, Name, Operation, RwLock, Semaphore,
    lease::{self, DEFAULT_LEASE, MIN_LEASE},
    policy::client::Client,
};
use std::{fmt, sync::Arc, time::Duration};

/// How long [`Locks::close`] lets acquisitions notice that they are over.
const NOTICE: Duration = Duration::from_secs(1);

/// The locks of one store: the way in.
///
/// One `Locks` is one client of the store, with one queue per name and whatever connections the store needs. It renews
/// from a thread of its own, so it can be used from any number of runtimes, also as a `static`, and a hold outlives the
/// runtime that took it. Cloning gives the same client, so a program needs one and hands out clones; two that are made separately
/// exclude each other like two processes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::{Locks, Memory};
///
/// let locks = Locks::new(Memory::new());
/// let guard = locks.lock("orders/42").acquire().await?;
/// assert!(locks.lock("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks(Arc<Client>);

impl Locks {
    /// The locks of `backend`, with leases of 30 s.
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(Client::new(Arc::new(backend), DEFAULT_LEASE)))
    }

    /// The locks of `backend`, with another lease for those that do not choose one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] unless it is 100 ms to 365 days.
    pub fn with_lease(backend: impl Backend, lease: Duration) -> Result<Self, Error> {
        let lease = lease::check("lease", lease, MIN_LEASE)?;
        Ok(Self(Arc::new(Client::new(Arc::new(backend), lease))))
    }

    /// The lock of this name, to be given options and then taken.
    ///
    /// A text that is no [`Name`] is refused when the lock is taken, before the store is asked.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.0), Name::new(name))
    }

    /// The locks of these names together, to be taken all or none: see [`LockSet`]. A name that is said twice counts once.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockSet {
        LockSet::of(names.into_iter().map(|name| self.lock(name)))
    }

    /// The lock of this name for readers and writers: see [`RwLock`].
    pub fn rw(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.lock(name))
    }

    /// The semaphore of this name with so many permits, at least 1: see [`Semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.lock(name), permits)
    }

    /// The election of this name: see [`Election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.lock(name))
    }

    /// The latch of this name, which waits for so many parties, at least 1: see [`Latch`].
    pub fn latch(&self, name: impl AsRef<str>, parties: u32) -> Latch {
        Latch::new(Arc::clone(&self.0), Name::new(name), parties)
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.0.store.backend.capabilities()
    }

    /// The store in words, without secrets: `sqlite:/var/lib/app/locks.db`.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.0.store.name
    }

    /// Who holds `name` now.
    ///
    /// For people: by the time the answer is here, things may have changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`].
    pub async fn holders(&self, name: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        self.0.store.holders(&Name::new(name)?).await
    }

    /// Everybody who holds a name that begins with `prefix`, ordered by name; an empty prefix lists all.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`].
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let holders = self.0.store.backend.list(prefix.as_ref()).await;
        holders.map_err(|error| self.0.store.failed(Operation::Looking, error))
    }

    /// Ends every grant of `name`, whoever holds it, and tells whom it put out.
    ///
    /// The holders learn of it at the latest with their next renewal; until then they still believe that they hold the
    /// lock. Only a fencing token protects what they do meanwhile.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`].
    pub async fn force_release(&self, name: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let name = Name::new(name)?;
        let ended = self.0.store.backend.force_release(&name).await;
        ended.map_err(|error| self.0.store.failed(Operation::Forcing(name), error))
    }

    /// Lets no more locks be taken, waits for releases and withdrawals in the background, and disconnects.
    ///
    /// Acquisitions that wait end with [`Error::Closed`]. Guards that are still alive stay valid and are renewed; drop
    /// them first if the program is to end. While the store is unavailable this waits for one lease at most. Safe to
    /// call twice.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what it waits for goes on, and it can be called again.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.acquisitions.close();
        // What they leave to be withdrawn is among the tasks. One that nobody polls would never be over.
        let _ = tokio::time::timeout(NOTICE, self.0.acquisitions.wait()).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
        if self.0.queues.is_empty() {
            self.0.closed.get_or_init(|| self.0.store.close()).await;
        }
    }

    /// How many names this client holds or waits for: what its in-process queues cost.
    #[must_use]
    pub fn names_in_use(&self) -> usize {
        self.0.queues.len()
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("store", &self.0.store.name).finish_non_exhaustive()
    }
}
