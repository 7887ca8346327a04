//! Connections: which server is meant, how it is reached, what its errors mean, and one connection each for requests
//! and for messages that the server pushes.
//!
//! With Sentinel, the master is looked up for each new connection, so that is here too.

pub(crate) mod address;
pub(crate) mod connecting;
pub(crate) mod dial;
pub(crate) mod errors;
pub(crate) mod lane;
pub(crate) mod notices;
pub(crate) mod pipelined;
pub(crate) mod pubsub;
pub(crate) mod sentinel;
pub(crate) mod subscriptions;
