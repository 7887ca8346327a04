//! The holders and waiters of a name, and the claims that it admits: the contract as a value.
//!
//! # Reading the code
//!
//! [`Record`] itself is in `record.rs`. Each layer uses only those below it.
//!
//! | layer | files of `record` |
//! |---|---|
//! | locks over a store of records | `records` |
//! | what a text that cannot be read may be; keys for stores that take few characters | `format`, `escape` |
//! | a record that fits into the columns of a table | `plain` |
//! | who should ask again after a change | `wake` |
//! | who waits, and how a waiting client can be told | `queue`, `bell` |
//! | a latch as a value | `latch` |
//! | the store's clock, also where it only dates what is written | `store_time`, `dated_clock` |

mod bell;
#[cfg(test)]
mod damaged;
mod dated_clock;
mod escape;
#[cfg(test)]
mod examples;
mod format;
mod latch;
#[cfg(test)]
mod model;
mod plain;
mod queue;
mod records;
mod store_time;
#[cfg(test)]
mod tests;
mod wake;

pub use bell::Bell;
pub use dated_clock::DatedClock;
pub use escape::{escape, unescape};
pub use format::unreadable;
pub use latch::LatchRecord;
pub use plain::{Plain, PlainHolder, PlainWaiter};
pub use records::{RecordStore, Records, Stored};
pub use store_time::StoreTime;
pub use wake::Wake;

use crate::{
    contract::{
        Claim, ClaimId, Grant, Holder, HolderInfo, LossCause, Mode, Moment, Name, StoreError, Token, Waiter,
    },
    store::{Attempt, Conversion, Release, Renewal},
};
use queue::{Mark, Queue};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// All that a store knows of one name, and what becomes of it with each request.
///
/// A pure value: no I/O, no waiting, and no clock but the [`StoreTime`] that is passed in, which is the store's. It
/// answers what the [`Backend`](crate::Backend) of any store must answer, including one with an algorithm of its own.
///
/// # Behaviour of every request
///
/// - **Idempotent.** The same request, sent again at the same time, leaves the record as it is.
/// - **Compares the claim.** Only [`force_release`](Self::force_release) changes what another claim holds (clause U1).
/// - **Never revives.** A holder counts until its lease expires by the store's clock (clause L2), and not afterwards.
///
/// A store may forget a name that is [idle](Self::is_idle), if it keeps the last token: the name's next record then
/// begins [after](Self::after) that.
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
///     reserve: 0,
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
    /// That of the last grant.
    token: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<Held>,
    #[serde(skip_serializing_if = "Queue::is_empty")]
    queue: Queue,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
    /// The claims that were released by force, each until its lease would have expired.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forced: Vec<(ClaimId, StoreTime)>,
}

