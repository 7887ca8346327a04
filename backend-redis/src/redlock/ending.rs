//! How a hold ends: released, or its claim withdrawn.

use super::{
    quorum::Quorum,
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
        // Half of the caller's wait, which is a sixth of the lease: a server that is down must not cost the release
        // its answer.
        let mut answers = self.each(self.patience(grant.lease / 12), |voter| {
            let grant = grant.clone();
            async move { voter.server.why(&grant).await }
        });
        let mut causes = Vec::new();
        while let Some((_, answer)) = answers.next().await {
            causes.extend(answer);
            if let Some(cause) = decided(self.quorum, &causes) {
                return cause;
            }
        }
        causes.retain(|cause| *cause != LossCause::Forgotten);
        most(&causes)
    }
}

/// Why a grant is gone, once a majority has said it. A server that never had the grant seems to have forgotten it, so a
/// minority says that even of a grant that was released.
fn decided(quorum: Quorum, causes: &[LossCause]) -> Option<LossCause> {
    let others: Vec<_> = causes.iter().copied().filter(|cause| *cause != LossCause::Forgotten).collect();
    if quorum.is_met(causes.len() - others.len()) {
        return Some(LossCause::Forgotten);
    }
    quorum.is_met(others.len()).then(|| most(&others))
}

/// Why a grant is gone. Only a server that released it by force says so; of other causes, the one that most servers name.
/// In a tie, the more specific one.
pub(crate) fn most(causes: &[LossCause]) -> LossCause {
    if causes.contains(&LossCause::Forced) {
        return LossCause::Forced;
    }
    let by_what_they_say = [LossCause::Forgotten, LossCause::Expired, LossCause::TakenOver];
    let count = |cause: &LossCause| causes.iter().filter(|named| *named == cause).count();
    let told = by_what_they_say.into_iter().filter(|cause| count(cause) > 0);
    told.max_by_key(count).unwrap_or(LossCause::Expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_cause_is_the_most_frequent() {
        use LossCause::{Expired, Forced, Forgotten, TakenOver};
        assert_eq!(most(&[]), Expired);
        assert_eq!(most(&[Expired, TakenOver, Expired]), Expired);
        assert_eq!(most(&[Forgotten, TakenOver, Forgotten, TakenOver]), TakenOver);
        assert_eq!(most(&[TakenOver, Forced, TakenOver]), Forced);
    }

    #[test]
    fn grant_is_not_forgotten_by_a_minority_that_never_had_it() {
        use LossCause::{Expired, Forgotten, TakenOver};
        let five = |causes: &[LossCause]| decided(Quorum { servers: 5 }, causes);
        assert_eq!(five(&[Forgotten, Forgotten, Expired]), None);
        assert_eq!(five(&[Forgotten, Forgotten, Expired, Expired, Expired]), Some(Expired));
        assert_eq!(five(&[Forgotten, TakenOver, TakenOver, Expired]), Some(TakenOver));
        assert_eq!(five(&[Expired, Forgotten, Forgotten, Forgotten]), Some(Forgotten));
    }
}
