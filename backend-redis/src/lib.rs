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

mod address;
mod backend;
mod cluster;
mod connecting;
mod dial;
mod doubts;
mod errors;
mod fitness;
mod keys;
mod latch;
mod list;
mod mode;
mod options;
mod pubsub;
mod record;
mod redlock;
mod replication;
mod replies;
mod script;
mod sentinel;
mod server;
mod slots;
mod store;
mod stores;
mod subscriptions;
mod together;
mod turns;
mod url;
mod wait;

pub use backend::RedisBackend;
pub use options::RedisOptions;
pub use redlock::{RedlockBackend, RedlockOptions};
