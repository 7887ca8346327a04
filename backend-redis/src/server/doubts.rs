//! Claims with a request that may still be on its way.

use crate::recent::Recent;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::{ClaimId, Moment};

/// Claims with a request that was sent and never answered.
///
/// The server may carry out such a request after the claim was withdrawn or released: `CLIENT PAUSE` or a network may
/// have delayed it. So ending a claim that is in doubt leaves a mark in the store. Nearly all claims need none.
#[derive(Clone, Default)]
pub(crate) struct Doubts(Arc<Mutex<Recent<()>>>);

impl Doubts {
    fn claims(&self) -> MutexGuard<'_, Recent<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request for `claim` is about to be sent. Dropping the return value puts the claim in doubt, unless
    /// it was [settled](Asking::settle).
    pub(crate) fn asking(&self, claim: ClaimId) -> Asking<'_> {
        Asking { doubts: self, claim, open: true }
    }

    pub(crate) fn contains(&self, claim: ClaimId) -> bool {
        self.claims().contains(claim)
    }

    /// The store now has a mark for it.
    pub(crate) fn remove(&self, claim: ClaimId) {
        self.claims().remove(claim);
    }
}

/// A request on its way.
pub(crate) struct Asking<'a> {
    doubts: &'a Doubts,
    claim: ClaimId,
    open: bool,
}

impl Asking<'_> {
    /// There was an answer, or nothing was sent.
    pub(crate) fn settle(mut self) {
        self.open = false;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.open {
            // A claim whose hold was lost is never released: its entry is forgotten after a while.
            self.doubts.claims().touch(self.claim, Moment::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_in_doubt_until_its_mark_stands() {
        let (doubts, dropped, answered) = (Doubts::default(), ClaimId::new(), ClaimId::new());
        drop(doubts.asking(dropped));
        doubts.asking(answered).settle();
        assert!(doubts.contains(dropped) && !doubts.contains(answered));
        doubts.remove(dropped);
        assert!(!doubts.contains(dropped));
    }
}
