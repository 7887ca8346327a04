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
//! | a store's options, one row each | [`options!`](crate::options!) |
//! | the reference store | [`Memory`] |
//! | measurements | [`metrics`] |
//!
//! # Reading the code
//!
//! Each layer uses only those below it. `policy.rs` leads through one `acquire()` and one `release()`, and
//! `docs/contributing/walk.md` on into each store.
//!
//! | layer | in `src` |
//! |---|---|
//! | what programs call | `api` |
//! | what all stores have in common | `policy`, with the program's handles in `policy/guard` and `policy/hold` |
//! | a store that needs no server | `memory` |
//! | the contract as a value | `record`, on which `memory` and others are built |
//! | measurements of all that, and of the requests | `metrics` |
//! | the requests to a store | `store` |
//! | a store's options as a table | `options` |
//! | how a URL says which store, and how to use it | `url` |
//! | the words of the contract | `contract` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod contract;
mod memory;
pub mod metrics;
pub mod options;
mod policy;
pub mod record;
mod store;
pub mod url;

#[doc(hidden)]
pub use api::counting;
pub use api::{Election, HeldStream, Latch, Lock, LockSet, LockSetGuard, Locks, RwLock, Semaphore};
pub use async_trait::async_trait;
#[doc(inline)]
pub use contract::lease;
pub use contract::{
    Capabilities, Capability, Claim, ClaimId, Epoch, Error, Grant, Holder, HolderInfo, InvalidName,
    InvalidToken, Liveness, LossCause, Mode, Moment, Name, Operation, Owner, Session, Standing, StandingKind,
    StoreError, Token, Waiter, Wakeup,
};
pub use memory::Memory;
pub use policy::{guard::Guard, hold::Hold};
pub use store::{
    Attempt, AttemptAll, Backend, Background, Conversion, LatchState, LatchStep, Opening, PerRuntime,
    Release, Renewal,
};

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
