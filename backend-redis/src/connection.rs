//! Connections: which server a URL means, how it is reached, what its errors mean, and one connection each for requests and
//! for what the server tells unasked.
//!
//! Where Sentinel watches, the master is looked up whenever a connection is made, so that is here too.

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
pub(crate) mod url;
