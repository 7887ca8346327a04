//! The locks of one step of a worker: one in some form, or several.

use super::schedule::between;
use crate::Form;
use fastrand::Rng;
use std::time::Duration;
use tenure_core::{
    Capabilities, Election, Error, Guard, Hold, Lock, LockSet, LockSetGuard, Locks, LossCause, StandingKind,
    lease::MIN_LEASE,
};

/// How many permits every name has.
const PERMITS: u32 = 3;
/// How many parties a latch has.
pub(super) const PARTIES: u32 = 3;

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One name.
    One(Form),
    /// The first name, on such terms that the grant may pass on inside the client.
    Chain,
    /// One name, as a candidate.
    Election,
    /// All names together.
    Several,
    /// A latch of the worker's own.
    Latch,
}

impl Step {
    /// Draws from what the store can do. An exclusive lock is the most frequent.
    pub(super) fn draw(rng: &mut Rng, can: Capabilities, names: usize) -> Self {
        match rng.u8(..20) {
            0..=3 if can.shared => Self::One(Form::Reader),
            4 | 5 if can.shared => Self::One(Form::Writer),
            6..=8 if can.permits => Self::One(Form::Permit(PERMITS)),
            9 if can.permits => Self::One(Form::AllPermits(PERMITS)),
            10 | 11 => Self::Election,
            12 | 13 if names > 1 => Self::Several,
            14 if can.latches => Self::Latch,
            _ => Self::One(Form::Lock),
        }
    }
}

/// How long a hold may last, or stays held at least.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    None,
    AtMost(Duration),
    AtLeast(Duration),
}

impl Bound {
    /// Draws from what this step can have. With several names there is none: one hold would be over while another name
    /// is waited for. Nothing with a bound is handed on.
    pub(super) fn draw(rng: &mut Rng, step: Step, can: Capabilities, lease: Duration) -> Self {
        let span = between(rng, lease / 2, lease).max(MIN_LEASE);
        match rng.u8(..8) {
            _ if matches!(step, Step::Several | Step::Chain) => Self::None,
            0 => Self::AtMost(span * 2),
            1 if can.standing == StandingKind::Lease => Self::AtLeast(span),
            _ => Self::None,
        }
    }

    pub(super) fn of(self, lock: Lock) -> Lock {
        match self {
            Self::None => lock,
            Self::AtMost(longest) => lock.max_hold(longest),
            Self::AtLeast(shortest) => lock.hold_at_least(shortest),
        }
    }
}

/// The locks to acquire, with one answer.
pub(super) enum Wanted {
    One(Lock),
    Leading(Election, Lock),
    All(LockSet),
}

impl Wanted {
    pub(super) fn of(step: Step, locks: &Locks, names: &[String], options: impl Fn(Lock) -> Lock) -> Self {
        match (step, names) {
            (Step::One(form), [name, ..]) => Self::One(options(form.of(locks, name))),
            (Step::Chain, [name, ..]) => Self::One(options(locks.lock(name))),
            (Step::Election, [name, ..]) => {
                Self::Leading(locks.election(name).with(&options), options(locks.lock(name)))
            }
            // Renewed: otherwise one would be lost during the wait for the next, again and again.
            _ => Self::All(locks.all(names).with(|lock| options(lock).renew(true))),
        }
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<Held>, Error> {
        match self {
            Self::One(lock) | Self::Leading(_, lock) => Ok(lock.try_acquire().await?.map(Held::One)),
            Self::All(all) => Ok(all.try_acquire().await?.map(Held::All)),
        }
    }

    pub(super) async fn acquire(&self) -> Result<Held, Error> {
        match self {
            Self::One(lock) => lock.acquire().await.map(Held::One),
            Self::Leading(election, _) => election.campaign().await.map(Held::One),
            Self::All(all) => all.acquire().await.map(Held::All),
        }
    }

    /// Sets how long to wait.
    pub(super) fn wait(self, wait: Duration) -> Self {
        match self {
            Self::One(lock) => Self::One(lock.wait(wait)),
            Self::Leading(election, lock) => Self::Leading(election.with(|lock| lock.wait(wait)), lock),
            Self::All(all) => Self::All(all.wait(wait)),
        }
    }
}

/// The locks acquired.
pub(super) enum Held {
    One(Guard),
    All(LockSetGuard),
}

impl Held {
    pub(super) fn holds(&self) -> Vec<Hold> {
        match self {
            Self::One(guard) => vec![guard.hold()],
            Self::All(guard) => guard.holds().map(Hold::hold).collect(),
        }
    }

    /// The first loss.
    pub(super) async fn lost(holds: &[Hold]) -> LossCause {
        futures_util::future::select_all(holds.iter().map(|hold| Box::pin(hold.lost()))).await.0
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::All(guard) => guard.release().await,
        }
    }
}
