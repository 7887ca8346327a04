//! One of the servers, and what is asked of it alone.

use super::{identity::Identities, unanswered::Unanswered};
use crate::{
    dial::Route,
    doubts::LONGEST,
    errors::Failure,
    fitness::{self, Asked},
    options::{Checked, RedisOptions},
    record::Told,
    replies,
    script::{ISSUE, PUBLISH, Script, TELL, TOKENS},
    server::Answer,
    store::{Store, arg_claim, millis},
};
use redis::RedisWrite;
use std::{sync::Arc, time::Duration};
use tenure_core::{Background, Claim, ClaimId, Error, Name, StoreError, Token};

/// One of the servers. It is a whole store of its own, of which the others know nothing.
pub(crate) struct Node {
    pub(crate) store: Store,
    ask: Script,
    raise: Script,
    undo: Script,
    unanswered: Unanswered,
    /// Those of all the servers of the list.
    identities: Arc<Identities>,
}

/// What a node says in the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The lock is the claim's here, with this token. `raised` when an earlier attempt of the claim got so far.
    Yes { token: Token, raised: bool },
    /// Another's, for so long yet where the node tells.
    No { expires_in: Option<Duration> },
}

/// What a node says when a claim's hold is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It held the lock here. `awaited` when somebody else is waiting.
    Ended { awaited: bool },
    /// It did not.
    Nothing,
}

/// Why a node gave no answer.
#[derive(Debug)]
pub(crate) struct Silence {
    pub(crate) error: StoreError,
    /// Whether it may have carried the request out all the same, or may yet.
    pub(crate) in_doubt: bool,
}

impl From<Failure> for Silence {
    fn from(Failure { error, in_doubt }: Failure) -> Self {
        Self { error, in_doubt }
    }
}

impl From<StoreError> for Silence {
    fn from(error: StoreError) -> Self {
        Self { error, in_doubt: true }
    }
}

impl Node {
    pub(crate) fn new(
        options: &RedisOptions,
        checked: Checked,
        background: &Background,
        identities: Arc<Identities>,
    ) -> Result<Self, Error> {
        const ATTEMPTS: &str = include_str!("../scripts/attempts.lua");
        let route = options.route()?;
        if let Route::Master(_) = route {
            let allowed = "redis: and rediss: a majority is of servers, each of which is always the same";
            return Err(Error::invalid_option("servers", "a service of Sentinel", allowed));
        }
        Ok(Self {
            store: Store::new(route, checked, background),
            ask: Script::new(&[ISSUE, ATTEMPTS, include_str!("../scripts/ask.lua")]),
            raise: Script::new(&[TOKENS, include_str!("../scripts/raise.lua")]),
            undo: Script::new(&[PUBLISH, TELL, TOKENS, ATTEMPTS, include_str!("../scripts/undo.lua")]),
            unanswered: Unanswered::default(),
            identities,
        })
    }

    /// The address, for people.
    pub(crate) fn address(&self) -> Arc<str> {
        self.store.server.dial().place().address
    }

    /// Whether it is a server that can keep locks, and none that another address leads to as well.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let Store { server, scripts, options, .. } = &self.store;
        match fitness::check(server, scripts, &options.prefix, false).await? {
            Some(Asked { line, run_id }) => self.identities.learn(&self.address(), line, run_id),
            None => Ok(()),
        }
    }

    /// The same for the server that has answered on this connection.
    async fn identify(&self, line: u64) -> Result<(), StoreError> {
        let address = self.address();
        if self.identities.knows(&address, line) {
            return Ok(());
        }
        self.identities.learn(&address, line, fitness::identity(&self.store.server, line).await?)
    }

    /// From here on the claim is open at this node, also when the request is never made.
    pub(crate) fn will_ask(&self, claim: ClaimId) {
        self.unanswered.asked(claim);
    }

    /// The first round, announced with [`will_ask`](Self::will_ask): to hold the lock here.
    pub(crate) async fn ask(&self, claim: &Claim, attempt: u64) -> Result<Vote, Silence> {
        let (mut call, lock) = self.store.call(&self.ask, &claim.name);
        arg_claim(&mut call, claim.id).arg(millis(claim.lease)).write_arg_fmt(Told(&claim.holder));
        call.arg(self.store.remember(claim.lease)).arg(attempt);
        let answer = self.store.server.run(&self.ask, &call, &lock).await;
        let in_doubt = match &answer {
            Ok(Answer { resent, .. }) => *resent,
            Err(Failure { in_doubt, .. }) => *in_doubt,
        };
        if !in_doubt {
            self.unanswered.answered(claim.id);
        }
        let Answer { value, line, .. } = answer?;
        let vote = replies::vote(&value)?;
        self.identify(line).await?;
        Ok(vote)
    }

    /// The second round: `false` when the claim's key stands here no more, or something greater was issued to it.
    pub(crate) async fn raise(&self, claim: &Claim, token: Token) -> Result<bool, Silence> {
        let (mut call, lock) = self.store.call(&self.raise, &claim.name);
        arg_claim(&mut call, claim.id).arg(token.get()).arg(self.store.remember(claim.lease));
        let answer = self.store.server.run(&self.raise, &call, &lock).await?;
        Ok(replies::yes(&answer.value)?)
    }

    /// Ends whatever the attempts of a claim up to this one have here, or may yet get.
    pub(crate) async fn undo(&self, name: &Name, claim: ClaimId, attempt: u64) -> Result<End, Silence> {
        let (mut call, lock) = self.store.call(&self.undo, name);
        arg_claim(&mut call, claim).arg(attempt).arg(self.store.remember(LONGEST));
        if self.unanswered.contains(claim) {
            call.arg(LONGEST.as_secs());
        }
        // This client itself may be told, if it waited a moment ago.
        let own = u64::from(self.store.subscriptions.is_counted(&lock));
        let Answer { value, resent, .. } = self.store.server.run(&self.undo, &call, &lock).await?;
        match replies::told(&value)? {
            Some(told) => Ok(End::Ended { awaited: told > own }),
            // The first request may have ended it. Whoever asks once more knows how to read the answer.
            None if resent => {
                Err(StoreError::unavailable("the connection broke while a lock was released").into())
            }
            None => Ok(End::Nothing),
        }
    }
}
