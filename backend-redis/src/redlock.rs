//! Locks held by a majority of independent servers.
//!
//! The algorithm is [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with fencing
//! tokens that rise from grant to grant even if clocks jump. `docs/redlock.md` has the argument.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend` | [`RedlockBackend`] |
//! | `waiting`, `hints` | a claim that waits; hints from several servers |
//! | `attempt`, `tally` | one attempt: two rounds, and the servers' answers so far |
//! | `renewal`, `ending`, `people` | the other requests to all servers |
//! | `voters`, `quorum` | all servers, asked at once; how many are enough |
//! | `url`, `options` | from a URL to options |
//! | `voter` | one server, and the requests to it |
//! | `pending` | the endings that it has not confirmed |
//! | `identity` | which server answers at an address |

mod attempt;
mod backend;
mod ending;
mod hints;
mod identity;
mod options;
mod pending;
mod people;
mod quorum;
mod renewal;
mod tally;
mod url;
mod voter;
mod voters;
mod waiting;

pub use backend::RedlockBackend;
pub use options::RedlockOptions;
