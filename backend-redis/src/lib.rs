//! Locks of tenure in Redis and Valkey.
//!
//! | you look for | it is in |
//! |---|---|
//! | locks in one Redis server | [`RedisBackend`] |
//! | which server, and how patient to be | [`RedisOptions`] |
//! | locks held by a majority of independent servers | [`RedlockBackend`], [`RedlockOptions`] |
//!
//! A lock is a plain key: the prefix and the name, with the claim as its value and the lease as its time to live, as the
//! [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) describes it. So every
//! client that follows that pattern excludes tenure on the same key, and is excluded by it. Every request is one Lua
//! script, which Redis runs as a whole.
//!
//! Inside, in the order in which to read it; each uses only what stands before it:
//!
//! | room | what is in it |
//! |---|---|
//! | `timing` | the times that the others must agree on |
//! | `requests` | what is said and answered: keys, scripts, the forms of modes, holders and answers |
//! | `connection` | URLs and addresses, connections, the master that Sentinel knows, messages to waiters, what errors mean |
//! | `options` | [`RedisOptions`] |
//! | `server` | what one server is asked about a name: attempts, waiting, renewals, endings, holders, latches |
//! | `cluster` | a Redis Cluster: which node keeps a name |
//! | `redlock` | [`RedlockBackend`]: voters, each a server, and what their quorum says |
//! | `store`, `backend` | [`RedisBackend`]: one server or a Cluster |

mod backend;
mod cluster;
mod connection;
mod options;
mod redlock;
mod requests;
mod server;
mod store;
mod timing;

pub use backend::RedisBackend;
pub use options::RedisOptions;
pub use redlock::{RedlockBackend, RedlockOptions};

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
