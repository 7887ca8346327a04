//! The fate of the requests that pass a probe.

use crate::log::Method;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tenure_core::{Grant, Name};

/// The faults of the next requests, and a record of the past ones.
#[derive(Default)]
pub(super) struct Script {
    pub(super) next: HashMap<Method, VecDeque<Fault>>,
    pub(super) always: HashMap<Method, Fault>,
    pub(super) hints: Hints,
    /// The newest grant of each name.
    pub(super) grants: HashMap<Name, Grant>,
}

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out: the store cannot be reached.
    Refuse,
    /// It is carried out, but the reply is lost.
    LoseReply,
    /// It is carried out at once, and the reply is delayed by this long.
    DelayReply(Duration),
    /// It is carried out this much later, unless it is cancelled before.
    DelayRequest(Duration),
    /// It is carried out this much later, even if it was cancelled before.
    Straggle(Duration),
    /// It is carried out when [`Probe::carry_out`](super::Probe::carry_out) is called, even if it was cancelled before.
    /// Until then it keeps the store's client.
    HoldBack,
    /// The store's own code continues only this long after each time that it had to wait, as in a starved process. So
    /// it gets its answer late, and the steps of one request are far apart.
    Stall(Duration),
    /// It is not carried out and never answered.
    Hang,
    /// The store fails it, in a way that a retry will not help.
    Fail,
}

/// A fault of the store's hints that a lock was released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hints {
    /// They arrive as the store sends them.
    #[default]
    AsSent,
    /// None arrives, so every wait takes as long as it may.
    None,
    /// They arrive for no reason, again and again, this often.
    Spurious(Duration),
}
