//! Every metric there is. The documentation and the dashboard are checked against this list.

use crate::contract::{Error, LossCause, StoreError};

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name. It says the unit too, as is usual in Prometheus: `_seconds`, or `_total` for a number of events.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [Label],
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A number of events, which only rises.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution, in seconds.
    Histogram,
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All of its values; empty if they depend on the program.
    pub values: &'static [&'static str],
}

/// Bounds for the histograms' buckets, in seconds: from a fast request to a long hold. Hand them to an exporter that
/// asks for them.
pub const BUCKETS: &[f64] =
    &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0];

/// The group of a name without a `/`, and of every name if names are not grouped.
pub const NO_GROUP: &str = "-";
/// The group of all names whose own group would be one too many: after the first 100 groups of a client, beside
/// [`NO_GROUP`].
pub const OTHER_GROUPS: &str = "other";
/// How many groups a client tells apart.
#[cfg(feature = "metrics")]
pub(super) const MOST_GROUPS: usize = 100;

pub(super) const MODES: [&str; 3] = ["exclusive", "shared", "permit"];
pub(super) const ENDINGS: [&str; 6] = ["acquired", "busy", "timeout", "unavailable", "failed", "cancelled"];
pub(super) const CAUSES: [&str; 6] = [
    LossCause::Expired.as_str(),
    LossCause::TakenOver.as_str(),
    LossCause::SessionEnded.as_str(),
    LossCause::Forgotten.as_str(),
    LossCause::Forced.as_str(),
    LossCause::MaxHold.as_str(),
];
/// The place of a cause in [`CAUSES`].
#[cfg(feature = "metrics")]
pub(super) const fn place(cause: LossCause) -> usize {
    match cause {
        LossCause::Expired => 0,
        LossCause::TakenOver => 1,
        LossCause::SessionEnded => 2,
        LossCause::Forgotten => 3,
        LossCause::Forced => 4,
        LossCause::MaxHold => 5,
    }
}
pub(super) const RENEWALS: [&str; 4] = ["renewed", "late", "lost", "unanswered"];
pub(super) const REQUESTS: [&str; 12] = [
    "try_acquire",
    "try_acquire_all",
    "acquire",
    "release",
    "renew",
    "withdraw",
    "convert",
    "latch",
    "holders",
    "list",
    "waiting",
    "force_release",
];
pub(super) const ANSWERS: [&str; 4] = ["answered", "unavailable", "failed", "abandoned"];

/// How an acquisition ended: a place in [`ENDINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Acquired,
    Busy,
    Timeout,
    Unavailable,
    Failed,
    Cancelled,
}

impl Ending {
    pub(crate) const fn of(error: &Error) -> Self {
        match error {
            Error::Timeout { .. } => Self::Timeout,
            Error::Unavailable { .. } => Self::Unavailable,
            Error::Closed { .. } => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// How a renewal ended: a place in [`RENEWALS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    InTime,
    Late,
    Lost,
    Unanswered,
}

/// A kind of request: a place in [`REQUESTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    TryAcquire,
    TryAcquireAll,
    Acquire,
    Release,
    Renew,
    Withdraw,
    Convert,
    Latch,
    Holders,
    List,
    Waiting,
    ForceRelease,
}

impl Request {
    pub(crate) const fn as_str(self) -> &'static str {
        REQUESTS[self as usize]
    }
}

/// How a request ended: a place in [`ANSWERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Answered,
    Unavailable,
    Failed,
    /// The caller stopped waiting for the answer.
    #[cfg(feature = "metrics")]
    Abandoned,
}

impl Answer {
    pub(crate) fn of<T>(answer: &Result<T, StoreError>) -> Self {
        match answer {
            Ok(_) => Self::Answered,
            Err(error) if error.is_unavailable() => Self::Unavailable,
            Err(_) => Self::Failed,
        }
    }
}

const fn open(name: &'static str) -> Label {
    Label { name, values: &[] }
}

