//! Claims with an unanswered request to one server, which may still be on its way.

use crate::recent::Recent;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::{ClaimId, Moment};

/// How many requests for each claim are on their way to one server, or were never answered by it.
///
/// A majority decides before the slow servers answer, so a claim may be withdrawn meanwhile. So each request is noted
/// when it is sent. (The doubts about a single server are noted only when a caller gives up, and an answered request
/// costs nothing.)
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<Recent<usize>>);

impl Unanswered {
    fn claims(&self) -> MutexGuard<'_, Recent<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request for `claim` is about to be sent.
    pub(crate) fn asked(&self, claim: ClaimId) {
        // A claim whose hold was lost is never withdrawn: its entry is forgotten after a while.
        *self.claims().touch(claim, Moment::now()) += 1;
    }

    /// Notes that a request was answered, or never sent.
    pub(crate) fn answered(&self, claim: ClaimId) {
        let mut claims = self.claims();
        let left = claims.get_mut(claim).map(|requests| {
            *requests -= 1;
            *requests
        });
        if left == Some(0) {
            claims.remove(claim);
        }
    }

    pub(crate) fn contains(&self, claim: ClaimId) -> bool {
        self.claims().contains(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_open_until_every_request_was_answered() {
        let (unanswered, claim, other) = (Unanswered::default(), ClaimId::new(), ClaimId::new());
        unanswered.asked(claim);
        unanswered.asked(claim);
        unanswered.answered(claim);
        assert!(unanswered.contains(claim) && !unanswered.contains(other));
        unanswered.answered(claim);
        assert!(!unanswered.contains(claim));
        unanswered.answered(claim);
        assert!(!unanswered.contains(claim));
    }
}
