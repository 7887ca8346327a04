//! What all stores have in common, written once: waiting, re-entrancy, renewal, loss, release, cancellation.
//!
//! ```text
//! acquire ──> queue (one contender a name) ──> Backend ──> holding ──> renewal
//!                                                             ├──────> convert, extend
//!                                                             └──────> release
//! ```

pub(crate) mod acquire;
mod belief;
mod chore;
mod convert;
mod extend;
pub(crate) mod holding;
pub(crate) mod pauses;
mod queue;
pub(crate) mod release;
mod renewal;
pub(crate) mod shared;
mod together;