/// A holder of the name.
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
    /// How long a waiter keeps its place in the queue without asking again. Dead waiters delay the others by no more than
    /// that, however many there are. A shorter time would cost a waiter its place if its process or disk stalls for a
    /// moment.
    pub const PLACE: Duration = Duration::from_secs(3);

    /// The record of a free name, whose tokens so far were at most `token`.
    #[must_use]
    pub fn after(token: u64) -> Self {
        Self { token, ..Self::default() }
    }

    /// The token of the last grant; 0 if there was none.
    #[must_use]
    pub fn last_token(&self) -> u64 {
        self.token
    }

    /// Whether there is nothing to keep but the last token: no claim holds the name or waits for it, and no holder has
    /// yet to learn of a forced release.
    #[must_use]
    pub fn is_idle(&self, now: StoreTime) -> bool {
        self.live(now).next().is_none()
            && self.queue.first(now).is_none()
            && self.mark.as_ref().is_none_or(|mark| !mark.stands(now))
            && self.forced.iter().all(|(_, until)| *until <= now)
    }

    /// Whether a lease has ended that was not released, of this claim or of any; or that of a claim that was released by
    /// force.
    pub(crate) fn has_expired(&self, of: Option<ClaimId>, now: StoreTime) -> bool {
        let held = self.held.iter().map(|held| (held.claim, held.until));
        let mut all = held.chain(self.forced.iter().copied());
        all.any(|(claim, until)| until <= now && of.is_none_or(|of| of == claim))
    }

    /// Grants the name to the claim if the holders admit it, and so do those ahead of it in the queue (clauses X1 and W5).
    ///
    /// A claim that already holds the name is granted it again, with the same token and a fresh lease, unless the one
    /// that it has lasts longer (clause F1). A claim whose grant was released by force is not granted the name again while
    /// its client may still rely on that grant: an attempt that comes late would otherwise give it to the holder who
    /// lost it. A new grant's token is greater than all before it, and at least the store's
    /// clock in microseconds (clauses T1 and T2), and so are those that it [reserves](Claim::reserve). A refused claim
    /// leaves nothing behind; see [`join_queue`](Self::join_queue) and [`leave_mark`](Self::leave_mark).
    ///
    /// `sent` is the instant before the request was sent: the holder's deadline counts from it (clause L3).
    ///
    /// # Errors
    ///
    /// [`StoreError::claim_spent`] after a forced release; [`StoreError::mismatch`] if the claim expects another number of
    /// permits than the holders; [`StoreError::failed`] if there are no more tokens.
    pub fn acquire(&mut self, claim: &Claim, now: StoreTime, sent: Moment) -> Result<Attempt, StoreError> {
        let until = now + claim.lease;
        if let Some(held) = self.live_of(claim.id, now) {
            // The request may come late, and the lease may have been extended before.
            held.until = held.until.max(until);
            return Ok(Attempt::Granted(Grant::leased(claim, held.token, sent).reserving(claim.reserve)));
        }
        if let Some(expires_in) = self.obstacle(claim, now)? {
            return Ok(Attempt::Busy { expires_in: Some(expires_in) });
        }
        let first = self.token.saturating_add(1).max(now.as_micros());
        // The holder is kept with the last of its tokens, so that the next grant's is greater than all of them.
        let token = first.saturating_add(u64::from(claim.reserve));
        let token = Token::new(token).ok_or_else(|| StoreError::failed("there are no more tokens"))?;
        self.token = token.get();
        self.bury(now);
        self.queue.serve(claim.id, now);
        // An exclusive claim now has what the mark was for. Beside a shared one or a permit, others may still wait.
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
        Ok(Attempt::Granted(Grant::leased(claim, token, sent).reserving(claim.reserve)))
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
    /// No conflicting claim overtakes one that has a place. A claim that holds the name gets none.
    pub fn join_queue(&mut self, claim: &Claim, now: StoreTime) {
        self.join_queue_for(claim, now, Self::PLACE);
    }

    /// Like [`join_queue`](Self::join_queue), with a place that lasts so long.
    pub(crate) fn join_queue_for(&mut self, claim: &Claim, now: StoreTime, lasts: Duration) {
        if !self.is_held_by(claim.id, now) {
            self.queue.stand(claim, now, lasts);
        }
    }

    /// Whether the claim still has its place in the queue at that time if it does not ask again.
    #[must_use]
    pub fn has_place(&self, claim: ClaimId, at: StoreTime) -> bool {
        self.queue.has(claim, at)
    }

    /// Gives up the claim's place in the queue.
    pub fn leave_queue(&mut self, claim: ClaimId) {
        self.queue.leave(claim);
    }

    /// Leaves a mark for a while, in a store without a queue: a release then reports a waiter. While an exclusive
    /// claim waits, the mark also keeps newcomers from joining the holders.
    pub fn leave_mark(&mut self, claim: &Claim, now: StoreTime, lasts: Duration) {
        if self.is_held_by(claim.id, now) {
            return;
        }
        let wanted = Mark::of(claim, now + lasts);
        if self.mark.as_ref().is_none_or(|mark| mark.gives_way_to(&wanted, now, lasts)) {
            self.mark = Some(wanted);
        }
    }

    /// Whether the name's mark is the claim's, and still stands at that time. A claim that waits beside another's mark
    /// is forgotten when that one is granted the name.
    #[must_use]
    pub fn has_mark(&self, claim: ClaimId, at: StoreTime) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.is_of(claim) && mark.stands(at))
    }

    /// Sets the bell of the claim's client where the claim waits: at its place in the queue, or on its own mark.
    pub fn set_bell(&mut self, claim: ClaimId, bell: Option<Bell>) {
        self.queue.set_bell(claim, bell);
        if let Some(mark) = self.mark.as_mut().filter(|mark| mark.is_of(claim)) {
            mark.set_bell(bell);
        }
    }

    /// Whether this bell will be rung when it may be the claim's turn. Without a queue, the mark of another claim of the
    /// same client is enough.
    #[must_use]
    pub fn rings(&self, claim: ClaimId, bell: Bell, now: StoreTime) -> bool {
        let mark = self.mark.as_ref().filter(|mark| mark.stands(now));
        self.queue.bell(claim) == Some(bell) || mark.is_some_and(|mark| mark.bell() == Some(bell))
    }

    /// Releases the grant, if its claim still holds the name (clauses U1 and U2).
    pub fn release(&mut self, grant: &Grant, now: StoreTime) -> Release {
        if !self.is_held_by(grant.claim, now) {
            let why = self.why_not(grant, now);
            // So that a renewal that is still on its way finds nothing to renew.
            self.held.retain(|held| held.claim != grant.claim);
            return Release::Lost(why);
        }
        self.held.retain(|held| held.claim != grant.claim);
        self.bury(now);
        Release::Released { awaited: self.mark.as_ref().is_some_and(|mark| mark.stands(now)) }
    }

    /// Renews the grant: its lease is [`Grant::lease`] from now, unless it has expired.
    ///
    /// A grant that the record has in a lesser mode is lost, and left as it is: the store has forgotten an upgrade (clause
    /// F4), or a downgrade has overtaken this request (clause F7). `Locks` knows which.
    pub fn renew(&mut self, grant: &Grant, now: StoreTime) -> Renewal {
        match self.live_of(grant.claim, now) {
            Some(held) if held.mode.covers(grant.mode) => {
                held.until = now + grant.lease;
                Renewal::Renewed
            }
            Some(_) => Renewal::Lost(LossCause::Forgotten),
            None => Renewal::Lost(self.why_not(grant, now)),
        }
    }

    /// Changes the mode of a grant: a downgrade always succeeds, an upgrade only if no other claim holds the name.
    pub fn convert(&mut self, grant: &Grant, to: Mode, now: StoreTime) -> Conversion {
        if !self.is_held_by(grant.claim, now) {
            return Conversion::Lost(self.why_not(grant, now));
        }
        let others = self.live(now).filter(|held| held.claim != grant.claim).map(|held| held.mode);
        if !to.admits(others) {
            return Conversion::Refused;
        }
        // If the clock is set back, an expired holder would otherwise hold the name beside this one.
        self.bury(now);
        if let Some(held) = self.live_of(grant.claim, now) {
            held.mode = to;
        }
        Conversion::Converted
    }

    /// Withdraws the claim: afterwards it neither holds the name nor waits for it (clause W3).
    pub fn withdraw(&mut self, claim: ClaimId) {
        self.held.retain(|held| held.claim != claim);
        self.queue.leave(claim);
        self.unmark(claim);
    }

    /// Ends every grant of the name by force, and returns who held it. Each holder learns of it when it next asks: see
    /// [`LossCause::Forced`].
    pub fn force_release(&mut self, name: &Name, now: StoreTime) -> Vec<Holder> {
        let holders = self.holders(name, now);
        self.bury(now);
        self.forced.extend(self.held.drain(..).map(|held| (held.claim, held.until)));
        holders
    }

    /// The holders of the name, for people.
    #[must_use]
    pub fn holders(&self, name: &Name, now: StoreTime) -> Vec<Holder> {
        self.live(now).map(|held| held.tell(name, now)).collect()
    }

    /// The waiters in the queue for the name, in order. For people.
    #[must_use]
    pub fn waiting(&self, name: &Name, now: StoreTime) -> Vec<Waiter> {
        self.queue.tell(name, now)
    }

    /// For how long others keep the claim out, unless they leave sooner; `None` if none do.
    fn obstacle(&self, claim: &Claim, now: StoreTime) -> Result<Option<Duration>, StoreError> {
        let Claim { id, mode, .. } = claim;
        if self.forced.iter().any(|(forced, until)| forced == id && now < *until) {
            return Err(StoreError::claim_spent("its grant was released by force"));
        }
        let modes = || self.live(now).map(|held| held.mode);
        mode.agrees_with(modes()).map_err(StoreError::mismatch)?;
        // A claim that is ahead in the queue is in the way as if it held the name already.
        let holders = || self.live(now).map(|held| (held.mode, held.until));
        let in_the_way = || holders().chain(self.queue.before(*id, now));
        if !mode.admits(in_the_way().map(|(mode, _)| mode)) {
            let first = || in_the_way().map(|(_, until)| until).min();
            // An exclusive claim waits for the last of the holders. A claim to more permits than there are may have
            // no other in its way.
            let until = match mode {
                Mode::Exclusive => holders().map(|(_, until)| until).max().or_else(first),
                _ => first(),
            };
            return Ok(Some(until.map_or(Duration::ZERO, |until| until.since(now))));
        }
        // The queue alone decides who is next. The claim that left the mark is behind it, and must not keep the first out.
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

    /// Forgets the holders whose leases have expired, and the forced releases that no lease remembers any more.
    fn bury(&mut self, now: StoreTime) {
        self.held.retain(|held| now < held.until);
        self.forced.retain(|(_, until)| now < *until);
    }

    fn unmark(&mut self, claim: ClaimId) {
        self.mark.take_if(|mark| mark.is_of(claim));
    }

    /// Whether another has held the name exclusively since the grant was lost. A name that is shared may have been granted
    /// again without that.
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
