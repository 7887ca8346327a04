//! How a claim ends at a server: released, or withdrawn.

use super::{Server, is_moving, redirect};
use crate::{
    connection::{errors::Failure, link::Answer},
    requests::{arguments::arg_claim, replies, script::Script},
    timing::LONGEST_STRAGGLER,
};
use redis::Cmd;
use std::time::Duration;
use tenure_core::{ClaimId, Grant, LossCause, Name, Release, StoreError};

impl Server {
    /// Ends the hold of a claim that was granted. `None` if it has none.
    pub(crate) async fn release(&self, name: &Name, claim: ClaimId) -> Result<Option<Release>, StoreError> {
        if self.doubts.contains(claim) {
            return self.withdraw(name, claim, false).await;
        }
        self.end_hold(name, claim).await
    }

    async fn end_hold(&self, name: &Name, claim: ClaimId) -> Result<Option<Release>, StoreError> {
        let (script, call, lock) = self.ending(name, claim);
        match self.end(script, &call, &lock).await {
            // A node serves no request about several keys of a moving slot while one of them does not exist, as nearly
            // all queues do not. One key it serves: a waiter finds out when it next asks.
            Err(error) if self.options.fair && is_moving(&error) => {
                let (script, call, lock) = self.ending_alone(name, claim);
                self.end(script, &call, &lock).await
            }
            outcome => outcome,
        }
    }

    /// The script and the call that end the hold of a claim, and the lock's key.
    pub(super) fn ending(&self, name: &Name, claim: ClaimId) -> (&Script, Cmd, String) {
        let Some(script) = &self.scripts.release_in_turn else { return self.ending_alone(name, claim) };
        let (mut call, lock) = self.call(script, name);
        arg_claim(&mut call, claim).arg(self.remember(Duration::ZERO));
        (script, call, lock)
    }

    /// The ending without a queue, about the lock's key alone.
    fn ending_alone(&self, name: &Name, claim: ClaimId) -> (&Script, Cmd, String) {
        let (script, lock) = (&self.scripts.release, self.lock_key(name));
        let mut call = script.call(1, lock.len());
        arg_claim(call.arg(&lock), claim);
        (script, call, lock)
    }

    /// Ends all that a claim has: its hold, its place in a queue, and any request that may still be on its way. `None`
    /// if it did not hold the lock. Set `stops` if it may have stopped newcomers.
    pub(crate) async fn withdraw(
        &self,
        name: &Name,
        claim: ClaimId,
        stops: bool,
    ) -> Result<Option<Release>, StoreError> {
        let (script, in_doubt) = (&self.scripts.withdraw, self.doubts.contains(claim));
        let (mut call, lock) = if stops && !self.options.fair {
            self.call_with_stop(script, name)
        } else {
            self.call(script, name)
        };
        arg_claim(&mut call, claim).arg(self.remember(LONGEST_STRAGGLER));
        if in_doubt {
            call.arg(LONGEST_STRAGGLER.as_secs());
        }
        let outcome = self.end(script, &call, &lock).await?;
        if in_doubt {
            self.doubts.remove(claim);
        }
        Ok(outcome)
    }

    async fn end(&self, script: &Script, call: &Cmd, lock: &str) -> Result<Option<Release>, StoreError> {
        // The server may still count a waiter of this backend that has just left.
        let gone = u64::from(self.subscriptions.is_counted_in_vain(lock));
        let Answer { value, resent, .. } = match self.run(script, call, lock).await {
            // A first copy may have ended it, so no other request may answer for this one: the caller asks again.
            Err(Failure { error, in_doubt: true }) if is_moving(&error) || redirect(&error).is_some() => {
                return Err(StoreError::unavailable(error.to_string()));
            }
            outcome => outcome?,
        };
        match replies::told(&value)? {
            Some(told) => Ok(Some(Release::Released { awaited: told > gone })),
            // The first request may have released it. The caller asks again, and knows how to read the answer.
            None if resent => Err(StoreError::unavailable("the connection broke while a lock was released")),
            None => Ok(None),
        }
    }

    /// Why a grant is gone.
    pub(crate) async fn why(&self, grant: &Grant) -> Result<LossCause, StoreError> {
        let script = &self.scripts.why;
        let (mut call, lock) = self.call(script, &grant.name);
        arg_claim(&mut call, grant.claim).arg(grant.token.get());
        replies::cause(&self.run(script, &call, &lock).await?.value, grant.mode)
    }
}
