//! The contract of tenure's locks, and the trait that a store implements.
//!
//! Programs use the `tenure` crate, which picks a store by URL and re-exports what they need from this one. This crate
//! is for authors of stores: implement [`Backend`], hand it to [`Locks::new`], and prove it with `tenure-conformance`.
//!
//! | you look for | it is in |
//! |---|---|
//! | what a store must answer | [`Backend`], [`Claim`], [`Grant`], [`Attempt`], [`Release`], [`Renewal`], [`Conversion`], [`LatchStep`] |
//! | what a store can do | [`Capabilities`] |
//! | how a store reports a failure | [`StoreError`] |
//! | a store that wraps another | [`forward_backend`] |
//! | a store with sessions in place of leases, or that can lose all it granted | [`Session`], [`Liveness`], [`Epoch`] |
//! | work that must outlive the callers' runtimes | [`Background`], [`PerRuntime`] |
//! | the users' types | [`Locks`], [`Lock`], [`Guard`], [`Hold`], [`Owner`], [`Error`] |
//! | several holders or several names | [`RwLock`], [`Semaphore`], [`LockSet`], [`Election`], [`Latch`] |
//! | every duration that exclusion depends on | [`lease`], [`Moment`] |
//! | the contract as a value | [`record`] |
//! | locks made from compare-and-swap | [`record::RecordStore`], [`record::Records`] |
//! | how a store reads its URLs | [`url`] |
//! | the reference store | [`Memory`] |
//! | measurements | [`metrics`] |
//!
//! # Reading the code
//!
//! Each layer uses only those below it. `policy.rs` leads through one `acquire()` and one `release()`, and
//! `docs/contributing/walk.md` on into each store.
//!
//! | layer | files of `src` |
//! |---|---|
//! | what programs call | `locks`, `election`, `lock_set`, `latch`, `run`, `rw_lock`, `semaphore`, `lock` |
//! | what all stores have in common | `policy`, with the program's handles in `policy/guard` and `policy/hold` |
//! | a store that needs no server | `memory`, and `record`, its names as values |
//! | measurements of all that, and of the requests | `metrics` |
//! | the requests to a store | `backend`, `forward`; `background` and `per_runtime`, where requests run |
//! | how a URL says which store, and how to use it | `url` |
//! | the answers | `grant`, `session`, `epoch`; `lease`, the arithmetic of deadlines; `label`, what a holder's may be |
//! | errors | `store_error`, from a backend; `error`, for programs, which names the holders |
//! | claims, holders and waiters | `claim`, `holder`, `waiter` |
//! | words | `name`, `mode`, `owner`, `token`, `loss`, `moment`, `capabilities` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod background;
mod capabilities;
mod claim;
mod election;
mod epoch;
mod error;
mod forward;
mod grant;
mod holder;
#[cfg(test)]
mod hung;
mod label;
mod latch;
pub mod lease;
mod lock;
mod lock_set;
mod locks;
mod loss;
mod memory;
pub mod metrics;
mod mode;
mod moment;
mod name;
mod owner;
mod per_runtime;
mod policy;
pub mod record;
mod run;
mod rw_lock;
mod semaphore;
mod session;
mod store_error;
mod token;
pub mod url;
mod waiter;

pub use async_trait::async_trait;
pub use backend::{Attempt, AttemptAll, Backend, Conversion, LatchState, LatchStep, Release, Renewal};
pub use background::Background;
pub use capabilities::{Capabilities, Capability, StandingKind, Wakeup};
pub use claim::{Claim, ClaimId, HolderInfo};
pub use election::Election;
pub use epoch::Epoch;
pub use error::{Error, Operation};
pub use grant::{Grant, Standing};
pub use holder::Holder;
pub use latch::Latch;
pub use lock::Lock;
pub use lock_set::{LockSet, LockSetGuard};
pub use locks::Locks;
pub use loss::LossCause;
pub use memory::Memory;
pub use mode::Mode;
pub use moment::Moment;
pub use name::{InvalidName, Name};
pub use owner::Owner;
pub use per_runtime::PerRuntime;
pub use policy::{guard::Guard, hold::Hold};
pub use run::HeldStream;
#[doc(hidden)]
pub use run::counting;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use session::{Liveness, Session};
pub use store_error::StoreError;
pub use token::{InvalidToken, Token};
pub use waiter::Waiter;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
