//! Waiters for names, for people.

use crate::contract::{ClaimId, Holder, HolderInfo, Mode, Name};
use serde::Serialize;
use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// One waiter in a store's queue for one name, as the store knows it.
///
/// Its place is its position in the list: see [`Locks::waiting`](crate::Locks::waiting). For people only: never use it
/// to decide who may enter. It is serialized like a [`Holder`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Holder")]
#[non_exhaustive]
pub struct Waiter {
    /// The name that it waits for.
    pub name: Name,
    /// The waiter's claim; `None` if a foreign client waits.
    pub claim: Option<ClaimId>,
    /// How it wants to hold the name.
    pub mode: Mode,
    /// The waiter's label, machine and process.
    pub info: HolderInfo,
    /// Since when it has had its place in the queue, by the store's clock.
    pub since: Option<SystemTime>,
    /// How long it has had that place, by the store's clock.
    pub age: Option<Duration>,
}

impl Waiter {
    /// Makes a waiter for `name` with everything else unknown.
    #[must_use]
    pub fn of(name: Name) -> Self {
        let (claim, mode, info) = (None, Mode::default(), HolderInfo::default());
        Self { name, claim, mode, info, since: None, age: None }
    }

    /// Sets the claim.
    #[must_use]
    pub fn claim(mut self, claim: ClaimId) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets label, machine and process.
    #[must_use]
    pub fn info(mut self, info: HolderInfo) -> Self {
        self.info = info;
        self
    }

    /// Sets since when and for how long it has had its place, both by the store's clock.
    #[must_use]
    pub fn since(mut self, since: SystemTime, age: Duration) -> Self {
        (self.since, self.age) = (Some(since), Some(age));
        self
    }
}

/// Worded like a [`Holder`], without the mode: `backup.sh (4321@web1) for 3m 12s`.
impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It has no permit yet, and reads nothing.
        fmt::Display::fmt(&Holder::from(self.clone()).mode(Mode::Exclusive), f)
    }
}

/// A waiter in the form of a holder that has neither a token nor a lease, so that both are shown alike.
impl From<Waiter> for Holder {
    fn from(Waiter { name, claim, mode, info, since, age }: Waiter) -> Self {
        Self { claim, since, age, ..Self::of(name).mode(mode).info(info) }
    }
}
