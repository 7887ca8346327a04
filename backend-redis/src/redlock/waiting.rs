//! How a claim is repeated: while votes are split, and until a majority grants it.

use super::{attempt::Outcome, voters::Voters};
use crate::timing::pause;
use std::time::Duration;
use tenure_core::{Attempt, Claim, Grant, StoreError};
use tokio::time::{Instant, sleep, timeout};

/// The longest pause after the first split vote, and after many.
const SPLIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

impl Voters {
    /// Asks, and asks again while votes are split.
    pub(crate) async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        Ok(match self.ask(claim, &mut SPLIT.0.clone()).await? {
            Outcome::Granted(grant) => Attempt::Granted(grant),
            Outcome::Refused { free_in, .. } => Attempt::Busy { expires_in: free_in },
        })
    }

    /// Asks, and asks again while votes are split, for about as long as one server may take to answer.
    ///
    /// When clients ask at the same time, each may get some of the servers and none a majority. They withdraw their
    /// votes and pause for a random time, up to the window, which doubles each time, so that sooner or later one is
    /// alone. Votes are split, too, while a few servers have not heard of a release yet, and others not of a withdrawal.
    async fn ask(&self, claim: &Claim, window: &mut Duration) -> Result<Outcome, StoreError> {
        let until = Instant::now() + self.patience(claim.lease);
        loop {
            let outcome = self.attempt(claim).await?;
            // If votes stay split, the lock is held: a server that was away does not know of the holder.
            if !outcome.is_split() || *window == SPLIT.1 || Instant::now() >= until {
                return Ok(outcome);
            }
            sleep(window.mul_f64(fastrand::f64())).await;
            *window = (*window * 2).min(SPLIT.1);
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
        let mut window = SPLIT.0;
        loop {
            let told = hints.next();
            let (free_in, split) = match self.ask(claim, &mut window).await? {
                Outcome::Granted(grant) => return Ok(grant),
                Outcome::Refused { free_in, split } => (free_in, split),
            };
            if split {
                sleep(window.mul_f64(fastrand::f64())).await;
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