const STORE: Label = open("store");
const MODE: Label = Label { name: "mode", values: &MODES };
const GROUP: Label = open("group");
const OUTCOME: &str = "outcome";
const REQUEST: Label = Label { name: "request", values: &REQUESTS };

pub(super) const ACQUISITIONS: Metric = Metric {
    name: "tenure_acquisitions_total",
    kind: Kind::Counter,
    labels: &[STORE, MODE, GROUP, Label { name: OUTCOME, values: &ENDINGS }],
    unit: "acquisitions",
    help: "Acquisitions that have ended, by outcome. A set of names counts once for each name. Re-entries count too.",
};
pub(super) const WAIT: Metric = Metric {
    name: "tenure_wait_seconds",
    kind: Kind::Histogram,
    labels: &[STORE, MODE, GROUP],
    unit: "seconds",
    help: "How long acquisitions took, for all outcomes. Tries that found the lock busy do not count.",
};
pub(super) const WAITING: Metric = Metric {
    name: "tenure_waiting",
    kind: Kind::Gauge,
    labels: &[STORE, MODE, GROUP],
    unit: "acquisitions",
    help: "Acquisitions under way.",
};
pub(super) const HELD: Metric = Metric {
    name: "tenure_held",
    kind: Kind::Gauge,
    labels: &[STORE, MODE, GROUP],
    unit: "grants",
    help: "Grants that this process holds. A re-entry adds none.",
};
pub(super) const HOLD: Metric = Metric {
    name: "tenure_hold_seconds",
    kind: Kind::Histogram,
    labels: &[STORE, MODE, GROUP],
    unit: "seconds",
    help: "How long grants were held, from the store's answer to the start of the release, or to the loss.",
};
pub(super) const LOSSES: Metric = Metric {
    name: "tenure_losses_total",
    kind: Kind::Counter,
    labels: &[STORE, MODE, GROUP, Label { name: "cause", values: &CAUSES }],
    unit: "grants",
    help: "Grants that ended before they were released, by cause.",
};
pub(super) const RENEWED: Metric = Metric {
    name: "tenure_renewals_total",
    kind: Kind::Counter,
    labels: &[STORE, MODE, GROUP, Label { name: OUTCOME, values: &RENEWALS }],
    unit: "renewals",
    help: "Renewals and extensions of grants, by outcome.",
};
pub(super) const RENEWAL_LAG: Metric = Metric {
    name: "tenure_renewal_lag_seconds",
    kind: Kind::Histogram,
    labels: &[STORE],
    unit: "seconds",
    help: "How late renewals were sent. A renewal is due after a third of the lease.",
};
pub(super) const STORE_REQUESTS: Metric = Metric {
    name: "tenure_store_requests_total",
    kind: Kind::Counter,
    labels: &[STORE, REQUEST, Label { name: OUTCOME, values: &ANSWERS }],
    unit: "requests",
    help: "Requests to the store that have ended, by kind and outcome.",
};
pub(super) const STORE_REQUEST: Metric = Metric {
    name: "tenure_store_request_seconds",
    kind: Kind::Histogram,
    labels: &[STORE, REQUEST],
    unit: "seconds",
    help: "How long requests to the store took. With request=acquire that includes the wait for other holders.",
};

/// All metrics.
pub const METRICS: &[Metric] =
    &[ACQUISITIONS, WAIT, WAITING, HELD, HOLD, LOSSES, RENEWED, RENEWAL_LAG, STORE_REQUESTS, STORE_REQUEST];

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn loss_cause_place_matches_its_name() {
        use LossCause::{Expired, Forced, Forgotten, MaxHold, SessionEnded, TakenOver};
        let causes = [Expired, TakenOver, SessionEnded, Forgotten, Forced, MaxHold];
        assert_eq!(causes.map(|cause| CAUSES[place(cause)]), causes.map(LossCause::as_str));
    }
}
