//! How a name is held.

use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU32};

/// How a claim wants to hold its name.
///
/// One rule defines each mode: whom it [admits](Self::admits) beside the current holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// No other claim holds the name, in any mode.
    #[default]
    Exclusive,
    /// With other readers, and with no exclusive holder.
    Shared,
    /// `take` of the name's `of` permits, all or nothing.
    Permit {
        /// How many permits this claim takes.
        take: NonZeroU32,
        /// How many permits the name has; clients must agree.
        of: NonZeroU32,
    },
}

impl Mode {
    /// Returns the mode as one word for programs: `exclusive`, `shared`, `permit`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit { .. } => "permit",
        }
    }

    /// Returns whether a claim in this mode may hold the name beside `others`, its current holders. Every store follows
    /// this rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_core::Mode;
    ///
    /// assert!(Mode::Shared.admits([Mode::Shared, Mode::Shared]));
    /// assert!(!Mode::Shared.admits([Mode::Exclusive]));
    /// assert!(Mode::Exclusive.admits([]));
    /// ```
    pub fn admits(self, others: impl IntoIterator<Item = Self>) -> bool {
        let mut taken = 0_u64;
        let alike = others.into_iter().all(|other| match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permit { of, .. }, Self::Permit { take, of: theirs }) => {
                taken += u64::from(take.get());
                of == theirs
            }
            _ => false,
        });
        match self {
            Self::Exclusive | Self::Shared => alike,
            Self::Permit { take, of } => alike && taken + u64::from(take.get()) <= u64::from(of.get()),
        }
    }

    /// Refuses a number of permits that differs from that of `others`, the current holders.
    ///
    /// # Errors
    ///
    /// Both numbers, as text.
    pub fn agrees_with(self, others: impl IntoIterator<Item = Self>) -> Result<(), String> {
        let Self::Permit { of, .. } = self else { return Ok(()) };
        let other = others.into_iter().find_map(|other| match other {
            Self::Permit { of: theirs, .. } if theirs != of => Some(theirs),
            _ => None,
        });
        match other {
            None => Ok(()),
            Some(theirs) => Err(format!(
                "this client expects {of} permits, but the current holders use {theirs}; use the same number in all clients"
            )),
        }
    }

    /// Returns whether holding a name in this mode includes `wanted`: a writer may read.
    #[must_use]
    pub fn covers(self, wanted: Self) -> bool {
        match (self, wanted) {
            (Self::Exclusive, _) | (Self::Shared, Self::Shared) => true,
            (Self::Permit { take, of }, Self::Permit { take: wanted, of: theirs }) => {
                wanted <= take && of == theirs
            }
            _ => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusively"),
            Self::Shared => f.write_str("in shared mode"),
            Self::Permit { take, of } => write!(f, "with {take} of {of} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(take: u32, of: u32) -> Mode {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permit { take: number(take), of: number(of) }
    }

    #[test]
    fn permits_are_added_without_overflow() {
        let most = permits(u32::MAX - 1, u32::MAX);
        assert!(permits(1, u32::MAX).admits([most]) && !permits(2, u32::MAX).admits([most]));
        assert!(!permits(1, 4).admits([permits(1, 3)]), "they disagree about the number");
    }

    #[test]
    fn permits_cover_fewer_of_as_many() {
        let (one, two) = (permits(1, 3), permits(2, 3));
        assert!(two.covers(one) && !one.covers(two) && !two.covers(permits(1, 4)));
        assert!(Mode::Exclusive.covers(one) && !two.covers(Mode::Exclusive) && !two.covers(Mode::Shared));
    }
}
