//! The one error that users see.

use crate::{Ability, Holder, InvalidName, LossCause, Mode, Name, StoreError, store_error::Kind};
use std::{fmt, sync::Arc, time::Duration};

/// What went wrong, with which name in which store, and what to do.
///
/// Messages never contain passwords. The store's own words are in [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not acquired within the time given with [`wait`](crate::Lock::wait).
    #[error("lock {name:?} in {store} was not acquired within {waited:?}: {}", reason(holders))]
    Timeout {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// The time that was given.
        waited: Duration,
        /// Who held it shortly before the wait was over. Empty if the store does not tell or did not answer in time, and
        /// if the lock was never asked for, because other tasks of this client came first.
        holders: Vec<Holder>,
    },
    /// The grant ended before its guard was released. What it protected may have been changed by another holder.
    #[error(
        "lock {name:?} in {store} was lost: {cause}; what it protected may have been changed by another holder"
    )]
    Lost {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// Why.
        cause: LossCause,
    },
    /// The [`owner`](crate::Lock::owner) holds the name already, in a way that does not include what it asks for, so it
    /// would wait for itself.
    #[error(
        "lock {name:?} in {store} is held {held} by the same owner, who would wait for itself to hold it {wanted}; release it first{}",
        if *held == Mode::Shared { ", or upgrade the reader's guard" } else { "" }
    )]
    WouldDeadlock {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// How the owner holds it.
        held: Mode,
        /// How the owner wants to hold it.
        wanted: Mode,
    },
    /// The store could not be reached or did not answer in time.
    #[error("{store} is unavailable ({during}); check that it runs and can be reached, then try again")]
    Unavailable {
        /// The store.
        store: Arc<str>,
        /// What was being done.
        during: Operation,
        /// What the store or its client library said.
        #[source]
        source: StoreError,
    },
    /// A text that is no lock name.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// An option with a value that it cannot have.
    #[error("{given} is no value for {option}: {allowed}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// What was given.
        given: String,
        /// What would be valid.
        allowed: String,
    },
    /// A URL that names no store.
    #[error("{url:?} names no store: {problem}; {valid}")]
    InvalidUrl {
        /// What was given, without password and query.
        url: String,
        /// What is wrong with it.
        problem: String,
        /// What would be valid.
        valid: String,
    },
    /// The guard's hold is not in a state that allows the call.
    #[error("lock {name:?} in {store} {problem}")]
    Conflict {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// What stands in the way, and what to do.
        problem: String,
    },
    /// Clients disagree about how many permits a semaphore has, or how many parties a latch waits for.
    #[error("the clients of {store} disagree ({during})")]
    Mismatch {
        /// The store.
        store: Arc<str>,
        /// What was being done.
        during: Operation,
        /// Both numbers, in words.
        #[source]
        source: StoreError,
    },
    /// The store lacks an ability.
    #[error("{store} does not support {ability}; docs/choose.md lists the stores that do")]
    Unsupported {
        /// The store.
        store: Arc<str>,
        /// The ability.
        ability: Ability,
    },
    /// [`Locks::close`](crate::Locks::close) was called.
    #[error("these locks of {store} are closed; connect again to take more")]
    Closed {
        /// The store.
        store: Arc<str>,
    },
    /// The store answered that it cannot do what was asked, and asking again will not help.
    #[error("{store} failed ({during})")]
    Store {
        /// The store.
        store: Arc<str>,
        /// What was being done.
        during: Operation,
        /// What the store or its client library said.
        #[source]
        source: StoreError,
    },
}

impl Error {
    /// Whether the same call may succeed later although nobody mends anything.
    ///
    /// Not after a loss: whatever the lock protected has to be looked at first.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Unavailable { .. })
    }

    /// A value that an option cannot have.
    pub fn invalid_option(
        option: &'static str,
        given: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::InvalidOption { option, given: given.to_string(), allowed: allowed.into() }
    }

    /// Adds what was being done, and with which store, to what a backend said.
    #[must_use]
    pub fn from_store(store: &Arc<str>, during: Operation, source: StoreError) -> Self {
        let store = Arc::clone(store);
        match source.kind {
            Kind::Unavailable | Kind::ClaimSpent => Self::Unavailable { store, during, source },
            Kind::Failed => Self::Store { store, during, source },
            Kind::Mismatch => Self::Mismatch { store, during, source },
            Kind::Unsupported(ability) => Self::Unsupported { store, ability },
        }
    }
}

/// Why a lock was not acquired in time.
fn reason(holders: &[Holder]) -> String {
    match holders {
        [] => "another holder has it, or the store is slow to answer".to_owned(),
        [holder] => format!("it is held by {holder}"),
        [holder, others @ ..] => format!("it is held by {holder} and {} others", others.len()),
    }
}

/// What was being done when a store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening the store.
    Connecting,
    /// Acquiring this lock.
    Acquiring(Name),
    /// Extending this lock's lease.
    Extending(Name),
    /// Making this lock's writer a reader, or its reader a writer.
    Converting(Name),
    /// Releasing this lock.
    Releasing(Name),
    /// Counting down at this latch, or looking at it.
    AtLatch(Name),
    /// Asking who holds what.
    Looking,
    /// Releasing this lock by force.
    Forcing(Name),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => write!(f, "connecting"),
            Self::Acquiring(name) => write!(f, "acquiring {name:?}"),
            Self::Extending(name) => write!(f, "extending {name:?}"),
            Self::Converting(name) => write!(f, "converting {name:?}"),
            Self::Releasing(name) => write!(f, "releasing {name:?}"),
            Self::AtLatch(name) => write!(f, "at the latch {name:?}"),
            Self::Looking => write!(f, "asking who holds what"),
            Self::Forcing(name) => write!(f, "releasing {name:?} by force"),
        }
    }
}
