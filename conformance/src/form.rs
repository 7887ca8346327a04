//! The forms in which a name can be locked.

use serde::{Deserialize, Serialize};
use tenure_core::{Lock, Locks};

/// A form in which a name can be locked. Groups that are about locks in general run in several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// [`Locks::lock`].
    Lock,
    /// The readers' side of [`Locks::rw`].
    Reader,
    /// The writers' side of [`Locks::rw`].
    Writer,
    /// One permit of [`Locks::semaphore`], with this many permits.
    Permit(u32),
    /// All permits of such a semaphore.
    AllPermits(u32),
}

impl Form {
    /// The lock of this name in this form.
    pub(crate) fn of(self, locks: &Locks, name: impl AsRef<str>) -> Lock {
        match self {
            Self::Lock => locks.lock(name),
            Self::Reader => locks.rw(name).read(),
            Self::Writer => locks.rw(name).write(),
            Self::Permit(of) => locks.semaphore(name, of).permit(),
            Self::AllPermits(of) => locks.semaphore(name, of).permits(of),
        }
    }

    /// The form that cannot be held beside this one, nor beside anything else.
    pub(crate) const fn rival(self) -> Self {
        match self {
            Self::Lock => Self::Lock,
            Self::Reader | Self::Writer => Self::Writer,
            Self::Permit(of) | Self::AllPermits(of) => Self::AllPermits(of),
        }
    }
}
