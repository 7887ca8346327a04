//! How a backend reports that it cannot answer.

use crate::contract::Capability;
use std::fmt;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not answer. [`Locks`](crate::Locks) adds the names of lock and store, and makes it an
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
    /// Unavailable, and the claim must not be used again.
    ClaimSpent,
    Failed,
    Mismatch,
    Unsupported(Capability),
}

impl StoreError {
    /// Reports that the store could not be asked or did not answer. It may have carried out the request, and may answer
    /// a later one.
    pub fn unavailable(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Unavailable, cause: cause.into() }
    }

    /// Like [`unavailable`](Self::unavailable), for an attempt whose claim must not be used again: its grant was released
    /// by force, or a request that ends its grant may still be on its way, and would end its next grant too.
    ///
    /// [`Locks`](crate::Locks) withdraws the claim, and asks again with another.
    pub fn claim_spent(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::ClaimSpent, cause: cause.into() }
    }

    /// Reports a failure that asking again does not mend: a missing permission, a full disk, a table with the wrong
    /// columns. Say what to do.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Failed, cause: cause.into() }
    }

    /// Reports that this client expects another number of permits or parties than earlier clients. Say both numbers.
    pub fn mismatch(cause: impl Into<Cause>) -> Self {
        Self { kind: Kind::Mismatch, cause: cause.into() }
    }

    /// Reports that the store does not support this.
    #[must_use]
    pub fn unsupported(capability: Capability) -> Self {
        Self {
            kind: Kind::Unsupported(capability),
            cause: format!("it does not support {capability}").into(),
        }
    }

    /// Returns whether asking again may help.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::ClaimSpent)
    }

    /// Returns whether the next attempt needs a new claim: see [`claim_spent`](Self::claim_spent).
    #[must_use]
    pub fn spends_claim(&self) -> bool {
        self.kind == Kind::ClaimSpent
    }

    /// Returns what the store or its client library said.
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
