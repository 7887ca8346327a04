//! What all stores have in common, written once: waiting, re-entrancy, renewal, loss, release, cancellation.
//!
//! ```text
//! acquire ──> queue (one contender a name) ──> Backend ──> holding ──> renewal
//!                                                             └──────> release
//! ```

pub(crate) mod acquire;
pub(crate) mod holding;
mod pauses;
mod queue;
pub(crate) mod release;
mod renewal;
pub(crate) mod shared;
