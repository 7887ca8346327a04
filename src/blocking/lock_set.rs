//! Several locks at once, all or none.

use super::{caller::Caller, guard::THERE};
use crate::{Error, Hold, LossCause, Token};
use std::{fmt, time::Duration};

/// Several locks that are acquired all or none: [`tenure::LockSet`](crate::LockSet) without async. Made by
/// [`Locks::all`](super::Locks::all).
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until it is acquired"]
pub struct LockSet {
    locks: crate::LockSet,
    caller: Caller,
}

impl LockSet {
    pub(super) fn new(locks: crate::LockSet, caller: &Caller) -> Self {
        Self { locks, caller: caller.clone() }
    }

    /// Sets how long [`acquire`](Self::acquire) waits for all of them together: up to 365 days. Zero means one attempt.
    /// Default: no limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.locks = self.locks.wait(wait);
        self
    }

    /// Sets options on each of the locks: see [`tenure::LockSet::with`](crate::LockSet::with).
    pub fn with(mut self, options: impl FnMut(crate::Lock) -> crate::Lock) -> Self {
        self.locks = self.locks.with(options);
        self
    }

    /// Acquires all the locks, blocking while others hold them.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::LockSet::acquire`](crate::LockSet::acquire).
    pub fn acquire(&self) -> Result<LockSetGuard, Error> {
        let locks = self.locks.clone();
        let guard = self.caller.wait(async move { locks.acquire().await })?;
        Ok(LockSetGuard::new(guard, &self.caller))
    }

    /// Acquires all the locks if they are free. Returns `None` if one is not.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::LockSet::try_acquire`](crate::LockSet::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<LockSetGuard>, Error> {
        let locks = self.locks.clone();
        let guard = self.caller.wait(async move { locks.try_acquire().await })?;
        Ok(guard.map(|guard| LockSetGuard::new(guard, &self.caller)))
    }
}

/// The holder's handle for several locks: [`tenure::LockSetGuard`](crate::LockSetGuard) without async.
///
/// Dropping it releases all of them, and blocks like [`Guard`](super::Guard).
#[must_use = "dropping a guard releases its locks"]
pub struct LockSetGuard {
    /// `None` only while it is released.
    guard: Option<crate::LockSetGuard>,
    caller: Caller,
}

impl LockSetGuard {
    fn new(guard: crate::LockSetGuard, caller: &Caller) -> Self {
        Self { guard: Some(guard), caller: caller.clone() }
    }

    fn guard(&self) -> &crate::LockSetGuard {
        self.guard.as_ref().expect(THERE)
    }

    /// Returns each of the locks, sorted by name.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.guard().holds()
    }

    /// Returns the fencing token of the lock with this name; `None` if it is not one of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<Token> {
        self.guard().token(name)
    }

    /// Returns whether all of them are held: see [`Hold::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard().is_held()
    }

    /// Returns why the first lost one was lost; `None` while all are held.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.guard().loss()
    }

    /// Releases all of them concurrently.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::LockSetGuard::release`](crate::LockSetGuard::release).
    pub fn release(mut self) -> Result<(), Error> {
        self.released()
    }

    fn released(&mut self) -> Result<(), Error> {
        self.guard.take().map_or(Ok(()), |guard| self.caller.wait(guard.release()))
    }
}

impl Drop for LockSetGuard {
    fn drop(&mut self) {
        if let Err(error) = self.released() {
            tracing::warn!(%error, "a dropped guard could not release its locks");
        }
    }
}

impl fmt::Debug for LockSetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockSetGuard").field(self.guard()).finish()
    }
}
