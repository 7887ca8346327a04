//! The fault run: clients, processes and faults at random, for as long as you like, checked by a [judge](crate::judge).
//!
//! Clients acquire a few locks in every way there is, and write through a fence; some live in this process, some in
//! processes of their own. Meanwhile replies are lost, requests are late, processes are frozen and killed, locks are
//! released by force, and faults are injected into the server if there is a [`Saboteur`](crate::saboteur::Saboteur).
//! All that the clients see is recorded and judged, in rounds, until the time is up or a clause is broken.
//!
//! The faults follow from the seed alone: [`Schedule`]. So does what clients do, but not when they do it: that depends
//! on the machine and the store.
//!
//! | you look for | it is in |
//! |---|---|
//! | the run as a function | [`run`], [`check`], [`Options`], [`Outcome`], [`Figures`] |
//! | the run as a program | `main`, with the feature `command` |
//! | which faults come when | [`Schedule`], [`AnyFault`] |
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `faults` |
//! |---|---|
//! | the run as a program | `command`; `report`, its row in a table |
//! | the run | `run` |
//! | what disturbs the clients, and what they leave | `injector`, `leaks` |
//! | the clients | `process`, one in a process of its own; `program`, one that is any program; `client`; `worker`, one of its tasks; `step`, what that takes |
//! | the plan, and the figures | `schedule`, `options`; `figures` |
//! | the resources that the locks protect, and the word of a guard | `resource`; `word` |

mod client;
#[cfg(feature = "command")]
mod command;
mod figures;
mod injector;
mod leaks;
mod options;
mod process;
mod program;
#[cfg(feature = "command")]
mod report;
mod resource;
mod run;
mod schedule;
mod step;
mod word;
mod worker;

#[cfg(feature = "command")]
pub use command::main;
pub use figures::Figures;
pub use options::Options;
pub(crate) use process::is_client;
pub use process::play_client_if_asked;
pub use run::{Outcome, check, run};
pub use schedule::{AnyFault, Means, Planned, Schedule, Track};
