//! Locks of tenure in `etcd`: keys on a lease, in the order of their revisions.
//!
//! [`EtcdBackend`] is the store, and [`EtcdOptions`] says which cluster and how. The protocol is that of etcd's own
//! [`concurrency.Mutex`](https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#Mutex), with the same layout of keys.
//! So these locks, that one, and `etcdctl lock` exclude each other.
//!
//! To build it, `protoc` must be in `PATH`, with its includes: Debian's packages are `protobuf-compiler` and
//! `libprotobuf-dev`.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `tls` | encrypted connections, with rustls: `EtcdOptions::tls`. It needs a C compiler |
//!
//! # Reading the code
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend` | [`EtcdBackend`]: finds or opens the session, and passes each request to a file below |
//! | `convert`, `latch`, `people` | changes of mode; latches; holders and waiters |
//! | `contender` | a claim that enters the queue of its lock: at once or not at all, or to wait there |
//! | `claims` | the claims in a session, and their keys |
//! | `session` | the session: a lease, and its heartbeats |
//! | `queue` | the order of the claims, and the holders |
//! | `link` | the members of the cluster, and a request to one of them |
//! | `url`, `options` | from a URL to options |
//! | `keys`, `card` | the key of a claim, and its value |
//! | `errors` | the meaning of the client's errors |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod card;
mod claims;
mod contender;
mod convert;
mod errors;
mod keys;
mod latch;
mod link;
mod options;
mod people;
mod queue;
mod session;
mod url;

pub use backend::EtcdBackend;
pub use options::EtcdOptions;

/// The `etcd-client` crate, in the version that this crate uses.
#[doc(no_inline)]
pub use etcd_client;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
