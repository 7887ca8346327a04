//! A lease that is extended by hand.

use super::hold::Hold;
use crate::{Capability, Error, Moment, Operation, Renewal, Standing, StoreError, lease};
use std::time::Duration;

impl Hold {
    /// Extends the lease: asks the store to make it `lease` from now.
    ///
    /// For locks acquired with [`renew(false)`](crate::Lock::renew). If renewal is on, it goes on with the new lease,
    /// which is never shorter than what is left of [`hold_at_least`](crate::Lock::hold_at_least).
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. The hold then relies on the shorter of the old and the new lease.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease has expired or another holds the lock; [`Error::Unavailable`] if the store did not
    /// answer, and then the old lease still stands; [`Error::InvalidOption`] for a lease out of range;
    /// [`Error::Unsupported`] if a session keeps the grant.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = lease::check("lease", lease, lease::MIN_LEASE)?;
        let holding = &self.holding;
        let lease = lease.max(holding.stays_for().unwrap_or_default());
        if !matches!(holding.grant.standing, Standing::Lease { .. }) {
            return Err(self.extending(StoreError::unsupported(Capability::Extending)));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        let mut extending = Extending { hold: self, lease, sent: Moment::now(), answer: Renewal::Unanswered };
        holding.extension_sent(lease, extending.sent);
        let answers = holding.store.renew(&[holding.grant_now()]).await;
        let answers = answers.map_err(|error| self.extending(error))?;
        let answer = answers.first().copied().unwrap_or(Renewal::Unanswered);
        extending.answer = answer;
        drop(extending);
        match answer {
            Renewal::Renewed if self.is_held() => Ok(()),
            Renewal::Unanswered => {
                Err(self.extending(StoreError::unavailable("the store did not answer for this lock")))
            }
            Renewal::Renewed | Renewal::Lost(_) => Err(self.lost_error()),
        }
    }

    fn extending(&self, error: StoreError) -> Error {
        self.client.store.failed(Operation::Extending(self.name().clone()), error)
    }
}

/// An extension on its way. Dropping it records the answer, even if the extension was cancelled.
struct Extending<'a> {
    hold: &'a Hold,
    lease: Duration,
    sent: Moment,
    answer: Renewal,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        let Hold { client, holding } = self.hold;
        holding.finish_extension(self.lease, self.sent, self.answer);
        client.renewals.move_on(holding);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Locks, Memory};
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn what_must_stay_held_is_not_free_sooner() {
        let (memory, hour, began) = (Memory::new(), Duration::from_hours(1), Instant::now());
        let lock = Locks::new(memory.clone()).lock("a").renew(false).hold_at_least(hour);
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(hour / 4).await;
        guard.extend(hour / 8).await.unwrap();
        // As if the holder's process had died now.
        let next = Locks::new(memory).lock("a").acquire().await.unwrap();
        let stayed = began.elapsed();
        assert!(stayed >= hour && stayed < hour + Duration::from_mins(1), "it stayed held for {stayed:?}");
        assert!(next.is_held() && !guard.is_held());
    }
}
