//! What an administrator of a server can reach.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tenure_conformance::proxy::Proxy;

/// An administrator's access to one server: past the proxy, with the rights of its owner.
pub(crate) struct Admin<'a> {
    /// The server itself.
    pub(crate) address: SocketAddr,
    /// Its URL, past the proxy, for somebody with the rights to hurt it. It may hold a password.
    pub(crate) url: &'a str,
    /// What stands in front of it.
    pub(crate) proxy: Option<&'a Proxy>,
}

/// What an administrator can be told to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
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
    pub(crate) fn what(self) -> &'static str {
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

/// An order that this kind of server does not know. [`Recipe::hurts`](crate::recipe::Recipe::hurts) keeps it from being given.
pub(crate) fn unknown(order: Order) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("cannot {}", order.what()))
}
