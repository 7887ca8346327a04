//! The trait that each store implements, and the runtimes that its requests run on.
//!
//! | file | what is in it |
//! |---|---|
//! | `hung` | a store for tests, which never answers |
//! | `forward` | a store that wraps another |
//! | `backend` | the requests to a store, and its answers |
//! | `opening` | the one session of a client, where grants are in sessions |
//! | `per_runtime` | a connection for each runtime |
//! | `background` | a thread that outlives the callers' runtimes |

mod backend;
mod background;
mod forward;
#[cfg(test)]
pub(crate) mod hung;
mod opening;
mod per_runtime;

pub(crate) use backend::Rounds;
pub use backend::{Attempt, AttemptAll, Backend, Conversion, LatchState, LatchStep, Release, Renewal};
pub use background::Background;
pub(crate) use background::Use;
pub use opening::Opening;
pub use per_runtime::PerRuntime;
