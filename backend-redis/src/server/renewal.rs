//! How grants are renewed, and how the mode of one is changed.

use super::Server;
use crate::{
    connection::link::Answer,
    requests::{
        arguments::{arg_claim, millis},
        keys,
        mode::ModeText,
        replies,
    },
};
use redis::RedisWrite;
use tenure_core::{Conversion, Grant, Mode, Renewal, StoreError};

/// How many leases one request renews at most.
pub(crate) const RENEW_BATCH: usize = 250;

impl Server {
    pub(crate) async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let script = &self.scripts.renew;
        let mut call = script.call(grants.len() * 2, grants.len() * 256);
        let mut about = String::new();
        for grant in grants {
            about = self.lock_key(&grant.name);
            call.arg(&about).arg(keys::record(&about));
        }
        call.arg(self.options.remember.as_secs());
        for grant in grants {
            arg_claim(&mut call, grant.claim).arg(grant.token.get()).arg(millis(grant.lease));
            call.write_arg_fmt(ModeText(grant.mode));
        }
        let Answer { value, resent, .. } = self.run(script, &call, &about).await?;
        let answers = replies::renewals(&value, grants.iter().map(|grant| grant.mode))?;
        let failed = |(grant, error): (&Grant, String)| {
            let (name, server) = (&grant.name, self.link.dial().server_name());
            let (code, detail) = error.split_once(' ').unwrap_or((&error, ""));
            let refusal = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            let (error, server) = (server.explain_for(&self.lock_key(name), refusal), server.address);
            tracing::warn!(lock.name = %name, %server, %error, "could not renew one lease of a batch; trying again");
            Renewal::Unanswered
        };
        let settled = |answer| match answer {
            // The first copy may still come, and cut short a longer lease that is asked for meanwhile.
            Renewal::Renewed if resent => Renewal::Unanswered,
            answer => answer,
        };
        let each = grants.iter().zip(answers);
        Ok(each.map(|(grant, answer)| answer.map_or_else(|error| failed((grant, error)), settled)).collect())
    }

    /// Changes the mode of a grant.
    pub(crate) async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let script = &self.scripts.convert;
        let (mut call, lock) = self.call(script, &grant.name);
        arg_claim(&mut call, grant.claim).arg(self.remember(grant.lease)).arg(grant.token.get());
        call.write_arg_fmt(ModeText(to));
        let answered = match to {
            // The store has more than the guard relies on, so no replica need know.
            Mode::Shared => self.run(script, &call, &lock).await,
            _ => self.run_replicated(script, &call, &lock).await,
        };
        let Answer { value, resent, connection, .. } = answered?;
        let answer = replies::conversion(&value, grant.mode)?;
        // The first copy may still come. A downgrade asks again, and knows that this request was never answered. An
        // upgrade that was refused may be carried out after all, and then keeps other readers out.
        if resent && (to == Mode::Shared || answer == Conversion::Refused) {
            return Err(StoreError::unavailable("the connection broke while the mode of a lock was changed"));
        }
        if let (Some(replication), Mode::Exclusive, Conversion::Converted) = (&self.replication, to, answer) {
            let had = replication.count(connection).await?;
            replication.judge(
                had,
                "the upgrade",
                "the upgrade does not count, but keeps others out until the lock is released or downgraded",
            )?;
        }
        Ok(answer)
    }
}
