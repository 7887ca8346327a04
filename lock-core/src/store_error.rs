//! What a backend says when it cannot answer.

use crate::Ability;
use std::fmt;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store gave no answer. [`Locks`](crate::Locks) adds the lock's and the store's name and makes it an
/// [`Error`](crate::Error).
///
/// # Examples
///
/// ```
/// use tenure_core::StoreError;
///
/// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// assert!(StoreError::unavailable(refused).is_unavailable());
/// assert!(!StoreError::failed("permission denied on the table; GRANT INSERT, UPDATE, DELETE").is_unavailable());
/// ```
#[derive(Debug)]
pub struct StoreError {
    pub(crate) kind: Kind,
    pub(crate) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unavailable,
    /// The same, and the claim is of no use any more.
    ClaimSpent,
    Failed,
    Mismatch,
    Unsupported(Ability),
}

impl StoreError {
    /// The store could not be asked or did not answer. It may have carried out the request; it may answer later.
    pub fn unavailable(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Unavailable, cause: cause.into() }
    }

    /// As [`unavailable`](Self::unavailable), to an attempt with a claim that must not be used again: a request that ends
    /// what this claim holds may still be on its way, and would end what it is granted next.
    ///
    /// [`Locks`](crate::Locks) withdraws the claim, and asks again with another.
    pub fn claim_spent(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::ClaimSpent, cause: cause.into() }
    }

    /// The store answered, and asking again will not help before somebody mends it: no permission, a full disk, a
    /// table of another shape. Say what to do.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Failed, cause: cause.into() }
    }

    /// This client counts on another number of permits or parties than those who came before it. Say both numbers.
    pub fn mismatch(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Mismatch, cause: cause.into() }
    }

    /// The store has no such ability.
    #[must_use]
    pub fn unsupported(ability: Ability) -> Self {
        Self { kind: Kind::Unsupported(ability), cause: format!("it does not support {ability}").into() }
    }

    /// Whether asking again may help.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::ClaimSpent)
    }

    /// Whether asking again is for another claim: see [`claim_spent`](Self::claim_spent).
    #[must_use]
    pub fn spends_claim(&self) -> bool {
        self.kind == Kind::ClaimSpent
    }

    /// What the store or its client library said.
    #[must_use]
    pub fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.cause
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}
