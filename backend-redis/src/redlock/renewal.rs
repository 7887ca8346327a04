//! How leases are renewed: by a majority, and only on servers that still have the key.

use super::{ending::most, quorum::Quorum, voters::Voters};
use std::sync::Arc;
use tenure_core::{Grant, LossCause, Renewal, StoreError};
use tokio::time::{Instant, timeout_at};

/// The servers' answers about one grant.
#[derive(Clone, Default)]
struct RenewalCount {
    renewed: usize,
    lost: Vec<LossCause>,
}

impl RenewalCount {
    fn add(&mut self, answer: Renewal) {
        match answer {
            Renewal::Renewed => self.renewed += 1,
            Renewal::Lost(cause) => self.lost.push(cause),
            Renewal::Unanswered => {}
        }
    }

    fn verdict(&self, quorum: Quorum) -> Renewal {
        if quorum.is_met(self.renewed) {
            Renewal::Renewed
        } else if quorum.is_beyond(self.lost.len()) {
            Renewal::Lost(most(&self.lost))
        } else {
            Renewal::Unanswered
        }
    }
}

impl Voters {
    /// Renews each lease on every server that still has its key. A majority decides. A silent server does not delay the
    /// others' decision.
    pub(crate) async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let Some(lease) = grants.iter().map(|grant| grant.lease).min() else { return Ok(Vec::new()) };
        let shared: Arc<[Grant]> = grants.into();
        // Less than the caller's wait of a sixth of the lease: decided answers must not be lost with undecided ones.
        let until = Instant::now() + lease / 9;
        let mut answers = self.each(self.patience(lease), |voter| {
            let grants = Arc::clone(&shared);
            // Before the task starts: a later renewal may overtake it.
            let renewing = voter.will_renew(&grants);
            async move { voter.renew(&grants, &renewing).await }
        });
        let (mut counts, mut silent) = (vec![RenewalCount::default(); grants.len()], Vec::new());
        let verdicts = |counts: &[RenewalCount]| -> Vec<Renewal> {
            counts.iter().map(|count| count.verdict(self.quorum)).collect()
        };
        let mut heard = 0;
        loop {
            let next = if self.quorum.is_met(heard) {
                timeout_at(until, answers.next()).await.unwrap_or_default()
            } else {
                answers.next().await
            };
            let Some((_, answer)) = next else { break };
            match answer {
                Ok(answers) => {
                    heard += 1;
                    counts.iter_mut().zip(answers).for_each(|(count, answer)| count.add(answer));
                }
                Err(error) => silent.push(error.into()),
            }
            let verdicts = verdicts(&counts);
            if !verdicts.contains(&Renewal::Unanswered) {
                return Ok(verdicts);
            }
        }
        if self.quorum.is_met(heard) { Ok(verdicts(&counts)) } else { Err(self.quorum.too_few(silent)) }
    }
}
