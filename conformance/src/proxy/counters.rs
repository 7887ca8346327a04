//! The counters of a proxy.

use crate::saboteur::Direction;

/// The counters of a proxy since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: usize,
    /// Bytes from clients.
    pub requests: Traffic,
    /// Bytes from the server.
    pub replies: Traffic,
}

/// The bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Came in.
    pub arrived: u64,
    /// Went out.
    pub passed: u64,
    /// Were thrown away.
    pub dropped: u64,
}

impl Counters {
    pub(super) fn traffic(&mut self, direction: Direction) -> &mut Traffic {
        match direction {
            Direction::Requests => &mut self.requests,
            Direction::Replies => &mut self.replies,
        }
    }
}
