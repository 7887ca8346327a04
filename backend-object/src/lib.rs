//! Locks of tenure in object stores: records in a bucket of S3, or of any store that has conditional writes.
//!
//! [`ObjectBackend`] is the store, and [`ObjectOptions`] says which bucket. Each name has one object, which holds a
//! [`Record`](tenure_core::record::Record) as JSON, and each change is a put on the condition that the object is as it
//! was read. The store tells no time, but dates each put: see [`DatedClock`](tenure_core::record::DatedClock).
//!
//! # Reading the code
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend` | [`ObjectBackend`]: opens a bucket, and passes each request to the records in it |
//! | `objects` | the bucket as a store of records |
//! | `url`, `options` | from a URL to options |
//! | `http` | requests that outlive the callers' runtimes |
//! | `content` | the content of an object, and its path |
//! | `errors` | the meaning of the client's errors |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod content;
mod errors;
mod http;
mod objects;
mod options;
mod url;

pub use backend::ObjectBackend;
pub use options::ObjectOptions;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
