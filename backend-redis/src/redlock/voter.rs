//! One of the servers, and the requests to it.

use super::{identity::Identities, pending::PendingEndings};
use crate::{
    connection::{
        dial::Endpoint,
        errors::Failure,
        link::{Answer, Connection},
    },
    doubts::Renewing,
    options::{CheckedOptions, RedisOptions},
    requests::{
        arguments::{arg_claim, millis},
        record::HolderText,
        replies::{self, AttemptReply, text, unexpected},
        script::{ISSUE, PUBLISH, Script, TELL, TEXT_AT, TOKENS},
    },
    server::{Server, fitness},
    timing::LONGEST_STRAGGLER,
};
use redis::{RedisWrite, Value};
use std::{sync::Arc, time::Duration};
use tenure_core::{Background, Claim, ClaimId, Error, Grant, Name, Renewal, StoreError, Token};

/// One of the servers: a store of its own, independent of the others.
pub(crate) struct Voter {
    pub(crate) server: Server,
    ask: Script,
    raise: Script,
    end: Script,
    pub(crate) pending: PendingEndings,
    /// Shared by all the servers of the list.
    identities: Arc<Identities>,
}

/// A server's answer in the first round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The claim holds the lock here, with this token. `raised` if an earlier attempt of the claim already raised it.
    Yes { token: Token, raised: bool },
    /// Another holds the lock: the one whose key has this value, for this much longer if the server tells. `resent` if
    /// another copy of the request may still come.
    No { holder: Vec<u8>, expires_in: Option<Duration>, resent: bool },
}

/// A server's answer to ending a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It held the lock here. `awaited` if another claim is waiting.
    Ended { awaited: bool },
    /// It did not.
    Nothing,
}

impl Voter {
    pub(crate) fn new(
        options: &RedisOptions,
        checked: CheckedOptions,
        background: &Background,
        identities: Arc<Identities>,
    ) -> Result<Self, Error> {
        const ATTEMPTS: &str = include_str!("scripts/attempts.lua");
        let endpoint = options.endpoint()?;
        if let Endpoint::Master(_) = endpoint {
            let allowed = "redis: or rediss:, because a voter must always be the same server";
            return Err(Error::invalid_option("servers", "a service of Sentinel", allowed));
        }
        Ok(Self {
            server: Server::new(endpoint, checked, background),
            ask: Script::new(&[ISSUE, ATTEMPTS, include_str!("scripts/ask.lua")]),
            raise: Script::new(&[TOKENS, include_str!("scripts/raise.lua")]),
            end: Script::new(&[PUBLISH, TELL, TEXT_AT, ATTEMPTS, include_str!("scripts/end.lua")]),
            pending: PendingEndings::default(),
            identities,
        })
    }

    /// The address, for people.
    pub(crate) fn address(&self) -> Arc<str> {
        self.server.link.dial().server_name().address
    }

    /// Checks that it can keep locks, and that no other address leads to the same server.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let Server { link, scripts, options, .. } = &self.server;
        self.identify(&fitness::check(link, scripts, &options.prefix, false).await?).await
    }

    /// Checks the latter for the server that has answered on this connection.
    async fn identify(&self, connection: &Connection) -> Result<(), StoreError> {
        let run_id = fitness::identity(&self.server.link, connection).await?;
        self.identities.learn(&self.address(), run_id)
    }

    /// From here on the claim is open at this server, even if the request is never made.
    pub(crate) fn will_ask(&self, claim: ClaimId) {
        self.server.doubts.ask(claim);
    }

    /// The first round: asks to hold the lock here. Call [`will_ask`](Self::will_ask) first.
    pub(crate) async fn ask(&self, claim: &Claim, attempt: u64) -> Result<Vote, Failure> {
        let (mut call, lock) = self.server.call(&self.ask, &claim.name);
        arg_claim(&mut call, claim.id).arg(millis(claim.lease)).write_arg_fmt(HolderText(&claim.holder));
        call.arg(self.server.remember(claim.lease)).arg(attempt);
        let answer = self.server.link.run(&self.ask, &call, &lock).await;
        let in_doubt = match &answer {
            Ok(Answer { resent, .. }) => *resent,
            Err(Failure { in_doubt, .. }) => *in_doubt,
        };
        if !in_doubt {
            self.server.doubts.answered(claim.id);
        }
        let Answer { value, connection, .. } = answer?;
        let vote = vote(&value, in_doubt)?;
        self.identify(&connection).await?;
        Ok(vote)
    }

    /// The second round: `false` if the claim's key is gone here, or a greater token was issued to it.
    pub(crate) async fn raise(&self, claim: &Claim, token: Token) -> Result<bool, Failure> {
        let (mut call, lock) = self.server.call(&self.raise, &claim.name);
        arg_claim(&mut call, claim.id).arg(token.get()).arg(self.server.remember(claim.lease));
        let answer = self.server.link.run(&self.raise, &call, &lock).await?;
        Ok(replies::yes(&answer.value)?)
    }

    /// From here on the renewal is open at this server, until it is answered.
    pub(crate) fn will_renew(&self, grants: &[Grant]) -> Renewing {
        self.server.doubts.renew(grants)
    }

    /// Renews leases here.
    pub(crate) async fn renew(
        &self,
        grants: &[Grant],
        renewing: &Renewing,
    ) -> Result<Vec<Renewal>, StoreError> {
        let answers = self.server.renew(grants).await?;
        Ok(self.server.doubts.renewed(grants, renewing, answers))
    }

    /// Ends all that a claim's attempts up to this one have here, or may still get.
    pub(crate) async fn end(&self, name: &Name, claim: ClaimId, attempt: u64) -> Result<End, Failure> {
        let (mut call, lock) = self.server.call(&self.end, name);
        arg_claim(&mut call, claim).arg(attempt).arg(self.server.remember(LONGEST_STRAGGLER));
        if self.server.doubts.contains(claim) {
            call.arg(LONGEST_STRAGGLER.as_secs());
        }
        // The server may still count a waiter of this backend that has just left.
        let gone = u64::from(self.server.subscriptions.is_counted_in_vain(&lock));
        let Answer { value, resent, .. } = self.server.link.run(&self.end, &call, &lock).await?;
        match replies::told(&value)? {
            Some(told) => Ok(End::Ended { awaited: told > gone }),
            // The first request may have ended it. The caller asks again, and knows how to read the answer.
            None if resent => {
                Err(StoreError::unavailable("the connection broke while a lock was released").into())
            }
            None => Ok(End::Nothing),
        }
    }
}

/// Reads a server's answer to an attempt.
fn vote(value: &Value, resent: bool) -> Result<Vote, StoreError> {
    if let Some((expires_in, holder)) = replies::refused(value) {
        return Ok(Vote::No { holder: holder.to_vec(), expires_in, resent });
    }
    let raised = text(value).is_some_and(|digits| digits.starts_with('+'));
    match replies::attempt(value)? {
        AttemptReply::Granted(token) => Ok(Vote::Yes { token, raised }),
        _ => Err(unexpected(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::replies::any;

    proptest::proptest! {
        #[test]
        fn only_tokens_are_votes(value in any::value()) {
            if let Ok(Vote::Yes { token, raised }) = vote(&value, false) {
                let digits = text(&value).unwrap();
                proptest::prop_assert_eq!(digits.parse::<u64>().ok(), Some(token.get()));
                proptest::prop_assert_eq!(digits.starts_with('+'), raised);
            }
        }
    }
}
