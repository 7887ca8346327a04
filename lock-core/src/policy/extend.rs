//! A lease that is extended by hand.

use super::hold::Hold;
use crate::{Ability, Error, Moment, Operation, Renewal, Standing, StoreError, lease};
use std::time::Duration;

impl Hold {
    /// Sets the lease to `lease` from now, by asking the store.
    ///
    /// For locks taken with [`renew(false)`](crate::Lock::renew); where renewal is on, it goes on with the new lease.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. The hold then believes in the shorter of the old and the new lease.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lease had run out, or another holds the lock; [`Error::Unavailable`] when the store
    /// did not answer: the old lease still stands; [`Error::InvalidOption`] for a lease out of range;
    /// [`Error::Unsupported`] where a session keeps the grant.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = lease::check("lease", lease, lease::MIN_LEASE)?;
        let holding = &self.holding;
        if !matches!(holding.grant.standing, Standing::Lease { .. }) {
            return Err(self.extending(StoreError::unsupported(Ability::Extending)));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        let mut extending = Extending { hold: self, lease, sent: Moment::now(), answer: Renewal::Unanswered };
        holding.extension_sent(lease, extending.sent);
        let answers = holding.store.backend.renew(&[holding.grant_now()]).await;
        let answers = answers.map_err(|error| self.extending(error))?;
        let answer = answers.first().copied().unwrap_or(Renewal::Unanswered);
        extending.answer = answer;
        drop(extending);
        match answer {
            Renewal::Renewed if self.is_held() => Ok(()),
            Renewal::Unanswered => Err(self.extending(StoreError::unavailable("too few answers"))),
            Renewal::Renewed | Renewal::Lost(_) => Err(self.lost_error()),
        }
    }

    fn extending(&self, error: StoreError) -> Error {
        self.client.store.failed(Operation::Extending(self.name().clone()), error)
    }
}

/// An extension on its way. The answer is taken in when it is dropped, also when it is given up.
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
