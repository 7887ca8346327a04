//! One attempt: two rounds, withdrawn unless both had a majority.

use super::{
    tally::{NextStep, Tally},
    voter::Vote,
    voters::{Ending, Voters},
};
use crate::connection::errors::Failure;
use std::{sync::Arc, time::Duration};
use tenure_core::{Claim, Grant, Moment, StoreError, lease};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The outcome of an attempt.
pub(crate) enum Outcome {
    Granted(Grant),
    Refused {
        /// When a majority will be free, as far as the servers tell.
        free_in: Option<Duration>,
        /// Whether clients may be keeping each other out: none is known to have a majority.
        split: bool,
    },
}

/// A server's answer during an attempt.
enum Word {
    Vote(Result<Vote, Failure>),
    Raised(Result<bool, Failure>),
}

impl Voters {
    /// One attempt.
    ///
    /// It is granted if a majority voted for the claim, a majority then raised its token to the greatest of theirs, and
    /// the lease still stands. Otherwise it is withdrawn from every server that may have any of it, including those
    /// that did not answer.
    pub(crate) async fn attempt(&self, claim: &Claim) -> Result<Outcome, StoreError> {
        let (attempt, sent) = (self.next_attempt(), Moment::now());
        let mut tally = Tally::new(self.quorum);
        if let Some(grant) = self.two_rounds(claim, attempt, sent, &mut tally).await {
            return Ok(Outcome::Granted(grant));
        }
        self.end_attempt(claim, attempt, &tally).await;
        if self.quorum.is_met(tally.answered()) {
            return Ok(Outcome::Refused { free_in: tally.free_in(), split: tally.is_split() });
        }
        Err(self.quorum.too_few(tally.silences()))
    }

    async fn two_rounds(
        &self,
        claim: &Claim,
        attempt: u64,
        sent: Moment,
        tally: &mut Tally,
    ) -> Option<Grant> {
        let (tell, mut heard) = mpsc::unbounded_channel();
        let (claim, patience) = (Arc::new(claim.clone()), self.patience(claim.lease));
        for (place, voter) in self.all.iter().enumerate() {
            let (voter, claim, tell) = (Arc::clone(voter), Arc::clone(&claim), tell.clone());
            // Before the task starts: a withdrawal may overtake it.
            voter.will_ask(claim.id);
            // In a task, so that an answer that comes too late for this attempt still settles the request.
            tokio::spawn(async move {
                let vote = voter.ask(&claim, attempt).await;
                let _ = tell.send((place, Word::Vote(vote)));
            });
        }
        let mut until = Instant::now() + patience;
        loop {
            match tally.next() {
                NextStep::Granted(token) => {
                    let in_time = !lease::deadline(sent, claim.lease).has_passed();
                    return in_time.then(|| Grant::leased(&claim, token, sent));
                }
                NextStep::Lost => return None,
                NextStep::Raise(places, token) => {
                    for place in places {
                        let (voter, claim, tell) =
                            (Arc::clone(&self.all[place]), Arc::clone(&claim), tell.clone());
                        tokio::spawn(async move {
                            let answer = voter.raise(&claim, token).await;
                            let _ = tell.send((place, Word::Raised(answer)));
                        });
                    }
                    until = Instant::now() + patience;
                }
                NextStep::Wait => match timeout_at(until, heard.recv()).await {
                    Ok(Some((place, Word::Vote(vote)))) => tally.voted(place, vote),
                    Ok(Some((place, Word::Raised(answer)))) => tally.raised(place, &answer),
                    Ok(None) | Err(_) => return None,
                },
            }
        }
    }

    /// Withdraws an attempt, and waits until the servers that are known to have any of it confirm that it is gone, or
    /// time out.
    async fn end_attempt(&self, claim: &Claim, attempt: u64, tally: &Tally) {
        let Claim { id, name, lease, .. } = claim;
        let ending = Ending { name: name.clone(), claim: *id, attempt, lease: *lease };
        let places = tally.to_end();
        let mut had: Vec<usize> = places.iter().filter(|(_, had)| *had).map(|(place, _)| *place).collect();
        let mut answers = self.end(&ending, places.into_iter().map(|(place, _)| place));
        while !had.is_empty() {
            let Some((place, _)) = answers.next().await else { return };
            had.retain(|it| *it != place);
        }
    }
}
