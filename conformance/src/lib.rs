//! The suite that proves that a store keeps tenure's contract.
//!
//! Every store keeps the same written contract, and each of its clauses is one or more cases here. To prove a store of
//! your own, or an unusual server, write one short test program:
//!
//! ```no_run
//! // tests/conformance.rs, with `[[test]] name = "conformance"` and `harness = false` in Cargo.toml
//! use std::{process::ExitCode, sync::Arc};
//! use tenure_conformance::{BoxError, Subject, Subjects, async_trait};
//! use tenure_core::{Backend, Memory};
//!
//! /// The store under test: here the one in memory.
//! struct Mine(Memory);
//!
//! #[async_trait]
//! impl Subject for Mine {
//!     fn name(&self) -> &str {
//!         "mine"
//!     }
//!
//!     async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     tenure_conformance::main(|| async { Subjects::new().with(Mine(Memory::new())) })
//! }
//! ```
//!
//! `cargo test --test conformance` then runs every case, and `cargo test --test conformance -- mine::waiting` those of
//! one group. A case that needs something that the store lacks is listed as ignored, with the reason.
//!
//! | you look for | it is in |
//! |---|---|
//! | requirements for a store under test | [`Subject`], [`Subjects`], [`AnyRecordStore`], [`Absent`] |
//! | the suite as a test program | [`main`] |
//! | the suite as a function, and its table | [`run`], [`Report`] |
//! | the list of cases | [`cases()`] |
//! | a store that counts requests and fails on demand | [`Probe`], [`Fault`], [`Method`] |
//! | a store in virtual time, whose server and network can be hurt | [`Simulation`] |
//! | ways to inject faults into the server, and into the connection to it | [`saboteur`], `proxy` and `Proxied` (a feature) |
//! | required stores, and skipped tests | [`is_required`], [`skip`] |
//! | other processes that hold locks | [`play_victim_if_asked`], [`is_victim`] |
//! | a check of client histories against the contract | [`judge`] |
//! | clients, processes and faults at random, for as long as you like | [`faults`] |
//! | the entries that a store keeps, pinned on a page | [`mod@format`] |
//! | the parts of a case | [`Case`], [`Clock`], [`Check`], [`pause`] |
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `src` |
//! |---|---|
//! | the suite | `harness`, as a program; `report`, as a function |
//! | the cases | `cases`, with `oracle`, random histories; `suite`, how one is run |
//! | a case, and its tools | `case`; `stage`, with `victim`, another process |
//! | the fault run | `faults` |
//! | what a store keeps | `format` |
//! | in which form a case locks | `form`; `parent`, with which another process ends; `own_runtime` |
//! | how it reports a broken contract, and how it waits | `check`; `pause`; `stopped_clock`, for what must be pushed |
//! | the store under test | `subject`; `any_records`, its record store; `simulation`, a server in virtual time; `proxied`, one behind a proxy; `watched`, a value to wait for; `probe`, between a client and the store, and `log`, the requests; `required` |
//! | faults of a server | `saboteur`; `proxy`, on the way to it |
//! | a protected resource, and the observations of clients | `fence`; `judge` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod any_records;
mod case;
mod cases;
mod check;
pub mod faults;
mod fence;
mod form;
pub mod format;
mod harness;
pub mod judge;
mod log;
mod oracle;
mod own_runtime;
mod parent;
pub mod pause;
mod probe;
#[cfg(feature = "proxy")]
mod proxied;
#[cfg(feature = "proxy")]
pub mod proxy;
mod report;
mod required;
pub mod saboteur;
mod simulation;
mod stage;
mod stopped_clock;
mod subject;
mod suite;
mod victim;
mod watched;

pub use any_records::AnyRecordStore;
pub use case::{Case, Clock};
pub use cases::all as cases;
pub use check::{Check, Need, Stop};
pub(crate) use fence::{FencedRegister, Refused};
pub(crate) use form::Form;
pub use harness::main;
pub use log::Method;
pub(crate) use probe::Hints;
pub use probe::{Fault, Probe};
#[cfg(feature = "proxy")]
pub use proxied::Proxied;
pub use report::{Entry, Report, run};
pub use required::{is_required, skip};
pub use simulation::Simulation;
pub(crate) use stage::{Client, Stage};
pub use stopped_clock::with_stopped_clock;
pub use subject::{Absent, BoxError, Subject, Subjects};
pub use suite::Outcome;
pub use tenure_core::async_trait;
pub use victim::{is_victim, play_victim_if_asked};

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
