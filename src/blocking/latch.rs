//! A latch, which opens when all parties have counted down.

use super::caller::Caller;
use crate::Error;
use std::time::Duration;

/// A latch: [`tenure::Latch`](crate::Latch) without async. Made by [`Locks::latch`](super::Locks::latch).
#[derive(Clone, Debug)]
#[must_use = "a latch does nothing until it is counted down or waited for"]
pub struct Latch {
    latch: crate::Latch,
    caller: Caller,
}

impl Latch {
    pub(super) fn new(latch: crate::Latch, caller: &Caller) -> Self {
        Self { latch, caller: caller.clone() }
    }

    /// Counts `party` down, and returns how many parties are still missing. Counting down again changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Latch::count_down`](crate::Latch::count_down).
    pub fn count_down(&self, party: impl AsRef<str>) -> Result<u32, Error> {
        let (latch, party) = (self.latch.clone(), party.as_ref().to_owned());
        self.caller.wait(async move { latch.count_down(party).await })
    }

    /// Returns how many parties are still missing: 0 if the latch is open.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Latch::missing`](crate::Latch::missing).
    pub fn missing(&self) -> Result<u32, Error> {
        let latch = self.latch.clone();
        self.caller.wait(async move { latch.missing().await })
    }

    /// Blocks until the latch is open.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Latch::wait`](crate::Latch::wait).
    pub fn wait(&self) -> Result<(), Error> {
        let latch = self.latch.clone();
        self.caller.wait(async move { latch.wait().await })
    }

    /// Blocks until the latch is open, but not for longer than `patience`. Returns whether it is open.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Latch::wait`](crate::Latch::wait).
    pub fn wait_for(&self, patience: Duration) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.caller.wait(async move {
            tokio::time::timeout(patience, latch.wait())
                .await
                .map_or(Ok(false), |opened| opened.map(|()| true))
        })
    }

    /// Removes the latch and its count.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Latch::remove`](crate::Latch::remove).
    pub fn remove(&self) -> Result<(), Error> {
        let latch = self.latch.clone();
        self.caller.wait(async move { latch.remove().await })
    }
}
