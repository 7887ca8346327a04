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
//! | `session`, `opening`, `diagnosis` | the session and its heartbeats; how it is opened; why it was not |
//! | `vigil`, `heartbeats` | waiters whose watch may be lost; until when the session certainly lasts |
//! | `url`, `options`, `login`, `tls` | from a URL to options |
//! | `node`, `card`, `contender`, `order`, `names` | a claim's node: its state, its data, its name |
//! | `errors` | the meaning of the client's errors |
//! | `fence` | [`Fence`], which uses none of the others |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod card;
mod contender;
mod convert;
mod diagnosis;
mod errors;
mod fence;
mod heartbeats;
mod latch;
mod login;
mod names;
mod node;
mod opening;
mod options;
mod order;
mod people;
mod queue;
mod recipe;
mod removal;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod vigil;
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
