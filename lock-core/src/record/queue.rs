//! Those who wait for a name.

use super::{Bell, StoreTime};
use crate::{Claim, ClaimId, Mode};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The waiters, in the order in which they came. One who is dead counts for nothing, and has its place back when it is
/// heard of again before anybody was served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queue(Vec<Place>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    claim: ClaimId,
    mode: Mode,
    until: StoreTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bell: Option<Bell>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the claim the last place, or keeps the place that it has, for as long as a place lasts.
    pub(super) fn stand(&mut self, claim: &Claim, now: StoreTime, lasts: Duration) {
        let until = now + lasts;
        if let Some(place) = self.0.iter_mut().find(|place| place.claim == claim.id) {
            place.until = until;
            return;
        }
        // Those of whom nothing was heard for ten times as long do not come back.
        self.0.retain(|place| now < place.until + lasts * 10);
        self.0.push(Place { claim: claim.id, mode: claim.mode, until, bell: None });
    }

    pub(super) fn has(&self, claim: ClaimId, at: StoreTime) -> bool {
        self.0.iter().any(|place| place.claim == claim && at < place.until)
    }

    pub(super) fn set_bell(&mut self, claim: ClaimId, bell: Option<Bell>) {
        if let Some(place) = self.0.iter_mut().find(|place| place.claim == claim) {
            place.bell = bell;
        }
    }

    /// The bell of the claim's process, if the claim has a place and the process a bell.
    pub(super) fn bell(&self, claim: ClaimId) -> Option<Bell> {
        self.0.iter().find(|place| place.claim == claim)?.bell
    }

    /// What those want who came before this claim, or all if it has no place, and until when each keeps its place.
    pub(super) fn before(&self, claim: ClaimId, now: StoreTime) -> impl Iterator<Item = (Mode, StoreTime)> {
        let before = self.0.iter().take_while(move |place| place.claim != claim);
        before.filter(move |place| now < place.until).map(|place| (place.mode, place.until))
    }

    /// Until when the last of them keeps its place.
    pub(super) fn last(&self) -> Option<StoreTime> {
        self.0.iter().map(|place| place.until).max()
    }

    /// The first who is still heard of.
    pub(super) fn first(&self, now: StoreTime) -> Option<(ClaimId, Mode)> {
        self.0.iter().find(|place| now < place.until).map(|place| (place.claim, place.mode))
    }

    #[cfg(test)]
    pub(super) fn in_order(&self) -> impl Iterator<Item = ClaimId> {
        self.0.iter().map(|place| place.claim)
    }

    /// The claim has what it waited for, and the dead are forgotten.
    pub(super) fn serve(&mut self, claim: ClaimId, now: StoreTime) {
        self.0.retain(|place| place.claim != claim && now < place.until);
    }

    pub(super) fn leave(&mut self, claim: ClaimId) {
        self.0.retain(|place| place.claim != claim);
    }
}

/// That somebody waits, in a store without a queue: one for all who do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    claim: ClaimId,
    /// Whether it wants the name alone.
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

    /// Whether it is that of one who wants the name alone.
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

    /// Whether the claim, which could share the name, waits for one who wants it alone.
    pub(super) fn keeps_out(&self, claim: &Claim) -> bool {
        self.alone && self.claim != claim.id && claim.mode != Mode::Exclusive
    }

    /// Whether the wanted mark takes this one's place. One that stands for long enough is left alone, so that nothing needs
    /// to be written; that of one who wants the name alone is never replaced by another's, or it would be forgotten.
    pub(super) fn gives_way_to(&self, wanted: &Self, now: StoreTime, lasts: Duration) -> bool {
        match (self.alone, wanted.alone) {
            (true, false) => !self.stands(now),
            (false, true) => true,
            _ => self.until < now + lasts / 2,
        }
    }
}
