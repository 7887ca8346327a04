//! Who holds a name, who waits for it, and whom it admits: the contract as a value.

mod bell;
#[cfg(test)]
mod damaged;
mod edition;
mod idle;
mod latch;
mod plain;
mod queue;
mod records;
mod store;
mod store_time;
#[cfg(test)]
mod tests;

pub use bell::Bell;
pub use latch::LatchRecord;
pub use plain::{Plain, PlainHolder, PlainWaiter};
pub use records::Records;
pub use store::{RecordStore, Stored};
pub use store_time::StoreTime;

use crate::{
    Attempt, Claim, ClaimId, Conversion, Grant, Holder, HolderInfo, LossCause, Mode, Moment, Name, Release,
    Renewal, StoreError, Token,
};
use queue::{Mark, Queue};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// All that a store knows of one name, and what becomes of it with each request.
///
/// A pure value: no I/O, no waiting, and no clock but the [`StoreTime`] that is passed in, which is the store's. What it
/// answers is what the [`Backend`](crate::Backend) of any store must answer; stores that have an algorithm of their own
/// are held to it.
///
/// # Behaviour that every request keeps
///
/// - **Twice is once.** The same request at the same time, sent again, leaves the record as it is.
/// - **By the claim.** What another claim holds or waits for is changed by [`force`](Self::force) alone (clause U1).
/// - **Over is over.** A holder counts until its lease is over by the store's clock (clause L2), and is never revived.
///
/// A store that keeps nothing of a name that is [idle](Self::is_idle) begins the next record of it [after](Self::after)
/// the last token.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure_core::{Attempt, Claim, ClaimId, HolderInfo, Mode, Moment, Name, record::{Record, StoreTime}};
///
/// let claim = || Claim {
///     id: ClaimId::new(),
///     name: Name::new("report").unwrap(),
///     mode: Mode::Exclusive,
///     lease: Duration::from_secs(30),
///     waits: false,
///     holder: Arc::new(HolderInfo::default()),
/// };
/// let (mut record, now) = (Record::default(), StoreTime::from_micros(1_000_000));
/// let first = record.acquire(&claim(), now, Moment::now())?;
/// assert!(matches!(first, Attempt::Granted(_)));
/// let second = record.acquire(&claim(), now, Moment::now())?;
/// assert!(matches!(second, Attempt::Busy { expires_in: Some(left) } if left == Duration::from_secs(30)));
/// let later = record.acquire(&claim(), now + Duration::from_secs(30), Moment::now())?;
/// assert!(matches!(later, Attempt::Granted(_)));
/// # Ok::<(), tenure_core::StoreError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// The last grant's.
    token: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<Held>,
    #[serde(skip_serializing_if = "Queue::is_empty")]
    queue: Queue,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
    /// Whom somebody put out by force, until its lease would have been over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forced: Vec<(ClaimId, StoreTime)>,
}

/// Who should ask again after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// Nobody: the change lets nobody in.
    Nobody,
    /// The first in line, whose turn it is now.
    First {
        /// Its claim.
        claim: ClaimId,
        /// The bell of its process, if it has one.
        bell: Option<Bell>,
    },
    /// Everybody who waits, in a store without a queue.
    All {
        /// The bell of one of them, if it has one. The others are not known.
        bell: Option<Bell>,
    },
}

impl Wake {
    /// The bell to ring.
    #[must_use]
    pub fn bell(self) -> Option<Bell> {
        match self {
            Self::Nobody => None,
            Self::First { bell, .. } | Self::All { bell } => bell,
        }
    }
}

/// One who holds the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    claim: ClaimId,
    mode: Mode,
    token: Token,
    since: StoreTime,
    until: StoreTime,
    holder: Arc<HolderInfo>,
}

impl Record {
    /// How long a waiter keeps its place in the queue without being heard of: for so long dead ones can keep the others
    /// waiting, however many they are. Less would cost a waiter its place whose process or disk stalls for a moment.
    pub const PLACE: Duration = Duration::from_secs(3);

    /// A name that nobody holds, of which nothing is known but that every token so far was `token` or less.
    #[must_use]
    pub fn after(token: u64) -> Self {
        Self { token, ..Self::default() }
    }

