//! One lock and its options, a read-write lock, a semaphore.

use super::{Guard, caller::Caller};
use crate::{Error, Hold, Owner};
use std::time::Duration;

/// A lock to acquire: [`tenure::Lock`](crate::Lock) without async. Made by [`Locks::lock`](super::Locks::lock).
#[derive(Clone, Debug)]
#[must_use = "a Lock holds nothing until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    caller: Caller,
}

impl Lock {
    pub(super) fn new(lock: crate::Lock, caller: &Caller) -> Self {
        Self { lock, caller: caller.clone() }
    }

    /// Sets how long the store keeps the lock without hearing from its holder: 100 ms to 365 days. Default: 30 s.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|lock| lock.lease(lease))
    }

    /// Sets how long [`acquire`](Self::acquire) waits at most: up to 365 days. Zero means one attempt. Default: no
    /// limit.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// Sets whether the lease is renewed in the background. Default: `true`.
    pub fn renew(self, renews: bool) -> Self {
        self.with(|lock| lock.renew(renews))
    }

    /// Sets how long the lock may be held at most: 100 ms to 365 days. Default: no limit.
    pub fn max_hold(self, longest: Duration) -> Self {
        self.with(|lock| lock.max_hold(longest))
    }

    /// Sets how long the lock stays held at least, even if it is released sooner: 100 ms to 365 days. See
    /// [`Lock::hold_at_least`](crate::Lock::hold_at_least).
    pub fn hold_at_least(self, shortest: Duration) -> Self {
        self.with(|lock| lock.hold_at_least(shortest))
    }

    /// Sets a text for people, shown by `tenure ls`: at most 200 bytes without control characters.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.with(|lock| lock.label(label))
    }

    /// Lets `owner` re-enter what it already holds: see [`Owner`].
    pub fn owner(self, owner: &Owner) -> Self {
        self.with(|lock| lock.owner(owner))
    }

    /// Acquires the lock, blocking while another holds it.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard, Error> {
        let lock = self.lock.clone();
        let guard = self.caller.wait(async move { lock.acquire().await })?;
        Ok(Guard::new(guard, &self.caller))
    }

    /// Acquires the lock if it is free, with at most one attempt. Returns `None` if it is held, if another client or
    /// another task of this one is ahead in the queue, or if this client has just released it and lets another that
    /// waited go first.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        let lock = self.lock.clone();
        let guard = self.caller.wait(async move { lock.try_acquire().await })?;
        Ok(guard.map(|guard| Guard::new(guard, &self.caller)))
    }

    /// Acquires the lock, runs `work` on this thread, and releases the lock.
    ///
    /// Work on a thread cannot be stopped from outside, so let long work check [`Hold::is_held`] between its steps.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), and [`Error::Lost`] if the lock was lost before the work was done: its
    /// output is dropped then. A release that the store cannot be told of is no error, as in
    /// [`tenure::Lock::run`](crate::Lock::run).
    ///
    /// # Panics
    ///
    /// If `work` does. The lock is released then.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> {
    /// # let locks = tenure::blocking::connect("memory:")?;
    /// # fn write_row(_row: u32, _token: tenure::Token) {}
    /// let rows = locks.lock("report").run(|hold| {
    ///     (0..10).take_while(|_| hold.is_held()).inspect(|row| write_row(*row, hold.token())).count()
    /// })?;
    /// assert_eq!(rows, 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<Output>(&self, work: impl FnOnce(Hold) -> Output) -> Result<Output, Error> {
        let guard = self.acquire()?;
        let output = work(guard.hold());
        tenure_core::counting(guard.release()).map(|()| output)
    }

    fn with(mut self, option: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        self.lock = option(self.lock);
        self
    }
}

/// A read-write lock: [`tenure::RwLock`](crate::RwLock) without async. Made by [`Locks::rw`](super::Locks::rw).
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until one side is acquired"]
pub struct RwLock {
    sides: crate::RwLock,
    caller: Caller,
}

impl RwLock {
    pub(super) fn new(sides: crate::RwLock, caller: &Caller) -> Self {
        Self { sides, caller: caller.clone() }
    }

    /// Returns the readers' side: held together with other readers.
    pub fn read(&self) -> Lock {
        Lock::new(self.sides.read(), &self.caller)
    }

    /// Returns the writers' side: held exclusively.
    pub fn write(&self) -> Lock {
        Lock::new(self.sides.write(), &self.caller)
    }
}

/// A semaphore: [`tenure::Semaphore`](crate::Semaphore) without async. Made by
/// [`Locks::semaphore`](super::Locks::semaphore).
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until a permit is acquired"]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    caller: Caller,
}

impl Semaphore {
    pub(super) fn new(semaphore: crate::Semaphore, caller: &Caller) -> Self {
        Self { semaphore, caller: caller.clone() }
    }

    /// Returns one permit.
    pub fn permit(&self) -> Lock {
        self.permits(1)
    }

    /// Returns `take` permits, acquired together.
    pub fn permits(&self, take: u32) -> Lock {
        Lock::new(self.semaphore.permits(take), &self.caller)
    }
}
