//! The requests that a record gets, and its answers.

use crate::{
    contract::{Mode, Token},
    record::{Record, StoreTime},
    store::{Conversion, Release, Renewal},
};
use std::time::Duration;

pub(super) const CLAIMS: usize = 3;
pub(super) const ALONE: Mode = Mode::Exclusive;
pub(super) const READER: Mode = Mode::Shared;
pub(super) const PLACE: Duration = Record::PLACE;
/// A lease lasts for one tick at first, and for one or two once it is renewed. A place in the queue and a mark last for
/// two.
pub(super) const TICK: Duration = Duration::from_millis(1500);
pub(super) const LEASE: Duration = TICK;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Acquire(usize),
    Wait(usize),
    Leave(usize),
    Mark(usize),
    /// The mode on which the client relies, and the lease.
    Renew(usize, Mode, Duration),
    Convert(usize, Mode),
    Release(usize),
    Withdraw(usize),
    Force,
    /// The store forgets an idle name, except for its last token.
    Forget,
    /// The store keeps the record in columns, if it fits.
    Columns,
    Tick,
}

/// A holder: its claim, mode and token, and the rest of its lease.
pub(super) type Held = (usize, Mode, Token, Duration);

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Granted(Token, u32),
    Busy(Duration),
    Spent,
    Marked(usize, StoreTime),
    Renewal(Renewal),
    Conversion(Conversion),
    Release(Release),
    Forced(Vec<Held>),
    Done,
}

/// How many tokens a claim for this mode reserves.
pub(super) fn reserve(mode: Mode) -> u32 {
    if mode == ALONE { 2 } else { 0 }
}
