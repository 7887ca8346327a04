//! Measurements, with the feature `metrics`: the times of waits and holds, the losses, and the store's answers.
//!
//! The measurements go to the recorder that the program has installed for the [`metrics`](https://docs.rs/metrics)
//! crate: an exporter for Prometheus, OpenTelemetry, `StatsD` or another. Install it **before** the client is made,
//! because a client looks for it once. Without a recorder they go nowhere. Without the feature there is no code for
//! them, and this module only lists them.
//!
//! `docs/metrics.md` explains each metric; `docs/operate.md` has alerts and a dashboard.
//!
//! | file | what is in it |
//! |---|---|
//! | `list` | every metric, with its labels |
//! | `recording` | what the policy tells: a wait, a hold, a renewal |
//! | `requests` | the requests to a store |
//! | `silent` | the same without the feature: nothing |

mod list;
#[cfg(feature = "metrics")]
mod recording;
#[cfg(feature = "metrics")]
mod requests;
#[cfg(not(feature = "metrics"))]
mod silent;

pub(crate) use list::{Answer, Ending, Renewed, Request};
pub use list::{BUCKETS, Kind, Label, METRICS, Metric, NO_GROUP, OTHER_GROUPS};
#[cfg(feature = "metrics")]
pub(crate) use recording::{Held, Meters, Waiting};
#[cfg(feature = "metrics")]
pub(crate) use requests::Requests;
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{Held, Meters, Requests, Waiting};
