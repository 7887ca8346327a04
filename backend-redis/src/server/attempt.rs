//! One attempt to grant a claim, and the checks after which it counts.

use super::Server;
use crate::{
    connection::{
        errors::Failure,
        link::{Answer, Connection},
        subscriptions::Listening,
    },
    requests::{
        arguments::{arg_claim, millis},
        mode::{self, ModeText},
        record::HolderText,
        replies,
    },
};
use redis::RedisWrite;
use std::time::Duration;
use tenure_core::{Attempt, Claim, Grant, Mode, Moment, StoreError};

/// The trace that an unsuccessful claim leaves in the store.
#[derive(Clone, Copy)]
pub(crate) enum Leaves<'a> {
    Nothing,
    /// An exclusive claim leaves the key that stops newcomers from joining those who share the lock. Not with its first
    /// attempt, so that acquiring a free lock does not cost a look at that key.
    Stop,
    /// A place in the lock's queue, if there is one. The client is told on this inbox.
    Place(&'a Listening),
}

/// The answer to an attempt, and when it was given.
pub(crate) struct Attempted {
    pub(crate) attempt: Attempt,
    /// The instant before the request was sent.
    pub(crate) sent: Moment,
    /// The server's clock, if it was told.
    pub(crate) at: Option<Duration>,
}

impl Server {
    /// Makes one attempt. A claim that does not wait is not asked for again, and not withdrawn by the caller if it is
    /// refused.
    pub(crate) async fn try_once(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let attempt = self.ask(claim, Leaves::Nothing).await?.attempt;
        if matches!(attempt, Attempt::Busy { .. }) {
            self.refused(claim).await?;
        }
        Ok(attempt)
    }

    /// Withdraws a claim that does not wait, and was refused, if a copy of its request may still be on its way: once
    /// the lock is free, that would be granted.
    pub(super) async fn refused(&self, claim: &Claim) -> Result<(), StoreError> {
        if !claim.waits && self.doubts.contains(claim.id) {
            self.withdraw(&claim.name, claim.id, false).await?;
        }
        Ok(())
    }

    /// Makes one attempt, of perhaps many.
    pub(crate) async fn ask(&self, claim: &Claim, leaves: Leaves<'_>) -> Result<Attempted, StoreError> {
        let script = self.scripts.acquire(claim.mode);
        let (fair, alone) = (self.options.fair, claim.mode == Mode::Exclusive);
        let stop = !fair && (!alone || matches!(leaves, Leaves::Stop));
        let (mut call, lock) =
            if stop { self.call_with_stop(script, &claim.name) } else { self.call(script, &claim.name) };
        arg_claim(&mut call, claim.id).arg(millis(claim.lease)).write_arg_fmt(HolderText(&claim.holder));
        call.arg(self.remember(claim.lease));
        if fair || !alone {
            call.write_arg_fmt(ModeText(claim.mode));
            call.arg(mode::take(claim.mode));
        }
        // Another client's release grants the next claim, and cannot reserve tokens for it.
        let reserved = if fair || !alone { 0 } else { claim.reserve };
        if reserved > 0 {
            call.arg(reserved);
        }
        if let Leaves::Place(inbox) = leaves {
            call.arg(inbox.channel());
        }
        let asking = self.doubts.asking(claim.id);
        let Answer { value, sent, resent, connection } = match self.run_replicated(script, &call, &lock).await
        {
            Ok(answer) => answer,
            Err(Failure { error, in_doubt }) => {
                if !in_doubt {
                    asking.settle();
                }
                return Err(error);
            }
        };
        if !resent {
            asking.settle();
        }
        let (attempt, at) = match replies::attempt(&value)? {
            replies::AttemptReply::Granted(token) => {
                self.confirm(std::slice::from_ref(claim), connection).await?;
                (Attempt::Granted(Grant::leased(claim, token, sent).reserving(reserved)), None)
            }
            replies::AttemptReply::Busy { expires_in, at } => (Attempt::Busy { expires_in }, at),
            replies::AttemptReply::Otherwise(held) => {
                claim.mode.agrees_with([held]).map_err(StoreError::mismatch)?;
                (Attempt::Busy { expires_in: None }, None)
            }
        };
        Ok(Attempted { attempt, sent, at })
    }

    /// Makes sure that enough replicas have these grants, and withdraws them otherwise.
    pub(crate) async fn confirm(&self, claims: &[Claim], connection: Connection) -> Result<(), StoreError> {
        let Some(replication) = &self.replication else { return Ok(()) };
        let had = replication.count(connection).await?;
        let Err(too_few) = replication.judge(had, "the grant", "it was withdrawn") else { return Ok(()) };
        for claim in claims {
            self.end_grant(claim, &too_few).await?;
        }
        Err(too_few)
    }

    /// Ends a grant that does not count. Leaves no mark, because the waiter asks again with the same claim. Without an
    /// answer, the claim must not be used again: the request may still be on its way, and would end the claim's next
    /// grant.
    async fn end_grant(&self, claim: &Claim, too_few: &StoreError) -> Result<(), StoreError> {
        let (script, call, lock) = self.ending(&claim.name, claim.id);
        let error = match self.run(script, &call, &lock).await {
            Ok(Answer { resent: false, .. }) => return Ok(()),
            Ok(_) => "the connection broke during it".into(),
            Err(Failure { error, in_doubt: true }) => error.to_string(),
            Err(Failure { error, .. }) => return Err(error),
        };
        let what = format!(
            "{too_few}; the withdrawal may not have taken effect ({error}), so this claim is not used again"
        );
        Err(StoreError::claim_spent(what))
    }
}
