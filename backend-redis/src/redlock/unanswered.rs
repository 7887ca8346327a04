//! Claims with an unanswered request to one server, which may still be on its way.

use crate::timing::LONGEST_STRAGGLER;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tenure_core::{ClaimId, Moment};

/// How many requests for each claim are on their way to one server, or were never answered by it.
///
/// Unlike the doubts about a single server, these begin when a request is sent, because a claim may be withdrawn while
/// a server's answer may still come. The caller of a single server waits for the answer, so there a doubt begins when
/// the request is dropped, and an answered request costs nothing.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ClaimId, Open>>);

struct Open {
    requests: usize,
    last: Moment,
}

impl Unanswered {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request for `claim` is about to be sent.
    pub(crate) fn asked(&self, claim: ClaimId) {
        let mut claims = self.claims();
        // A claim whose hold was lost is never withdrawn: its entry is dropped here after a while.
        claims.retain(|_, open| Moment::now().since(open.last) < LONGEST_STRAGGLER);
        let open = claims.entry(claim).or_insert(Open { requests: 0, last: Moment::now() });
        open.requests += 1;
        open.last = Moment::now();
    }

    /// Notes that a request was answered, or never sent.
    pub(crate) fn answered(&self, claim: ClaimId) {
        let mut claims = self.claims();
        if let Some(open) = claims.get_mut(&claim) {
            open.requests -= 1;
            if open.requests == 0 {
                claims.remove(&claim);
            }
        }
    }

    pub(crate) fn contains(&self, claim: ClaimId) -> bool {
        self.claims().contains_key(&claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_open_until_every_request_was_answered() {
        let (unanswered, claim, other) = (Unanswered::default(), ClaimId::new(), ClaimId::new());
        unanswered.asked(claim);
        unanswered.asked(claim);
        unanswered.answered(claim);
        assert!(unanswered.contains(claim) && !unanswered.contains(other));
        unanswered.answered(claim);
        assert!(!unanswered.contains(claim));
        unanswered.answered(claim);
        unanswered.asked(claim);
        tokio::time::sleep(LONGEST_STRAGGLER).await;
        unanswered.asked(other);
        assert!(!unanswered.contains(claim) && unanswered.contains(other));
    }
}