    /// The last grant's token, or 0.
    #[must_use]
    pub fn last_token(&self) -> u64 {
        self.token
    }

    /// Whether there is nothing to keep but the last token: nobody holds the name, waits, or has yet to be told that it
    /// was put out.
    #[must_use]
    pub fn is_idle(&self, now: StoreTime) -> bool {
        self.live(now).next().is_none()
            && self.queue.first(now).is_none()
            && self.mark.as_ref().is_none_or(|mark| !mark.stands(now))
            && self.forced.iter().all(|(_, until)| *until <= now)
    }

    /// Grants the name to the claim if those who hold it admit it, and those who came before it do (clauses X1 and W5).
    ///
    /// A claim that holds the name already has its lease anew, and the token that it had (clause F1). Any other grant's
    /// token is greater than all before it, and at least the store's clock in microseconds (clauses T1 and T2). Whoever
    /// is refused leaves nothing behind; see [`wait_in_line`](Self::wait_in_line) and [`leave_mark`](Self::leave_mark).
    ///
    /// `sent` is the instant before the request left, from which the holder counts (clause L3).
    ///
    /// # Errors
    ///
    /// [`StoreError::mismatch`] when the claim counts on another number of permits than those who hold some; [`StoreError::failed`] when there
    /// are no more tokens.
    pub fn acquire(&mut self, claim: &Claim, now: StoreTime, sent: Moment) -> Result<Attempt, StoreError> {
        let until = now + claim.lease;
        if let Some(held) = self.live_of(claim.id, now) {
            held.until = until;
            return Ok(Attempt::Granted(Grant::leased(claim, held.token, sent)));
        }
        if let Some(expires_in) = self.obstacle(claim, now)? {
            return Ok(Attempt::Busy { expires_in: Some(expires_in) });
        }
        let token = self.token.saturating_add(1).max(now.as_micros());
        let token = Token::new(token).ok_or_else(|| StoreError::failed("there are no more tokens"))?;
        self.token = token.get();
        self.bury(now);
        self.queue.serve(claim.id, now);
        // Whoever wants it alone has it now; of those who share it, others may wait for more than this one took.
        if claim.mode == Mode::Exclusive {
            self.mark = None;
        } else {
            self.unmark(claim.id);
        }
        let Claim { id, mode, holder, .. } = claim;
        self.held.push(Held {
            claim: *id,
            mode: *mode,
            token,
            since: now,
            until,
            holder: Arc::clone(holder),
        });
        Ok(Attempt::Granted(Grant::leased(claim, token, sent)))
    }

