//! How a claim is repeated: while votes are split, and until a majority grants it.

use super::{attempt::Outcome, voters::Voters};
use crate::timing::pause;
use std::time::Duration;
use tenure_core::{Attempt, Claim, Grant, StoreError};
use tokio::time::{Instant, sleep, timeout};

/// The longest pause after the first split vote, and after many.
const SPLIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// The pauses after split votes.
///
/// When clients ask at the same time, each may get some of the servers and none a majority. They withdraw their votes
/// and pause for a random time, longer each time, so that sooner or later one is alone. Votes are split, too, while some
/// servers have not heard of a release yet, and others not of a withdrawal.
struct Pauses {
    longest: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { longest: SPLIT.0 }
    }

    /// The next pause, and whether to ask again after it. If votes stay split, the lock is held: a server that was away
    /// does not know of the holder.
    fn next(&mut self) -> (Duration, bool) {
        let (pause, again) = (self.longest.mul_f64(fastrand::f64()), self.longest < SPLIT.1);
        self.longest = (self.longest * 2).min(SPLIT.1);
        (pause, again)
    }
}

impl Voters {
    /// Asks, and asks again while votes are split, for as long as one server may take to answer, or for a third of the
    /// lease.
    pub(crate) async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let until = Instant::now() + self.patience(claim.lease / 3);
        let mut pauses = Pauses::new();
        loop {
            let (free_in, split) = match self.attempt(claim).await? {
                Outcome::Granted(grant) => return Ok(Attempt::Granted(grant)),
                Outcome::Refused { free_in, split } => (free_in, split),
            };
            let (pause, again) = pauses.next();
            if !split || !again || Instant::now() + pause >= until {
                return Ok(Attempt::Busy { expires_in: free_in });
            }
            sleep(pause).await;
        }
    }

    /// Asks, and asks again whenever a majority may be free.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let free_in = match self.attempt(claim).await? {
            Outcome::Granted(grant) => return Ok(grant),
            Outcome::Refused { free_in, .. } => free_in,
        };
        let hints = self.listen(&claim.name);
        // Servers that do not confirm in time are asked anyway. If they confirm later, that is a hint like any other.
        let _ = timeout(pause(free_in), hints.confirmed()).await;
        let mut pauses = Pauses::new();
        loop {
            let told = hints.next();
            let (free_in, split) = match self.attempt(claim).await? {
                Outcome::Granted(grant) => return Ok(grant),
                Outcome::Refused { free_in, split } => (free_in, split),
            };
            if split {
                let (pause, again) = pauses.next();
                sleep(pause).await;
                if again {
                    continue;
                }
            }
            // Only a release resets the pauses. A vote that was not split may just have come too late.
            if told.gathered(pause(free_in)).await {
                pauses = Pauses::new();
            }
        }
    }

    /// Waits for news of a release, at most for `at_most`.
    pub(crate) async fn wait_for_release(&self, claim: &Claim, at_most: Duration) {
        let _ = timeout(at_most, self.listen(&claim.name).announced()).await;
    }
}
