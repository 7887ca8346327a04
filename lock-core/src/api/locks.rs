//! The locks of one store.

use crate::{
    api::{Election, Latch, Lock, LockSet, RwLock, Semaphore},
    contract::{
        Capabilities, Capability, Claim, Error, Holder, Name, Operation, Waiter,
        lease::{self, DEFAULT_LEASE, MIN_LEASE},
    },
    policy::client::Client,
    store::Backend,
};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long [`Locks::close`] waits for acquisitions to notice that the client closes.
const NOTICE: Duration = Duration::from_secs(1);

/// The locks of one store: the entry point.
///
/// One `Locks` is one client of the store, with one queue per name and the connections that the store needs. It renews
/// from its own thread, so it can be used from any number of runtimes, even as a `static`, and a hold outlives the
/// runtime that acquired it. Clones are the same client, so a program needs one and hands out clones. Two that are made
/// separately exclude each other like two processes.
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
    /// Makes a client of `backend`, with a default lease of 30 s.
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(Client::new(Arc::new(backend), DEFAULT_LEASE)))
    }

    /// Makes a client of `backend` with another default lease.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] unless it is 100 ms to 365 days.
    pub fn with_lease(backend: impl Backend, lease: Duration) -> Result<Self, Error> {
        let lease = lease::check("lease", lease, MIN_LEASE)?;
        Ok(Self(Arc::new(Client::new(Arc::new(backend), lease))))
    }

    /// Hands grants on inside this process from now on, to at most this many successors in a row: 0 to 64. Default: 0,
    /// which turns it off. If the store [can reserve only fewer tokens](Capabilities::succession), there are fewer
    /// successors: at most 32, except in databases that are servers.
    ///
    /// When an exclusive lock is released while another task of this client waits for it with the same lease and label,
    /// that task gets it at once, and the store is not asked. Each successor has its own, greater token: the store
    /// reserves them with the grant. When no task here waits, or a third of the lease has passed since the request for
    /// the grant, a release goes to the store and frees the lock for all clients. Locks with
    /// [`max_hold`](crate::Lock::max_hold) or [`hold_at_least`](crate::Lock::hold_at_least), or [without
    /// renewal](crate::Lock::renew), take no part, and neither do those that are acquired
    /// [together](crate::Capabilities::together).
    ///
    /// Meant for many short holds of one name in a process that is far from its store. What it costs:
    ///
    /// - **Order between processes.** Waiters of other processes are passed over for that long. A successor that is not
    ///   polled keeps them out until the lease expires.
    /// - **A release that says less.** [`Guard::release`](crate::Guard::release) is `Ok` as soon as a successor has the
    ///   lock. If it was released by force, or the store has forgotten it, its holder at the next contact with the
    ///   store (a renewal, or the last release) learns of it. Tokens protect the resource as before.
    /// - **The list of holders.** The store knows one grant, so it shows the last of the reserved tokens, and counts
    ///   the time from the first hold.
    ///
    /// The idea is that of Dice, Marathe and Shavit, "Lock Cohorting: A General Technique for Designing NUMA Locks"
    /// (`PPoPP` 2012). `docs/contributing/decisions.md` says why it is safe.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a number outside that range; [`Error::Unsupported`] unless the store has
    /// [`Capabilities::succession`]: with `fair=true`, a store's queue would be passed over, and tokens like
    /// `ZooKeeper`'s and `etcd`'s cannot be reserved.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # use tenure_core::{Locks, Memory};
    /// let locks = Locks::new(Memory::new()).with_succession(16)?;
    /// let first = locks.lock("orders/42").acquire().await?;
    /// let lock = locks.lock("orders/42");
    /// let next = tokio::spawn(async move { lock.acquire().await });
    /// tokio::task::yield_now().await;
    /// let (token, claim) = (first.token(), first.claim());
    /// first.release().await?;
    /// let next = next.await.expect("it does not panic")?;
    /// assert!(next.token() > token && next.claim() == claim, "the same grant, with a greater token");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_succession(self, successors: u32) -> Result<Self, Error> {
        let range = Claim::RESERVE_RANGE;
        if !range.contains(&successors) {
            let allowed = format!("{} to {}", range.start(), range.end());
            return Err(Error::invalid_option("succession", successors, allowed));
        }
        let most = self.0.store.capabilities().succession;
        if successors > 0 && most == 0 {
            return Err(self.0.store.unsupported(Capability::Succession));
        }
        self.0.successors.store(successors.min(most), Ordering::Relaxed);
        Ok(self)
    }

    /// Measures all names in one group from now on. Without this, a name's group is the text before its first `/`,
    /// which is meant for names like `orders/42`: see [`metrics`](crate::metrics).
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn without_groups(self) -> Self {
        self.0.store.meters.without_groups();
        self
    }

    /// Returns the lock of this name, to set options on and then acquire.
    ///
    /// A text that is not a valid [`Name`] is refused when the lock is acquired, before the store is asked.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.0), Name::new(name))
    }

    /// Returns the locks of these names, to be acquired all or none: see [`LockSet`]. A name that is given twice counts
    /// once.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockSet {
        LockSet::of(names.into_iter().map(|name| self.lock(name)))
    }

    /// Returns the read-write lock of this name: see [`RwLock`].
    pub fn rw(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.lock(name))
    }

    /// Returns the semaphore of this name, with this number of permits, at least 1: see [`Semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.lock(name), permits)
    }

    /// Returns the election of this name: see [`Election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.lock(name))
    }

    /// Returns the latch of this name, for this number of parties, at least 1: see [`Latch`].
    pub fn latch(&self, name: impl AsRef<str>, parties: u32) -> Latch {
        Latch::new(Arc::clone(&self.0), Name::new(name), parties)
    }

    /// Returns what the store can do. With [succession](Self::with_succession) on, it does not count as fair.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let capabilities = self.0.store.capabilities();
        let in_order = self.0.successors.load(Ordering::Relaxed) == 0;
        Capabilities { fair: capabilities.fair && in_order, ..capabilities }
    }

    /// Returns the lease of locks that set [none of their own](Lock::lease).
    #[must_use]
    pub fn default_lease(&self) -> Duration {
        self.0.default_lease
    }

    /// Returns the store's name for messages, without secrets: `sqlite:/var/lib/app/locks.db`.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.0.store.name
    }

    /// Returns the current holders of `name`.
    ///
    /// For people only: the answer may be outdated when it arrives.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`].
    pub async fn holders(&self, name: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let holders = self.0.store.holders(&Name::new(name)?).await;
        holders.map_err(|error| self.0.store.failed(Operation::Looking, error))
    }

    /// Returns the holders of all names that begin with `prefix`, sorted by name. An empty prefix lists all.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`].
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let holders = self.0.store.list(prefix.as_ref()).await;
        holders.map_err(|error| self.0.store.failed(Operation::Looking, error))
    }

    /// Lists the waiters for `name` in the store's queue, in the order in which they will be granted it.
    ///
    /// Each client has one waiter; its other tasks wait behind that one, in memory. For people only: the answer may be
    /// outdated when it arrives.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the store keeps no queue: see [`Capabilities::waiting`]. [`Error::InvalidName`],
    /// [`Error::Unavailable`], [`Error::Store`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// for (place, waiter) in (1..).zip(locks.waiting("nightly").await?) {
    ///     println!("{place}. {waiter}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn waiting(&self, name: impl AsRef<str>) -> Result<Vec<Waiter>, Error> {
        let waiters = self.0.store.waiting(&Name::new(name)?).await;
        waiters.map_err(|error| self.0.store.failed(Operation::Looking, error))
    }

    /// Ends every grant of `name` by force, and returns its holders.
    ///
    /// The holders learn of it at their next renewal or their deadline, whichever is first, and believe until then that
    /// they still hold the lock. Only fencing tokens protect the resource meanwhile.
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
        let ended = self.0.store.force_release(&name).await;
        ended.map_err(|error| self.0.store.failed(Operation::Forcing(name), error))
    }

    /// Stops further acquisitions, waits for releases and withdrawals in the background, and disconnects.
    ///
    /// Acquisitions that wait end with [`Error::Closed`]. Guards that are still alive stay valid and are renewed; drop
    /// them before the program ends. If the store is unavailable, this waits for at most one lease. Calling it twice is
    /// safe.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the releases and withdrawals go on, and it can be called again.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.acquisitions.close();
        // Their withdrawals are among the tasks. An unpolled acquisition would never end.
        let _ = tokio::time::timeout(NOTICE, self.0.acquisitions.wait()).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
        if self.0.queues.is_empty() {
            self.0.closed.get_or_init(|| self.0.store.close()).await;
        }
    }

    /// Returns how many names this client holds or waits for, each with a queue in memory.
    ///
    /// Hidden because programs have no use for it: `tenure-conformance` and the tests of other crates use it to see that
    /// no queue is left behind.
    #[doc(hidden)]
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
