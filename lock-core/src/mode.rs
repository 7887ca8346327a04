//! How a name is held.

use std::num::NonZeroU32;

/// How a claim wants to hold its name.
///
/// Part of the [`Backend`](crate::Backend) trait from the start, so that a store's schema need not change later. Today
/// [`Locks`](crate::Locks) asks for [`Exclusive`](Self::Exclusive) only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: nobody else holds the name in any mode.
    #[default]
    Exclusive,
    /// With other readers, and with no exclusive holder.
    Shared,
    /// `take` of the name's `of` permits, all or nothing.
    Permit {
        /// How many permits this claim wants.
        take: NonZeroU32,
        /// How many permits the name has; clients must agree.
        of: NonZeroU32,
    },
}
