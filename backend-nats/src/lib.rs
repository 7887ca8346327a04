//! Locks of tenure in NATS: records in a key-value bucket of `JetStream`.
//!
//! [`NatsBackend`] is the store, and [`NatsOptions`] says which servers and which bucket. Each name has one key, whose
//! value is a [`Record`](tenure_core::record::Record) as JSON, and each change is an update of the revision that was
//! read. The server tells no time, but dates each revision: see [`DatedClock`](tenure_core::record::DatedClock).
//!
//! # Reading the code
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend` | [`NatsBackend`]: connects, and passes each request to the records in the bucket |
//! | `bucket` | the bucket as a store of records |
//! | `link` | the connection, and a request over it |
//! | `errors` | the meaning of the client's errors |
//! | `keys` | the subject of a key |
//! | `url`, `options` | from a URL to options |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod bucket;
mod errors;
mod keys;
mod link;
mod options;
mod url;

pub use backend::NatsBackend;
pub use options::NatsOptions;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
