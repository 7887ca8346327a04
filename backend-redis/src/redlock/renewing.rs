//! Renewals that one server has not answered, and which may cut a later one short.

use crate::{recent::Recent, timing::LONGEST_STRAGGLER};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{Grant, Moment, Renewal};

/// The renewals that were sent to one server and are not answered, for each claim.
///
/// A majority decides about a renewal, often before the last server has answered. That one may be asked again on
/// another connection, and carry out the two requests in any order. So while a request for a shorter lease is open, its
/// yes to a longer one proves nothing.
#[derive(Default)]
pub(crate) struct OpenRenewals(Mutex<Recent<Vec<Open>>>);

#[derive(PartialEq, Eq)]
struct Open {
    lease: Duration,
    sent: Moment,
}

/// A renewal of several leases that is on its way.
pub(crate) struct Renewing {
    sent: Moment,
    /// For each lease, whether a request for a shorter one was open when this was sent.
    crosses: Vec<bool>,
}

impl OpenRenewals {
    fn claims(&self) -> MutexGuard<'_, Recent<Vec<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a renewal is about to be sent.
    pub(crate) fn asked(&self, grants: &[Grant]) -> Renewing {
        let (mut claims, sent) = (self.claims(), Moment::now());
        let asked = |grant: &Grant| {
            let requests = claims.touch(grant.claim, sent);
            requests.retain(|open| sent.since(open.sent) < LONGEST_STRAGGLER);
            let crosses = requests.iter().any(|open| open.lease < grant.lease);
            requests.push(Open { lease: grant.lease, sent });
            crosses
        };
        Renewing { sent, crosses: grants.iter().map(asked).collect() }
    }

    /// Notes the answers to a renewal, and returns the renewals that they prove.
    pub(crate) fn answered(
        &self,
        grants: &[Grant],
        renewing: &Renewing,
        mut answers: Vec<Renewal>,
    ) -> Vec<Renewal> {
        let mut claims = self.claims();
        for ((grant, answer), crosses) in grants.iter().zip(&mut answers).zip(&renewing.crosses) {
            if *answer == Renewal::Unanswered {
                continue;
            }
            if let Some(requests) = claims.get_mut(grant.claim) {
                let this = Open { lease: grant.lease, sent: renewing.sent };
                if let Some(at) = requests.iter().position(|open| *open == this) {
                    requests.swap_remove(at);
                }
                if requests.is_empty() {
                    claims.remove(grant.claim);
                }
            }
            if *crosses && *answer == Renewal::Renewed {
                *answer = Renewal::Unanswered;
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{ClaimId, LossCause, Mode, Name, Standing, Token};

    fn grant(claim: ClaimId, minutes: u64) -> [Grant; 1] {
        let (name, lease) = (Name::new("a").unwrap(), Duration::from_mins(minutes));
        let standing = Standing::Lease { sent: Moment::now(), stands: lease };
        let (mode, token) = (Mode::Exclusive, Token::MIN);
        [Grant { claim, name, mode, token, reserved: 0, lease, standing, epoch: None }]
    }

    #[tokio::test(start_paused = true)]
    async fn longer_renewal_counts_once_no_shorter_one_can_come() {
        let (open, claim) = (OpenRenewals::default(), ClaimId::new());
        let (short, long, other) = (grant(claim, 1), grant(claim, 2), grant(ClaimId::new(), 2));
        let says = |grants: &[Grant], answer| open.answered(grants, &open.asked(grants), vec![answer]);
        let first = open.asked(&short);
        assert_eq!(says(&short, Renewal::Renewed), [Renewal::Renewed], "no shorter one");
        assert_eq!(says(&other, Renewal::Renewed), [Renewal::Renewed], "another claim");
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Unanswered]);
        let lost = Renewal::Lost(LossCause::Expired);
        assert_eq!(says(&long, lost), [lost], "a shorter one brings nothing back");
        assert_eq!(open.answered(&short, &first, vec![Renewal::Unanswered]), [Renewal::Unanswered]);
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Unanswered], "it may still come");
        open.answered(&short, &first, vec![Renewal::Renewed]);
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Renewed]);
        assert!(!open.claims().contains(claim));
        open.asked(&short);
        tokio::time::sleep(LONGEST_STRAGGLER * 2).await;
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Renewed], "too old to come");
    }
}
