//! Locks held by a majority of independent servers.
//!
//! The algorithm is [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with fencing
//! tokens that rise from grant to grant whatever the clocks do. `docs/redlock.md` has the argument.

mod attempt;
mod backend;
mod ending;
mod hints;
mod identity;
mod options;
mod people;
mod quorum;
mod renewal;
mod tally;
mod unanswered;
mod url;
mod voter;
mod voters;
mod waiting;

pub use backend::RedlockBackend;
pub use options::RedlockOptions;
