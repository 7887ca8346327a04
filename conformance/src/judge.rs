//! The judge: does the contract allow the observations of these clients?
//!
//! A [`Recorder`] notes what each client asks and hears, in any number of processes of one machine. The notes make a
//! [`History`], which is data: it can be written as JSON lines, sent through a pipe, merged, and judged later. A
//! [`Judge`] says which clauses of the contract it breaks, and draws each [`Violation`] as a [`Timeline`] for people.
//!
//! It knows nothing of any store, so it judges yours as well, and programs that are not tests.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tenure_core::Mode;
//! use tenure_conformance::judge::{Broken, Event, History, Judge, Stamp, What};
//!
//! let at = |millis| Stamp::ZERO + Duration::from_millis(millis);
//! let granted = |client: &str, when, token| Event {
//!     at: at(when),
//!     client: client.into(),
//!     what: What::Granted {
//!         call: 1,
//!         name: "stock".into(),
//!         claim: format!("claim of {client}"),
//!         mode: Mode::Exclusive,
//!         token,
//!         until: at(when + 900),
//!         lease: Duration::from_secs(1),
//!         label: client.into(),
//!     },
//! };
//! let history = History::from(vec![granted("a", 0, 7), granted("b", 500, 8)]);
//! let violations = Judge::new().judge(&history);
//! assert_eq!(violations[0].broken, Broken::TwoHolders);
//! assert!(violations[0].timeline(&history).to_string().contains("two holders"));
//! ```
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `judge` |
//! |---|---|
//! | the verdict, and how a violation is drawn | `verdict`; `timeline`, its content, and `text`, its characters |
//! | the rules | `rules`; `company`, holders that may be beside each other |
//! | the notes in words | `about` |
//! | the notes put together | `account` |
//! | the notes | `history`, all of them; `event`, one |
//! | words | `violation`, `mode`, `stamp` |

mod about;
mod account;
mod company;
mod event;
mod history;
mod mode;
mod rules;
mod stamp;
mod text;
mod timeline;
mod verdict;
mod violation;

pub use event::{Effect, Event, Outcome, What};
pub use history::{History, Notes, ReadError, Recorder};
pub use stamp::Stamp;
pub use timeline::Timeline;
pub use verdict::Judge;
pub use violation::{Broken, Violation};
