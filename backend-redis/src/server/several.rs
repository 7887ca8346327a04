//! Several names in one call.

use super::{Server, redirect::is_of_many_shards};
use crate::{
    connection::{errors::Failure, link::Answer},
    doubts::Asking,
    requests::{
        arguments::{arg_claim, millis},
        keys,
        record::HolderText,
        replies,
    },
};
use redis::RedisWrite;
use tenure_core::{AttemptAll, Claim, Grant, StoreError};

impl Server {
    /// Makes one attempt at several names of one slot, all exclusive, without a queue.
    pub(crate) async fn ask_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let script = &self.scripts.acquire_all;
        let mut call = script.call(claims.len() * 2, claims.len() * 384);
        let mut about = String::new();
        for claim in claims {
            about = self.lock_key(&claim.name);
            call.arg(&about).arg(keys::record(&about));
        }
        for claim in claims {
            arg_claim(&mut call, claim.id).arg(millis(claim.lease)).write_arg_fmt(HolderText(&claim.holder));
            call.arg(self.remember(claim.lease));
        }
        let asking: Vec<_> = claims.iter().map(|claim| self.doubts.asking(claim.id)).collect();
        let answer = self.run_replicated(script, &call, &about).await;
        let sure = match &answer {
            Ok(Answer { resent, .. }) => !resent,
            Err(Failure { in_doubt, .. }) => !in_doubt,
        };
        if sure {
            asking.into_iter().for_each(Asking::settle);
        } else {
            drop(asking);
        }
        let Answer { value, sent, connection, .. } = match answer {
            Err(Failure { error, .. }) if is_of_many_shards(&error) => return Ok(AttemptAll::Apart),
            answer => answer?,
        };
        let Some(tokens) = replies::tokens(&value)? else {
            for claim in claims {
                self.refused(claim).await?;
            }
            return Ok(AttemptAll::Busy);
        };
        self.confirm(claims, connection).await?;
        let grants = claims.iter().zip(tokens).map(|(claim, token)| Grant::leased(claim, token, sent));
        Ok(AttemptAll::Granted(grants.collect()))
    }
}
