//! From a URL to locks, semaphores, elections and latches.

use super::{Election, Latch, Lock, LockSet, RwLock, Semaphore, caller::Caller};
use crate::{Capabilities, Error, Holder, Waiter, backend::Backend};
use std::time::Duration;

/// Opens the store that `url` names, and returns its locks: [`tenure::connect`](crate::connect) without async.
///
/// # Errors
///
/// Those of [`tenure::connect`](crate::connect).
///
/// # Panics
///
/// If the system refuses another thread.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let locks = tenure::blocking::connect("memory:?lease=10s")?;
/// locks.lock("report").run(|hold| println!("token {}", hold.token()))?;
/// # Ok(())
/// # }
/// ```
pub fn connect(url: impl AsRef<str>) -> Result<Locks, Error> {
    let caller = Caller::start();
    let url = url.as_ref().to_owned();
    let locks = caller.wait(crate::connect(url))?;
    Ok(Locks { locks, caller })
}

/// The locks of one store: [`tenure::Locks`](crate::Locks) without async.
///
/// Clones are the same client and share one thread. A program needs one, and hands out clones.
#[derive(Clone, Debug)]
pub struct Locks {
    locks: crate::Locks,
    caller: Caller,
}

impl Locks {
    /// Makes a client of `backend`, with a default lease of 30 s.
    ///
    /// # Panics
    ///
    /// If the system refuses another thread.
    pub fn new(backend: impl Backend) -> Self {
        Self { locks: crate::Locks::new(backend), caller: Caller::start() }
    }

    /// Measures all names in one group from now on:
    /// [`tenure::Locks::without_groups`](crate::Locks::without_groups).
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn without_groups(mut self) -> Self {
        self.locks = self.locks.without_groups();
        self
    }

    /// Returns the lock of this name, to set options on and then acquire.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.locks.lock(name), &self.caller)
    }

    /// Returns the locks of these names, to be acquired all or none.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockSet {
        LockSet::new(self.locks.all(names), &self.caller)
    }

    /// Returns the read-write lock of this name.
    pub fn rw(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.locks.rw(name), &self.caller)
    }

    /// Returns the semaphore of this name, with this number of permits, at least 1.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.locks.semaphore(name, permits), &self.caller)
    }

    /// Returns the election of this name.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.locks.election(name), &self.caller)
    }

    /// Returns the latch of this name, for this number of parties, at least 1.
    pub fn latch(&self, name: impl AsRef<str>, parties: u32) -> Latch {
        Latch::new(self.locks.latch(name, parties), &self.caller)
    }

    /// Returns the store's capabilities.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.locks.capabilities()
    }

    /// Returns the lease of locks that set none of their own.
    #[must_use]
    pub fn default_lease(&self) -> Duration {
        self.locks.default_lease()
    }

    /// Returns the store's name for messages, without secrets.
    #[must_use]
    pub fn store(&self) -> &str {
        self.locks.store()
    }

    /// Returns the current holders of `name`. For people only: the answer may be outdated when it arrives.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Locks::holders`](crate::Locks::holders).
    pub fn holders(&self, name: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let (locks, name) = (self.locks.clone(), name.as_ref().to_owned());
        self.caller.wait(async move { locks.holders(name).await })
    }

    /// Lists the holders of all names that begin with `prefix`.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Locks::list`](crate::Locks::list).
    pub fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let (locks, prefix) = (self.locks.clone(), prefix.as_ref().to_owned());
        self.caller.wait(async move { locks.list(prefix).await })
    }

    /// Lists the waiters for `name` in the store's queue, in order. For people only: the answer may be outdated when it
    /// arrives.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Locks::waiting`](crate::Locks::waiting).
    pub fn waiting(&self, name: impl AsRef<str>) -> Result<Vec<Waiter>, Error> {
        let (locks, name) = (self.locks.clone(), name.as_ref().to_owned());
        self.caller.wait(async move { locks.waiting(name).await })
    }

    /// Ends every grant of `name` by force, and returns its holders.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Locks::force_release`](crate::Locks::force_release).
    pub fn force_release(&self, name: impl AsRef<str>) -> Result<Vec<Holder>, Error> {
        let (locks, name) = (self.locks.clone(), name.as_ref().to_owned());
        self.caller.wait(async move { locks.force_release(name).await })
    }

    /// Stops further acquisitions, and blocks until releases and withdrawals in the background are done:
    /// [`tenure::Locks::close`](crate::Locks::close). Held locks stay held.
    pub fn close(&self) {
        let locks = self.locks.clone();
        self.caller.wait(async move { locks.close().await });
    }
}
