//! The words of the contract: what a lock, a claim, a grant and their ends are. Nothing here asks a store.
//!
//! Each row uses only those below it:
//!
//! | file | what is in it |
//! |---|---|
//! | `grant`, `session`, `epoch` | what a store has granted, and what keeps it |
//! | `label`, `lease` | what a holder's label may be; the arithmetic of deadlines |
//! | `error` | errors for programs, which name the holders |
//! | `store_error` | errors of a store |
//! | `holder`, `waiter`, `claim` | who holds a name, waits for it, or asks for it |
//! | `name`, `mode`, `owner`, `token`, `loss`, `moment`, `capabilities` | the rest |
//! | `excerpt` | what an error repeats of a text |

mod capabilities;
mod claim;
mod epoch;
mod error;
mod excerpt;
mod grant;
mod holder;
pub(crate) mod label;
pub mod lease;
mod loss;
mod mode;
mod moment;
mod name;
mod owner;
mod session;
pub(crate) mod store_error;
mod token;
mod waiter;

pub use capabilities::{Capabilities, Capability, StandingKind, Wakeup};
pub use claim::{Claim, ClaimId, HolderInfo};
pub use epoch::Epoch;
pub use error::{Error, Operation};
pub use grant::{Grant, Standing};
pub use holder::Holder;
pub use loss::LossCause;
pub use mode::Mode;
pub use moment::Moment;
pub use name::{InvalidName, Name};
pub use owner::Owner;
pub use session::{Liveness, Session};
pub use store_error::StoreError;
pub use token::{InvalidToken, Token};
pub use waiter::Waiter;