    /// Whether [`acquire`](Self::acquire) would grant the name to the claim.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub fn would_grant(&self, claim: &Claim, now: StoreTime) -> Result<bool, StoreError> {
        Ok(self.is_held_by(claim.id, now) || self.obstacle(claim, now)?.is_none())
    }

    /// Gives the claim the last place in the queue, or keeps the place that it has, for [`PLACE`](Self::PLACE) from now.
    ///
    /// Nobody is granted the name past those who came before and are still heard of. Whoever holds the name needs no
    /// place.
    pub fn wait_in_line(&mut self, claim: &Claim, now: StoreTime) {
        if !self.is_held_by(claim.id, now) {
            self.queue.stand(claim, now, Self::PLACE);
        }
    }

    /// Whether the claim would have its place in the queue at this time without being heard of again.
    #[must_use]
    pub fn has_place(&self, claim: ClaimId, at: StoreTime) -> bool {
        self.queue.has(claim, at)
    }

    /// Gives the claim's place in the queue up.
    pub fn leave_line(&mut self, claim: ClaimId) {
        self.queue.leave(claim);
    }

    /// Notes for a while that somebody waits, in a store without a queue: whoever releases the name is told so, and while
    /// one waits to hold it alone nobody new comes in beside others.
    pub fn leave_mark(&mut self, claim: &Claim, now: StoreTime, lasts: Duration) {
        if self.is_held_by(claim.id, now) {
            return;
        }
        let wanted = Mark::of(claim, now + lasts);
        if self.mark.as_ref().is_none_or(|mark| mark.gives_way_to(&wanted, now, lasts)) {
            self.mark = Some(wanted);
        }
    }

    /// Notes the bell of the claim's process where the claim waits: at its place in the queue, or on its own mark.
    pub fn set_bell(&mut self, claim: ClaimId, bell: Option<Bell>) {
        self.queue.set_bell(claim, bell);
        if let Some(mark) = self.mark.as_mut().filter(|mark| mark.is_of(claim)) {
            mark.set_bell(bell);
        }
    }

    /// Whether this bell will be rung when it may be the claim's turn. Where there is no queue, the mark of another claim
    /// of the same process will do.
    #[must_use]
    pub fn rings(&self, claim: ClaimId, bell: Bell, now: StoreTime) -> bool {
        let mark = self.mark.as_ref().filter(|mark| mark.stands(now));
        self.queue.bell(claim) == Some(bell) || mark.is_some_and(|mark| mark.bell() == Some(bell))
    }

    /// Ends the claim's hold (clauses U1 and U2).
    pub fn release(&mut self, grant: &Grant, now: StoreTime) -> Release {
        if !self.is_held_by(grant.claim, now) {
            let why = self.why_not(grant, now);
            // Nothing is left to renew, should a renewal still be on its way.
            self.held.retain(|held| held.claim != grant.claim);
            return Release::NotHeld(why);
        }
        self.held.retain(|held| held.claim != grant.claim);
        self.bury(now);
        Release::Released { awaited: self.mark.as_ref().is_some_and(|mark| mark.stands(now)) }
    }

    /// Gives the claim the grant's lease from now on, unless its lease was over.
    pub fn renew(&mut self, grant: &Grant, now: StoreTime) -> Renewal {
        match self.live_of(grant.claim, now) {
            Some(held) => {
                held.until = now + grant.lease;
                Renewal::Renewed
            }
            None => Renewal::Lost(self.why_not(grant, now)),
        }
    }

    /// Makes a writer a reader, in any case, or a reader a writer, if nobody else holds the name.
    pub fn convert(&mut self, grant: &Grant, to: Mode, now: StoreTime) -> Conversion {
        if !self.is_held_by(grant.claim, now) {
            return Conversion::NotHeld(self.why_not(grant, now));
        }
        let others = self.live(now).filter(|held| held.claim != grant.claim).map(|held| held.mode);
        if !to.admits(others) {
            return Conversion::Refused;
        }
        if let Some(held) = self.live_of(grant.claim, now) {
            held.mode = to;
        }
        Conversion::Converted
    }

    /// Afterwards the claim neither holds the name nor waits for it (clause W3).
    pub fn withdraw(&mut self, claim: ClaimId) {
        self.held.retain(|held| held.claim != claim);
        self.queue.leave(claim);
        self.unmark(claim);
    }

    /// Puts out all who hold the name, and tells who they were. Each is told when it asks: see
    /// [`LossCause::Forced`].
    pub fn force(&mut self, name: &Name, now: StoreTime) -> Vec<Holder> {
        let put_out = self.holders(name, now);
        self.bury(now);
        self.forced.extend(self.held.drain(..).map(|held| (held.claim, held.until)));
        put_out
    }

    /// Who holds the name, for people.
    #[must_use]
    pub fn holders(&self, name: &Name, now: StoreTime) -> Vec<Holder> {
        self.live(now).map(|held| held.tell(name, now)).collect()
    }

    /// Whose turn it is: the first in line, if it would be granted the name now.
    #[must_use]
    pub fn next(&self, now: StoreTime) -> Option<ClaimId> {
        let (claim, mode) = self.queue.first(now)?;
        mode.admits(self.live(now).map(|held| held.mode)).then_some(claim)
    }

    /// Who should ask again, now that the record is no longer as it was `before`. A store that can tell its waiters tells
    /// them this; it is a hint like every other (clause W4).
    #[must_use]
    pub fn wakes(&self, before: &Self, now: StoreTime) -> Wake {
        if self.queue.first(now).is_some() {
            let next = self.next(now).filter(|next| before.next(now) != Some(*next));
            return next.map_or(Wake::Nobody, |claim| Wake::First { claim, bell: self.queue.bell(claim) });
        }
        let Some(mark) = before.mark.as_ref().filter(|mark| mark.stands(now)) else { return Wake::Nobody };
        let stays = |was: &Held| self.live(now).any(|held| held.claim == was.claim && held.mode == was.mode);
        let somebody_left = before.live(now).any(|was| !stays(was));
        let somebody_came = self.live(now).any(|held| !before.is_held_by(held.claim, now));
        // One that takes another's place keeps out whom that one did, unless it would share the name.
        let mark_is_gone = self.mark.as_ref().is_none_or(|now| mark.is_alone() && !now.is_alone());
        if !somebody_came && (somebody_left || mark_is_gone) {
            Wake::All { bell: mark.bell() }
        } else {
            Wake::Nobody
        }
    }

    /// How long what keeps the claim out lasts at least, unless it ends sooner; nothing when nothing does.
    fn obstacle(&self, claim: &Claim, now: StoreTime) -> Result<Option<Duration>, StoreError> {
        let Claim { id, mode, .. } = claim;
        let modes = || self.live(now).map(|held| held.mode);
        mode.agrees_with(modes()).map_err(StoreError::mismatch)?;
        // Whoever came before is in the way as if it held the name already.
        let holders = || self.live(now).map(|held| (held.mode, held.until));
        let in_the_way = || holders().chain(self.queue.before(*id, now));
        if !mode.admits(in_the_way().map(|(mode, _)| mode)) {
            let first = || in_the_way().map(|(_, until)| until).min();
            // Who wants it alone waits for the last of those who hold it. Nobody is in the way where the claim takes more
            // permits than there are.
            let until = match mode {
                Mode::Exclusive => holders().map(|(_, until)| until).max().or_else(first),
                _ => first(),
            };
            return Ok(Some(until.map_or(Duration::ZERO, |until| until.since(now))));
        }
        // Past a queue nobody gets in anyway, and whoever left the mark stands behind it: it must not keep the first one out.
        if self.queue.first(now).is_some() {
            return Ok(None);
        }
        let mark = self.mark.as_ref().filter(|mark| mark.stands(now) && mark.keeps_out(claim));
        Ok(mark.map(|mark| mark.until().since(now)))
    }

    fn live(&self, now: StoreTime) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| now < held.until)
    }

    fn live_of(&mut self, claim: ClaimId, now: StoreTime) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.claim == claim && now < held.until)
    }

    fn is_held_by(&self, claim: ClaimId, now: StoreTime) -> bool {
        self.live(now).any(|held| held.claim == claim)
    }

    /// Forgets whose time is over.
    fn bury(&mut self, now: StoreTime) {
        self.held.retain(|held| now < held.until);
        self.forced.retain(|(_, until)| now < *until);
    }

    fn unmark(&mut self, claim: ClaimId) {
        self.mark.take_if(|mark| mark.is_of(claim));
    }

    /// Whether another has had the name alone since the grant was lost. Beside others a name may be granted again without
    /// anybody's having taken it.
    fn was_taken_over(&self, grant: &Grant, now: StoreTime) -> bool {
        match grant.mode {
            Mode::Exclusive => grant.token.get() < self.token,
            _ => self.live(now).any(|held| held.mode == Mode::Exclusive),
        }
    }

    /// Why the grant does not hold the name.
    fn why_not(&self, grant: &Grant, now: StoreTime) -> LossCause {
        if self.forced.iter().any(|(claim, _)| *claim == grant.claim) {
            LossCause::Forced
        } else if self.token < grant.token.get() {
            LossCause::Forgotten
        } else if self.was_taken_over(grant, now) {
            LossCause::TakenOver
        } else {
            LossCause::Expired
        }
    }
}

impl Held {
    fn tell(&self, name: &Name, now: StoreTime) -> Holder {
        Holder::of(name.clone())
            .claim(self.claim, self.token)
            .mode(self.mode)
            .info((*self.holder).clone())
            .since(self.since.into(), now.since(self.since))
            .left(self.until.since(now))
    }
}
