//! Locks of tenure in Redis and Valkey.
//!
//! | you look for | it is in |
//! |---|---|
//! | locks in one Redis server | [`RedisBackend`] |
//! | which server, and the timeouts | [`RedisOptions`] |
//! | locks held by a majority of independent servers | [`RedlockBackend`], [`RedlockOptions`] |
//! | a key of yours that refuses stale holders | [`Fence`] |
//! | the client whose settings may be handed over | [`RedisBackend::from_client`], [`redis`] |
//!
//! A lock is a plain key: the prefix and the name, with the claim as its value and the lease as its time to live, as
//! the [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) describes it. So
//! tenure and every client that follows that pattern exclude each other on the same key. Every request is one Lua
//! script, which Redis runs atomically.
//!
//! # The user's rights
//!
//! ```text
//! ACL SETUSER app on >SECRET ~tenure:* &tenure:*
//!   +evalsha +script|load +info +scan +subscribe +unsubscribe +ping +select
//!   +get +set +del +exists +expire +pexpire +pttl +time +publish
//!   +role +wait
//!   +cluster|nodes +asking
//!   +ssubscribe +sunsubscribe +spublish
//!   +zadd +zrange +zrem +hget +hset +hdel
//!   +hsetnx +hlen
//! ```
//!
//! The last line is for latches, which also use `+hget` and `+hset`; the one before it is for fair mode, the two above
//! for Cluster (the second from Redis 7 on), and the one above those for Sentinel and `replicas=`.
//!
//! # Reading the code
//!
//! Each file uses only those below it; the larger ones are folders, with a map of their own.
//! `docs/contributing/walk.md` follows one `acquire()`.
//!
//! | file | what is in it |
//! |---|---|
//! | `backend`, `store` | [`RedisBackend`]: one server or a Cluster |
//! | `redlock` | [`RedlockBackend`]: one voter per server, and their quorum |
//! | `cluster` | a Redis Cluster: which node keeps a name |
//! | `server` | the requests to one server: attempts, waiting, renewals, endings, holders, latches |
//! | `options`, `url` | [`RedisOptions`], and how a URL becomes options |
//! | `connection` | addresses, connections, Sentinel, messages to waiters, the meaning of errors |
//! | `requests` | requests and answers: keys, scripts, and how modes, holders and answers are written |
//! | `doubts` | requests without an answer, which may still arrive |
//! | `timing` | the times that the others must agree on |
//! | `fence` | [`Fence`], which uses none of the others |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod cluster;
mod connection;
mod doubts;
mod fence;
mod options;
mod redlock;
mod requests;
mod server;
mod store;
mod timing;
mod url;

pub use backend::RedisBackend;
pub use fence::{Fence, FenceError};
pub use options::RedisOptions;
pub use redlock::{RedlockBackend, RedlockOptions};

/// The `redis` crate, in the version whose types this crate takes.
#[doc(no_inline)]
pub use redis;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
