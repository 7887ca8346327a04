//! What an administrator of a server can reach.

use crate::proxy::Proxy;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// An administrator's access to one server: past the proxy, with the rights of its owner.
pub(super) struct Admin<'a> {
    /// The server itself.
    pub(super) address: SocketAddr,
    /// Its URL, past the proxy, for somebody with the rights to hurt it. It may hold a password.
    pub(super) url: &'a str,
    /// What stands in front of it.
    pub(super) proxy: Option<&'a Proxy>,
}

/// What an administrator can be told to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    ExpireSessions,
    TerminateBackends,
    FlushScripts,
    PauseWrites(Duration),
    ResumeWrites,
    MakeReadOnly,
    MakeWritable,
    FillMemory,
    FreeMemory,
}

impl Order {
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::ExpireSessions => "expire sessions",
            Self::TerminateBackends => "terminate backends",
            Self::FlushScripts => "flush its scripts",
            Self::PauseWrites(_) => "pause writes",
            Self::ResumeWrites => "resume writes",
            Self::MakeReadOnly => "become read-only",
            Self::MakeWritable => "become writable",
            Self::FillMemory => "fill up its memory",
            Self::FreeMemory => "free its memory",
        }
    }
}

/// An order that this kind of server does not know. [`Recipe::hurts`](super::recipe::Recipe::hurts) keeps it from being given.
pub(super) fn unknown(order: Order) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("cannot {}", order.what()))
}
