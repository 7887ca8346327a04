//! Locks of tenure in `ZooKeeper`: ephemeral sequential nodes.
//!
//! [`ZkBackend`] is the store, and [`ZkOptions`] says which ensemble and how; a [`Fence`] is a node of yours that
//! refuses stale holders. The recipe is the one in [ZooKeeper's
//! documentation](https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks), with nodes named as in
//! Apache Curator. So these locks and `InterProcessMutex`, or with an option `InterProcessReadWriteLock`, exclude each
//! other on one path.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `tls` | encrypted connections, with rustls: `ZkOptions::tls`. It needs a C compiler |
//! | `sasl` | users that the servers know, by DIGEST-MD5: `ZkOptions::sasl` |
//!
//! # Reading the code
//!
//! Each file uses only those below it. `docs/contributing/walk.md` follows one `acquire()`.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend` | [`ZkBackend`]: finds or opens the session, and passes each request to a file below |
//! | `waiting` | a claim that waits in the queue |
//! | `recipe` | one attempt: a claim enters the queue, and looks whether it holds |
//! | `convert`, `latch`, `people` | changes of mode; latches; holders and waiters |
//! | `queue`, `watch`, `removal` | the order of the claims, and the holders; the watch on a grant; node deletion |
//! | `session` | the session: how it is opened, and until when it lasts |
//! | `url`, `options` | from a URL to options |
//! | `node` | a claim's node: its state, its data, its name |
//! | `errors` | the meaning of the client's errors |
//! | `fence` | [`Fence`], which uses none of the others |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod convert;
mod errors;
mod fence;
mod latch;
mod node;
mod options;
mod people;
mod queue;
mod recipe;
mod removal;
mod session;
mod url;
mod waiting;
mod watch;

pub use backend::ZkBackend;
pub use fence::{Fence, FenceError};
pub use options::ZkOptions;

/// The `zookeeper-client` crate, in the version whose types this crate takes.
#[doc(no_inline)]
pub use zookeeper_client;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
