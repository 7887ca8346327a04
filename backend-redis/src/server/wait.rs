//! How a claim waits until it is granted: for news of a release, or in a queue.

use super::{
    Server,
    attempt::{Attempted, Leaves},
};
use crate::{
    connection::notices::Notice,
    timing::{STANDS, pause, show_up, soon_after},
};
use std::time::Duration;
use tenure_core::{Attempt, Claim, Grant, Moment, StoreError, lease};
use tokio::time::{Instant, sleep_until, timeout};

impl Server {
    /// Asks, and asks again whenever the lock may be free.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let expires_in = match self.ask(claim, Leaves::Nothing).await?.attempt {
            Attempt::Granted(grant) => return Ok(grant),
            Attempt::Busy { expires_in } => expires_in,
        };
        let channel = self.subscriptions.listen(&self.lock_key(&claim.name));
        // A server that does not confirm in time is asked anyway. If it confirms later, that is a hint like any other.
        let _ = timeout(pause(expires_in), channel.confirmed()).await;
        loop {
            let released = channel.next();
            tokio::pin!(released);
            released.as_mut().enable();
            match self.ask(claim, Leaves::Stop).await?.attempt {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => drop(timeout(pause(expires_in), released).await),
            }
        }
    }

    /// Waits for news of a release, at most for `at_most`.
    pub(crate) async fn wait_for_release(&self, claim: &Claim, at_most: Duration) {
        let channel = self.subscriptions.listen(&self.lock_key(&claim.name));
        let _ = timeout(at_most, channel.hint()).await;
    }

    /// Waits in the queue for its turn, and shows up there now and then.
    pub(crate) async fn wait_in_turn(&self, claim: &Claim) -> Result<Grant, StoreError> {
        // A waiter that cannot be reached is skipped, so a claim is queued once its client listens, or
        // the lock may be free.
        let inbox = if let Some(inbox) = self.confirmed_inbox() {
            inbox
        } else {
            let expires_in = match self.ask(claim, Leaves::Nothing).await?.attempt {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => expires_in,
            };
            let inbox = self.inbox();
            let _ = timeout(show_up(expires_in), inbox.confirmed()).await;
            inbox
        };
        let mut waiting = self.queued.wait(claim.id);
        loop {
            // Fires when the connection was replaced, because a message may have been missed.
            let interrupted = inbox.next();
            tokio::pin!(interrupted);
            interrupted.as_mut().enable();
            // The answer includes earlier messages. After a failover, these are from another server, with another
            // clock.
            waiting.forget();
            let asked = self.ask(claim, Leaves::Place(&inbox)).await?;
            let expires_in = match asked.attempt {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => expires_in,
            };
            let mut look_at = Instant::now() + show_up(expires_in);
            loop {
                tokio::select! {
                    biased;
                    () = &mut interrupted => break,
                    note = waiting.note() => match note {
                        // Asks again, so that the grant counts only once replicas have it.
                        Notice::Turn { .. } if self.is_replicated() => break,
                        Notice::Turn { token, at } => match asked.before(at) {
                            Some(sent) => return Ok(Grant::handed_over(claim, token, sent, STANDS)),
                            None => break,
                        },
                        Notice::Look { after } => look_at = look_at.min(Instant::now() + soon_after(after)),
                    },
                    () = sleep_until(look_at) => break,
                }
            }
        }
    }
}

impl Attempted {
    /// An instant before the server's clock showed `at`, if that was after this answer; otherwise `None`. Also `None`
    /// if it cannot show that yet: then another server has said so, as before a failover, or its clock was set.
    ///
    /// The answer was given after `sent`. So an event some time after it by the server's clock came at least that long
    /// after `sent`, less the possible difference between the clocks' rates.
    fn before(&self, at: Duration) -> Option<Moment> {
        let (since, passed) = (at.checked_sub(self.at?)?, Moment::now().since(self.sent));
        if since > passed + lease::drift_allowance(passed) {
            return None;
        }
        Some((self.sent + since * 99 / 100).min(Moment::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hand_over_is_dated_by_the_answer_before_it() {
        let sent = Moment::now();
        let at = Some(Duration::from_secs(1_700_000_000));
        let asked = Attempted { attempt: Attempt::Busy { expires_in: None }, sent, at };
        tokio::time::sleep(Duration::from_secs(2)).await;
        let handed_over = |after: Duration| asked.before(asked.at.unwrap() + after);
        assert_eq!(handed_over(Duration::from_secs(1)).unwrap(), sent + Duration::from_millis(990));
        // Never later than now, at any rates of the clocks.
        assert!(handed_over(Duration::from_millis(2021)).unwrap() <= sent + Duration::from_micros(2_000_500));
        // The server's clock cannot show that yet.
        assert_eq!(handed_over(Duration::from_secs(3)), None);
        // A hand-over from before the answer is void: the answer was that another holds the lock.
        assert_eq!(asked.before(Duration::from_secs(1_600_000_000)), None);
    }
}
