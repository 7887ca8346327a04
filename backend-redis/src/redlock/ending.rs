//! How a hold ends: released, or its claim withdrawn.

use super::{
    voter::End,
    voters::{Ending, Voters},
};
use std::time::Duration;
use tenure_core::{ClaimId, Grant, LossCause, Name, Release, StoreError};

/// All attempts of a claim, even of another client: it is never used again. The greatest number that Lua counts
/// exactly.
const ALL: u64 = (1 << 53) - 1;

fn all_of(name: &Name, claim: ClaimId, lease: Duration) -> Ending {
    Ending { name: name.clone(), claim, attempt: ALL, lease }
}

impl Voters {
    /// Releases a grant. It was held until now if a majority says so.
    pub(crate) async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let ending = all_of(&grant.name, grant.claim, grant.lease);
        let mut answers = self.end(&ending, 0..self.all.len());
        let (mut ended, mut nothing, mut anyone_waits, mut silent) = (0, 0, false, Vec::new());
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(End::Ended { awaited }) => {
                    ended += 1;
                    anyone_waits |= awaited;
                }
                Ok(End::Nothing) => nothing += 1,
                Err(silence) => silent.push(silence),
            }
            if self.quorum.is_met(ended) {
                return Ok(Release::Released { awaited: anyone_waits });
            }
            if self.quorum.is_beyond(nothing) {
                return Ok(Release::Lost(self.why(grant).await));
            }
        }
        Err(self.quorum.too_few(silent))
    }

    /// Withdraws a claim. Confirmations from a majority are enough: the others are told in the background.
    pub(crate) async fn withdraw(
        &self,
        name: &Name,
        claim: ClaimId,
        lease: Duration,
    ) -> Result<(), StoreError> {
        let mut answers = self.end(&all_of(name, claim, lease), 0..self.all.len());
        let (mut confirmed, mut silent) = (0, Vec::new());
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(_) => confirmed += 1,
                Err(silence) => silent.push(silence),
            }
            if self.quorum.is_met(confirmed) {
                return Ok(());
            }
        }
        Err(self.quorum.too_few(silent))
    }

    /// Why a grant is gone, as most servers see it. It is certainly gone, even if they do not answer.
    async fn why(&self, grant: &Grant) -> LossCause {
        let mut answers = self.each(self.patience(grant.lease), |voter| {
            let grant = grant.clone();
            async move { voter.server.why(&grant).await }
        });
        let mut causes = Vec::new();
        while let Some((_, answer)) = answers.next().await {
            causes.extend(answer);
            if self.quorum.is_met(causes.len()) {
                break;
            }
        }
        most(&causes)
    }
}

/// The cause that most servers name. In a tie, the more specific one.
pub(crate) fn most(causes: &[LossCause]) -> LossCause {
    let by_what_they_say =
        [LossCause::Forgotten, LossCause::Expired, LossCause::TakenOver, LossCause::Forced];
    let count = |cause: &LossCause| causes.iter().filter(|named| *named == cause).count();
    let told = by_what_they_say.into_iter().filter(|cause| count(cause) > 0);
    told.max_by_key(count).unwrap_or(LossCause::Expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_what_most_nodes_say() {
        use LossCause::{Expired, Forced, Forgotten, TakenOver};
        assert_eq!(most(&[]), Expired);
        assert_eq!(most(&[Expired, TakenOver, Expired]), Expired);
        assert_eq!(most(&[Forgotten, TakenOver, Forgotten, TakenOver]), TakenOver);
        assert_eq!(most(&[Forgotten, Forced, TakenOver]), Forced);
    }
}
