//! Connections: which server is meant, how it is reached, what its errors mean, and one connection each for requests
//! and for messages that the server pushes.
//!
//! With Sentinel, the master is looked up for each new connection, so that is here too.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `link` | the connection for requests |
//! | `pipelined`, `together` | which requests are sent together: in one write, and calls of one script as one call |
//! | `subscriptions` | the connection for messages, which all waiters of a client share |
//! | `failovers` | connections to the sentinels, which announce a new master |
//! | `dial` | how either is opened: to one server, or to the current master |
//! | `sentinel` | which server is the master |
//! | `pubsub`, `notices` | messages as they arrive, and those to waiters in queues |
//! | `connecting`, `last_words` | time limits; why a server hung up |
//! | `address`, `errors` | where a server is; the meaning of Redis's errors |
//! | `tls` | which certificates are trusted and presented, and what to do if they are refused |

pub(crate) mod address;
pub(crate) mod connecting;
pub(crate) mod dial;
pub(crate) mod errors;
pub(crate) mod failovers;
pub(crate) mod last_words;
pub(crate) mod link;
pub(crate) mod notices;
pub(crate) mod pipelined;
pub(crate) mod pubsub;
pub(crate) mod sentinel;
pub(crate) mod subscriptions;
pub(crate) mod tls;
mod together;
