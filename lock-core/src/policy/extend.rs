//! A lease that is extended by hand.

use super::holding::Holding;
use crate::{Ability, Doing, Error, Moment, Renewal, Standing, StoreError};
use std::{sync::Arc, time::Duration};

impl Holding {
    pub(crate) async fn extend(self: &Arc<Self>, lease: Duration) -> Result<(), Error> {
        if !matches!(self.grant.standing, Standing::Lease { .. }) {
            return Err(self.extending(StoreError::unsupported(Ability::Extending)));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        let mut extending = Extending { hold: self, lease, sent: Moment::now(), answer: Renewal::Unanswered };
        self.extension_sent(lease, extending.sent);
        let grant = self.grant_now();
        let answers = self.shared.backend.renew(&[grant]).await.map_err(|error| self.extending(error))?;
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
        Error::from_store(&self.shared.store, Doing::Extending(self.grant.name.clone()), error)
    }
}

/// An extension on its way. The answer is taken in when it is dropped, also when it is given up.
struct Extending<'a> {
    hold: &'a Arc<Holding>,
    lease: Duration,
    sent: Moment,
    answer: Renewal,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        let _ = self.hold.finish_renewal(self.lease, self.sent, self.answer);
        if let Some(at) = self.hold.next_event() {
            self.hold.shared.renewal.move_to(self.hold, at);
        }
    }
}
