//! Who holds what, for people.

use crate::{ClaimId, HolderInfo, Mode, Name, Token};
use std::time::{Duration, SystemTime};

/// One holder of one name, as the store knows it.
///
/// Times are on the store's clock. Use them to tell a person how things stand, never to decide who may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// What is held.
    pub name: Name,
    /// The holder's claim; `None` where a foreign client holds the name in a form of its own.
    pub claim: Option<ClaimId>,
    /// The grant's token; `None` where a foreign client holds the name.
    pub token: Option<Token>,
    /// How it is held.
    pub mode: Mode,
    /// Label, machine and process.
    pub info: HolderInfo,
    /// Since when, by the store's clock.
    pub since: Option<SystemTime>,
    /// For how long already, by the store's clock.
    pub age: Option<Duration>,
    /// How much of the lease is left, by the store's clock; `None` where a session keeps the grant.
    pub left: Option<Duration>,
}

impl Holder {
    /// A holder of whom only the name is known; fill in the rest.
    #[must_use]
    pub fn of(name: Name) -> Self {
        let (claim, token, mode) = (None, None, Mode::default());
        Self { name, claim, token, mode, info: HolderInfo::default(), since: None, age: None, left: None }
    }

    /// With the claim and its token.
    #[must_use]
    pub fn claim(mut self, claim: ClaimId, token: Token) -> Self {
        (self.claim, self.token) = (Some(claim), Some(token));
        self
    }

    /// With the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// With label, machine and process.
    #[must_use]
    pub fn info(mut self, info: HolderInfo) -> Self {
        self.info = info;
        self
    }

    /// With the beginning of the hold and its age, both by the store's clock.
    #[must_use]
    pub fn since(mut self, since: SystemTime, age: Duration) -> Self {
        (self.since, self.age) = (Some(since), Some(age));
        self
    }

    /// With what is left of the lease, by the store's clock.
    #[must_use]
    pub fn left(mut self, left: Duration) -> Self {
        self.left = Some(left);
        self
    }
}
