//! `recording` and `requests` without the feature: they do nothing.

#![allow(clippy::unused_self, reason = "it has the form of what records")]

use super::list::{Answer, Ending, Renewed, Request};
use crate::contract::{LossCause, Mode, Moment, Name};
use std::{marker::PhantomData, sync::Arc};
use tokio::time::Instant;

pub(crate) struct Meters;

impl Meters {
    pub(crate) fn new(_: &Arc<str>) -> Self {
        Self
    }

    pub(crate) fn waiting(&self, _: &Name, _: Mode) -> Waiting {
        Waiting
    }

    pub(crate) fn held(&self, _: &Name, _: Mode) -> Held {
        Held
    }

    pub(crate) fn renewal_sent(&self, _: Option<Moment>) {}
}

pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn ended(self, _: Ending) {}

    pub(crate) fn timed_out_since(self, _: Instant) {}

    pub(crate) fn only_if_acquired(&mut self) {}
}

pub(crate) struct Held;

impl Held {
    pub(crate) fn ends(&self, _: Option<LossCause>) {}

    pub(crate) fn over(&self) {}

    pub(crate) fn lost_after_all(&self, _: LossCause) {}

    pub(crate) fn renewed(&self, _: Renewed) {}
}

pub(crate) struct Requests;

impl Requests {
    pub(crate) fn new(_: &str) -> Self {
        Self
    }

    pub(crate) fn ask(&self, _: Request) -> Asked<'_> {
        Asked(PhantomData)
    }
}

pub(crate) struct Asked<'a>(PhantomData<&'a ()>);

impl Asked<'_> {
    pub(crate) fn ended(self, _: Answer) {}
}
