//! Endings that one server has not confirmed.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{ClaimId, Moment};

/// How many claims may be pending. Beyond that, leases expire by themselves.
const MOST: usize = 2000;

/// The endings that are repeated until one server confirms them: for each claim the last, which covers all before it.
///
/// A claim that waits makes an attempt every second or two. While a server hangs, it confirms none of their endings.
#[derive(Clone, Default)]
pub(crate) struct PendingEndings(Arc<Mutex<HashMap<ClaimId, LastEnding>>>);

/// The last attempt of a claim to end, and until when its lease may stand.
#[derive(Clone, Copy)]
pub(crate) struct LastEnding {
    pub(crate) attempt: u64,
    pub(crate) until: Moment,
}

impl PendingEndings {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, LastEnding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an ending: of the claim's attempts up to this one. Returns it for a task to repeat; `None` if another task
    /// does so already, or too many are pending.
    pub(crate) fn add(&self, claim: ClaimId, attempt: u64, lease: Duration) -> Option<PendingEnding> {
        let (mut claims, until) = (self.claims(), Moment::now() + lease);
        let is_full = claims.len() >= MOST;
        match claims.entry(claim) {
            Entry::Occupied(mut known) => {
                let last = known.get_mut();
                *last = LastEnding { attempt: last.attempt.max(attempt), until: last.until.max(until) };
                None
            }
            Entry::Vacant(place) if !is_full => {
                place.insert(LastEnding { attempt, until });
                Some(PendingEnding { endings: self.clone(), claim, is_settled: false })
            }
            Entry::Vacant(_) => None,
        }
    }
}

/// An ending that a task repeats. Dropped with the task, it is forgotten.
pub(crate) struct PendingEnding {
    endings: PendingEndings,
    claim: ClaimId,
    is_settled: bool,
}

impl PendingEnding {
    /// The ending to send now.
    pub(crate) fn last(&self) -> Option<LastEnding> {
        self.endings.claims().get(&self.claim).copied()
    }

    /// Notes that there is no more to do about this attempt. `false` if a later one was added meanwhile.
    pub(crate) fn settle(&mut self, attempt: u64) -> bool {
        let mut claims = self.endings.claims();
        self.is_settled = claims.get(&self.claim).is_none_or(|last| last.attempt <= attempt);
        if self.is_settled {
            claims.remove(&self.claim);
        }
        self.is_settled
    }
}

impl Drop for PendingEnding {
    fn drop(&mut self) {
        if !self.is_settled {
            self.endings.claims().remove(&self.claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_mins(10);

    #[tokio::test(start_paused = true)]
    async fn claim_ending_is_repeated_once_with_its_last_attempt() {
        let (endings, claim, other) = (PendingEndings::default(), ClaimId::new(), ClaimId::new());
        let mut pending = endings.add(claim, 1, LEASE).expect("the first");
        assert!(endings.add(other, 1, LEASE).is_some(), "another claim");
        tokio::time::sleep(LEASE / 2).await;
        for attempt in [3, 2] {
            assert!(endings.add(claim, attempt, LEASE).is_none());
        }
        let last = pending.last().expect("not settled");
        assert!(last.attempt == 3 && last.until.left() > LEASE * 9 / 10);
        assert!(!pending.settle(1), "a later one is to be ended");
        assert!(pending.settle(3));
        let next = endings.add(claim, 4, LEASE).expect("settled");
        // A settled ending leaves the next alone, and an unsettled one goes with its task.
        drop(pending);
        assert!(endings.add(claim, 5, LEASE).is_none());
        drop(next);
        assert_eq!(endings.claims().len(), 0);
    }

    #[test]
    fn endings_above_the_limit_are_left_to_their_leases() {
        let endings = PendingEndings::default();
        let all: Vec<_> = (0..MOST).map(|_| endings.add(ClaimId::new(), 1, LEASE)).collect();
        assert!(all.iter().all(Option::is_some) && endings.add(ClaimId::new(), 1, LEASE).is_none());
    }
}
