//! The requests to a store, measured.

use super::{
    list::{ANSWERS, Answer, REQUESTS, Request, STORE_REQUEST, STORE_REQUESTS},
    recording::{counter, histogram, store_label},
};
use ::metrics::{Counter, Histogram, Label};
use tokio::time::Instant;

/// The measurements of the requests to one store.
pub(crate) struct Requests([Meter; REQUESTS.len()]);

/// The measurements of one kind of request.
struct Meter {
    answers: [Counter; ANSWERS.len()],
    seconds: Histogram,
}

impl Requests {
    pub(crate) fn new(store: &str) -> Self {
        Self(REQUESTS.map(|request| Meter::new(store_label(store), request)))
    }

    /// A request is sent.
    pub(crate) fn ask(&self, request: Request) -> Asked<'_> {
        Asked { meter: &self.0[request as usize], sent: Instant::now(), answer: Answer::Abandoned }
    }
}

impl Meter {
    fn new(store: Label, request: &'static str) -> Self {
        let labels = [store, Label::from_static_parts("request", request)];
        Self {
            answers: ANSWERS.map(|answer| counter(&STORE_REQUESTS, &labels, "outcome", answer)),
            seconds: histogram(&STORE_REQUEST, &labels),
        }
    }
}

/// A request under way. Dropping it without an answer counts it as abandoned.
pub(crate) struct Asked<'a> {
    meter: &'a Meter,
    sent: Instant,
    answer: Answer,
}

impl Asked<'_> {
    pub(crate) fn ended(mut self, answer: Answer) {
        self.answer = answer;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.meter.answers[self.answer as usize].increment(1);
        self.meter.seconds.record(self.sent.elapsed());
    }
}
