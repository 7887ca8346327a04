//! The next waiter, and the waiters that should ask again after a change.

use super::{Bell, Held, Record, StoreTime};
use crate::contract::ClaimId;

/// The waiters that should ask again after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// None: the change lets no waiter in.
    Nobody,
    /// The first in the queue, whose turn it is now.
    First {
        /// Its claim.
        claim: ClaimId,
        /// The bell of its client, if it has one.
        bell: Option<Bell>,
    },
    /// All waiters, in a store without a queue.
    All {
        /// The bell of one of them, if it has one. The record does not know the others.
        bell: Option<Bell>,
    },
}

impl Wake {
    /// The bell to ring.
    #[must_use]
    pub fn bell(self) -> Option<Bell> {
        match self {
            Self::Nobody => None,
            Self::First { bell, .. } | Self::All { bell } => bell,
        }
    }
}

impl Record {
    /// The next claim: the first in the queue, if it would be granted the name now.
    #[must_use]
    pub fn next(&self, now: StoreTime) -> Option<ClaimId> {
        let (claim, mode) = self.queue.first(now)?;
        mode.admits(self.live(now).map(|held| held.mode)).then_some(claim)
    }

    /// Which waiters should ask again after a change, given the record as it was `before`. A store that can tell its
    /// waiters tells these; it is only a hint (clause W4).
    #[must_use]
    pub fn wakes(&self, before: &Self, now: StoreTime) -> Wake {
        if self.queue.first(now).is_some() {
            let next = self.next(now).filter(|next| before.next(now) != Some(*next));
            return next.map_or(Wake::Nobody, |claim| Wake::First { claim, bell: self.queue.bell(claim) });
        }
        let Some(mark) = before.mark.as_ref().filter(|mark| mark.stands(now)) else { return Wake::Nobody };
        let stays = |was: &Held| self.live(now).any(|held| held.claim == was.claim && held.mode == was.mode);
        let holder_left = before.live(now).any(|was| !stays(was));
        let holder_came = self.live(now).any(|held| !before.is_held_by(held.claim, now));
        // A mark that replaces it keeps out the same claims, unless that one would share the name.
        let mark_is_gone = self.mark.as_ref().is_none_or(|now| mark.is_alone() && !now.is_alone());
        if !holder_came && (holder_left || mark_is_gone) {
            Wake::All { bell: mark.bell() }
        } else {
            Wake::Nobody
        }
    }
}
