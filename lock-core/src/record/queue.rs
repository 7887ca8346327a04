//! The waiters for a name: a queue of them, or a mark.

use super::{Bell, StoreTime};
use crate::contract::{Claim, ClaimId, HolderInfo, Mode, Name, Waiter};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The waiters, in the order in which they came. A place that was not renewed in time does not count. Its claim gets it
/// back if it asks again before another is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queue(Vec<Place>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    claim: ClaimId,
    mode: Mode,
    since: StoreTime,
    until: StoreTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bell: Option<Bell>,
    holder: Arc<HolderInfo>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the claim the last place, or renews the place that it has.
    pub(super) fn stand(&mut self, claim: &Claim, now: StoreTime, lasts: Duration) {
        let until = now + lasts;
        if let Some(place) = self.0.iter_mut().find(|place| place.claim == claim.id) {
            place.until = until;
            return;
        }
        // A claim that has not asked for ten times as long does not come back.
        self.0.retain(|place| now < place.until + lasts * 10);
        let holder = Arc::clone(&claim.holder);
        self.0.push(Place { claim: claim.id, mode: claim.mode, since: now, until, bell: None, holder });
    }

    pub(super) fn has(&self, claim: ClaimId, at: StoreTime) -> bool {
        self.0.iter().any(|place| place.claim == claim && at < place.until)
    }

    pub(super) fn set_bell(&mut self, claim: ClaimId, bell: Option<Bell>) {
        if let Some(place) = self.0.iter_mut().find(|place| place.claim == claim) {
            place.bell = bell;
        }
    }

    /// The bell of the claim's client, if the claim has a place and the client a bell.
    pub(super) fn bell(&self, claim: ClaimId) -> Option<Bell> {
        self.0.iter().find(|place| place.claim == claim)?.bell
    }

    /// The modes of the claims ahead of this one, or of all if it has no place, and until when each keeps its place.
    pub(super) fn before(&self, claim: ClaimId, now: StoreTime) -> impl Iterator<Item = (Mode, StoreTime)> {
        let before = self.0.iter().take_while(move |place| place.claim != claim);
        before.filter(move |place| now < place.until).map(|place| (place.mode, place.until))
    }

    /// Until when the last of them keeps its place.
    pub(super) fn last(&self) -> Option<StoreTime> {
        self.0.iter().map(|place| place.until).max()
    }

    /// The first claim that still has its place.
    pub(super) fn first(&self, now: StoreTime) -> Option<(ClaimId, Mode)> {
        self.0.iter().find(|place| now < place.until).map(|place| (place.claim, place.mode))
    }

    /// The waiters that still have their places, for people.
    pub(super) fn tell(&self, name: &Name, now: StoreTime) -> Vec<Waiter> {
        let standing = self.0.iter().filter(|place| now < place.until);
        let told = standing.map(|place| {
            Waiter::of(name.clone())
                .claim(place.claim)
                .mode(place.mode)
                .info((*place.holder).clone())
                .since(place.since.into(), now.since(place.since))
        });
        told.collect()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> impl Iterator<Item = (ClaimId, StoreTime)> {
        self.0.iter().map(|place| (place.claim, place.until))
    }

    /// Removes a claim that has been granted the name, and all places that were not renewed in time.
    pub(super) fn serve(&mut self, claim: ClaimId, now: StoreTime) {
        self.0.retain(|place| place.claim != claim && now < place.until);
    }

    pub(super) fn leave(&mut self, claim: ClaimId) {
        self.0.retain(|place| place.claim != claim);
    }
}

/// The mark of a waiter, in a store without a queue: one for all waiters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    claim: ClaimId,
    /// Whether its claim is exclusive.
    alone: bool,
    until: StoreTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bell: Option<Bell>,
}

impl Mark {
    pub(super) fn of(claim: &Claim, until: StoreTime) -> Self {
        Self { claim: claim.id, alone: claim.mode == Mode::Exclusive, until, bell: None }
    }

    pub(super) fn alone(claim: ClaimId, until: StoreTime, bell: Option<Bell>) -> Self {
        Self { claim, alone: true, until, bell }
    }

    pub(super) fn claim(&self) -> ClaimId {
        self.claim
    }

    /// Whether it is the mark of an exclusive claim.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    pub(super) fn until(&self) -> StoreTime {
        self.until
    }

    pub(super) fn bell(&self) -> Option<Bell> {
        self.bell
    }

    pub(super) fn set_bell(&mut self, bell: Option<Bell>) {
        self.bell = bell;
    }

    pub(super) fn stands(&self, now: StoreTime) -> bool {
        now < self.until
    }

    pub(super) fn is_of(&self, claim: ClaimId) -> bool {
        self.claim == claim
    }

    /// Whether it keeps out the claim, which could share the name, because an exclusive one waits.
    pub(super) fn keeps_out(&self, claim: &Claim) -> bool {
        self.alone && self.claim != claim.id && claim.mode != Mode::Exclusive
    }

    /// Whether the wanted mark replaces this one. A mark that counts for long enough stays, so that nothing needs to be
    /// written. The mark of an exclusive claim is not replaced by that of a shared one, or the writer would be forgotten.
    pub(super) fn gives_way_to(&self, wanted: &Self, now: StoreTime, lasts: Duration) -> bool {
        match (self.alone, wanted.alone) {
            (true, false) => !self.stands(now),
            (false, true) => true,
            _ => self.until < now + lasts / 2,
        }
    }
}
