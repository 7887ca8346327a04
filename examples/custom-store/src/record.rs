//! The algorithm: what becomes of one name's record.

use serde::{Deserialize, Serialize};
use std::{
    io,
    time::{Duration, SystemTime},
};
use tenure_core::{Claim, ClaimId, Grant, Holder, HolderInfo, LossCause, Name, Release, Renewal, Token};

/// How long a mark stands that somebody waits; a waiter asks again much sooner than that, and renews it.
const MARK: Duration = Duration::from_secs(1);

/// What a name's file says: who holds it, and who waits for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    held: Option<Held>,
    awaited: Option<Awaited>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    claim: String,
    token: u64,
    since: SystemTime,
    expires: SystemTime,
    label: Option<String>,
    host: String,
    pid: u32,
}

/// The last claim that was told to wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Awaited {
    claim: String,
    until: SystemTime,
}

impl Record {
    /// Nobody holds `name`, and nobody waits for it.
    pub(crate) fn free(name: &Name) -> Self {
        Self { name: name.to_string(), held: None, awaited: None }
    }

    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_none() && self.awaited.is_none()
    }

    /// The holder whose lease has not run out.
    fn live(&mut self, now: SystemTime) -> Option<&mut Held> {
        self.held.as_mut().filter(|held| now < held.expires)
    }

    /// The holder whose lease has not run out, if it is this claim: every change below goes through here.
    fn live_of(&mut self, claim: ClaimId, now: SystemTime) -> Option<&mut Held> {
        self.live(now).filter(|held| held.claim == claim.to_string())
    }

    /// Grants the name to `claim`, or tells how much of its holder's lease is left.
    pub(crate) fn acquire(
        &mut self,
        claim: &Claim,
        now: SystemTime,
        next_token: impl FnOnce() -> io::Result<u64>,
    ) -> io::Result<Result<Token, Duration>> {
        let expires = now + claim.lease;
        if let Some(held) = self.live_of(claim.id, now) {
            // Asked again, because the first answer was lost.
            held.expires = expires;
            return token(held.token).map(Ok);
        }
        if let Some(held) = self.live(now) {
            let left = held.expires.duration_since(now).unwrap_or_default();
            if claim.waits {
                self.mark(claim.id, now);
            }
            return Ok(Err(left));
        }
        let HolderInfo { label, host, pid } = (*claim.holder).clone();
        let token = token(next_token()?)?;
        self.held = Some(Held {
            claim: claim.id.to_string(),
            token: token.get(),
            since: now,
            expires,
            label,
            host,
            pid,
        });
        self.unmark(claim.id);
        Ok(Ok(token))
    }

    pub(crate) fn release(&mut self, claim: ClaimId, now: SystemTime) -> Release {
        if self.live_of(claim, now).is_none() {
            return Release::NotHeld(self.why_not(claim, now));
        }
        self.held = None;
        Release::Released { awaited: self.awaited.as_ref().is_some_and(|mark| now < mark.until) }
    }

    pub(crate) fn renew(&mut self, grant: &Grant, now: SystemTime) -> Renewal {
        match self.live_of(grant.claim, now) {
            Some(held) => {
                held.expires = now + grant.lease;
                Renewal::Renewed
            }
            None => Renewal::Lost(self.why_not(grant.claim, now)),
        }
    }

    pub(crate) fn withdraw(&mut self, claim: ClaimId) {
        self.held.take_if(|held| held.claim == claim.to_string());
        self.unmark(claim);
    }

    /// Ends the grant, whoever has it, and tells who that was.
    pub(crate) fn force(&mut self, now: SystemTime) -> Option<io::Result<Holder>> {
        let put_out = self.holder(now);
        self.held = None;
        put_out
    }

    /// Why the claim does not hold the name.
    fn why_not(&mut self, claim: ClaimId, now: SystemTime) -> LossCause {
        if self.live(now).is_some() {
            return LossCause::TakenOver;
        }
        match &self.held {
            Some(held) if held.claim == claim.to_string() => LossCause::Expired,
            _ => LossCause::Forgotten,
        }
    }

    /// Notes that somebody waits. A mark that stands for long enough is left alone, and the file unwritten.
    fn mark(&mut self, claim: ClaimId, now: SystemTime) {
        if self.awaited.as_ref().is_none_or(|mark| mark.until < now + MARK / 2) {
            self.awaited = Some(Awaited { claim: claim.to_string(), until: now + MARK });
        }
    }

    fn unmark(&mut self, claim: ClaimId) {
        self.awaited.take_if(|mark| mark.claim == claim.to_string());
    }

    /// What people are told.
    pub(crate) fn holder(&self, now: SystemTime) -> Option<io::Result<Holder>> {
        let held = self.held.as_ref().filter(|held| now < held.expires)?;
        Some(held.tell(&self.name, now))
    }
}

impl Held {
    fn tell(&self, name: &str, now: SystemTime) -> io::Result<Holder> {
        let Self { since, expires, label, host, pid, .. } = self.clone();
        let claim: ClaimId = self.claim.parse().map_err(io::Error::other)?;
        let until = |later: SystemTime, earlier| later.duration_since(earlier).unwrap_or_default();
        Ok(Holder::of(Name::new(name).map_err(io::Error::other)?)
            .claim(claim, token(self.token)?)
            .info(HolderInfo { label, host, pid })
            .since(since, until(now, since))
            .left(until(expires, now)))
    }
}

/// A token, or an error where the number is none.
fn token(number: u64) -> io::Result<Token> {
    Token::new(number).ok_or_else(|| io::Error::other(format!("{number} is no fencing token")))
}
