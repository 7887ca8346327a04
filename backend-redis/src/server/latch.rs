//! Latches: one hash each, next to the lock of the same name.

use super::Server;
use crate::{
    connection::errors::Failure,
    requests::{arguments::arg_claim, keys, replies},
};
use tenure_core::{ClaimId, LatchState, LatchStep, Name, StoreError};

impl Server {
    /// Takes one step at a latch. If replicas must have a grant, they must have a count too.
    pub(crate) async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (script, lock) = (&self.scripts.latch, self.lock_key(name));
        let latch = keys::latch(&lock);
        let mut call = script.call(1, latch.len() * 2);
        call.arg(&latch);
        match step {
            LatchStep::CountDown { party, of } => {
                arg_claim(call.arg(of.get()).arg(party.as_str()), ClaimId::new());
            }
            LatchStep::Remove => {
                // The one that is there now: this may come late, when the next has begun.
                let seen = self.run_replicated(script, &call, &latch).await;
                let seen = seen.map_err(|Failure { error, .. }| error)?;
                call.arg("remove").arg(replies::latch_id(&seen.value)?);
            }
            LatchStep::Look => {}
        }
        let answer = self.run_replicated(script, &call, &latch).await;
        let answer = answer.map_err(|Failure { error, .. }| error)?;
        if let (Some(replication), LatchStep::CountDown { .. }) = (&self.replication, step) {
            let had = replication.count(answer.connection).await?;
            replication.judge(had, "the count", "count down again")?;
        }
        replies::latch(&answer.value)
    }
}
