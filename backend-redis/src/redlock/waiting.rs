//! How a claim waits until a majority grants it.

use super::{attempt::Outcome, voters::Voters};
use crate::timing::pause;
use std::time::Duration;
use tenure_core::{Claim, Grant, StoreError};
use tokio::time::{sleep, timeout};

/// The longest pause after the first split vote, and after many.
const SPLIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

impl Voters {
    /// Asks, and asks again whenever a majority may be free.
    ///
    /// When clients ask at the same time, each may get some of the servers and none a majority. They release their keys
    /// and pause for a random time, longer each time, so that sooner or later one is alone.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let mut window = SPLIT.0;
        let free_in = match self.attempt(claim).await? {
            Outcome::Granted(grant) => return Ok(grant),
            Outcome::Refused { free_in, .. } => free_in,
        };
        let hints = self.listen(&claim.name);
        // Servers that do not confirm in time are asked anyway. If they confirm later, that is a hint like any other.
        let _ = timeout(pause(free_in), hints.confirmed()).await;
        loop {
            let told = hints.next();
            let (free_in, split) = match self.attempt(claim).await? {
                Outcome::Granted(grant) => return Ok(grant),
                Outcome::Refused { free_in, split } => (free_in, split),
            };
            if split {
                sleep(window.mul_f64(fastrand::f64())).await;
                if window < SPLIT.1 {
                    window = (window * 2).min(SPLIT.1);
                    continue;
                }
                // The votes are split because the lock is held: a server that was away does not know of the holder.
            }
            // Only a release resets the pauses. A vote that was not split may just have come too late.
            if told.gathered(pause(free_in)).await {
                window = SPLIT.0;
            }
        }
    }

    /// Waits for news of a release, at most for `at_most`.
    pub(crate) async fn wait_for_release(&self, claim: &Claim, at_most: Duration) {
        let _ = timeout(at_most, self.listen(&claim.name).announced()).await;
    }
}
