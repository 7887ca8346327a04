//! One leader among many candidates.

use super::{Guard, caller::Caller};
use crate::{Error, Holder};

/// An election: [`tenure::Election`](crate::Election) without async. Made by
/// [`Locks::election`](super::Locks::election).
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), tenure::Error> {
/// # let locks = tenure::blocking::connect("memory:")?;
/// # fn schedule_one_job(_term: tenure::Token) {}
/// let election = locks.election("scheduler").with(|lock| lock.label("node 1"));
/// loop {
///     let term = election.campaign()?;
///     while term.is_held() {
///         schedule_one_job(term.token());
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a candidate campaigns"]
pub struct Election {
    election: crate::Election,
    caller: Caller,
}

impl Election {
    pub(super) fn new(election: crate::Election, caller: &Caller) -> Self {
        Self { election, caller: caller.clone() }
    }

    /// Sets options of this candidate's lock: see [`tenure::Election::with`](crate::Election::with).
    pub fn with(mut self, options: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        self.election = self.election.with(options);
        self
    }

    /// Blocks until this candidate leads.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Election::campaign`](crate::Election::campaign).
    pub fn campaign(&self) -> Result<Guard, Error> {
        let election = self.election.clone();
        let guard = self.caller.wait(async move { election.campaign().await })?;
        Ok(Guard::new(guard, &self.caller))
    }

    /// Returns the current leader, as the store knows it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`tenure::Election::leader`](crate::Election::leader).
    pub fn leader(&self) -> Result<Option<Holder>, Error> {
        let election = self.election.clone();
        self.caller.wait(async move { election.leader().await })
    }
}
