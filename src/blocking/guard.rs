//! The holder's handle.

use super::caller::Caller;
use crate::{Error, Hold, LossCause};
use std::{fmt, ops::Deref, time::Duration};

/// The holder's handle: [`tenure::Guard`](crate::Guard) without async. Its state is in [`Hold`],
/// and other threads get a view by [`hold`](Hold::hold).
///
/// Dropping it releases the lock, and blocks until the store has answered or that takes too long. An error is logged
/// then; [`release`](Self::release) returns it.
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    /// `None` only while it is released.
    guard: Option<crate::Guard>,
    caller: Caller,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, caller: &Caller) -> Self {
        Self { guard: Some(guard), caller: caller.clone() }
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Guard::release`](crate::Guard::release): above all [`Error::Lost`] if it was not held any
    /// more.
    pub fn release(mut self) -> Result<(), Error> {
        self.released()
    }

    /// Extends the lease: [`Hold::extend`] without async.
    ///
    /// # Errors
    ///
    /// Those of [`Hold::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let hold = self.hold();
        self.caller.wait(async move { hold.extend(lease).await })
    }

    /// Turns a writer into a reader: [`tenure::Guard::downgrade`](crate::Guard::downgrade) without async.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(&mut self) -> Result<(), Error> {
        self.on_the_guard(|mut guard| async move { (guard.downgrade().await, guard) })
    }

    /// Turns the only reader into a writer, and returns whether it is one now:
    /// [`tenure::Guard::try_upgrade`](crate::Guard::try_upgrade) without async.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Guard::try_upgrade`](crate::Guard::try_upgrade).
    pub fn try_upgrade(&mut self) -> Result<bool, Error> {
        self.on_the_guard(|mut guard| async move { (guard.try_upgrade().await, guard) })
    }

    /// Blocks until the lock is lost, but not for longer than `patience`. Returns why; `None` if it is still held.
    #[must_use]
    pub fn lost_within(&self, patience: Duration) -> Option<LossCause> {
        let lost = self.lost();
        self.caller.wait(async move { tokio::time::timeout(patience, lost).await.ok() })
    }

    /// Lends the guard to the caller's thread.
    fn on_the_guard<Work, Output>(&mut self, work: impl FnOnce(crate::Guard) -> Work) -> Output
    where
        Work: Future<Output = (Output, crate::Guard)> + Send + 'static,
        Output: Send + 'static,
    {
        let guard = self.guard.take().expect(THERE);
        let (output, guard) = self.caller.wait(work(guard));
        self.guard = Some(guard);
        output
    }

    fn released(&mut self) -> Result<(), Error> {
        match self.guard.take() {
            Some(guard) => self.caller.wait(guard.release()),
            None => Ok(()),
        }
    }
}

pub(super) const THERE: &str = "a guard is there until it is released";

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.guard.as_ref().expect(THERE)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.released() {
            tracing::warn!(%error, "a dropped guard could not release its lock");
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&**self).finish()
    }
}
