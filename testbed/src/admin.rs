//! An administrator of one server: the access, and the orders.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::{Hurt, Injection};

/// An administrator's access to one server: past the proxy, with the rights of its owner.
pub(crate) struct Admin<'a> {
    /// The server itself.
    pub(crate) address: SocketAddr,
    /// Its URL, past the proxy, for somebody with the rights to hurt it. It may hold a password.
    pub(crate) url: String,
    /// What stands in front of it.
    pub(crate) proxy: Option<&'a Proxy>,
}

/// An order to the administrator of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Inject(Injection),
    Undo(Hurt),
    /// Kills it if it runs, and starts it on its data or with none.
    Restart {
        empty: bool,
    },
    /// Undoes everything.
    Heal,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inject(injection) => write!(f, "{injection}"),
            Self::Undo(hurt) => write!(f, "the undo of: {hurt}"),
            Self::Restart { .. } => write!(f, "restart"),
            Self::Heal => write!(f, "heal"),
        }
    }
}

/// A fault that this kind of server does not know. [`Recipe::hurts`](crate::recipe::Recipe::hurts) keeps it from being
/// injected.
pub(crate) fn unknown(hurt: Hurt) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("cannot be hurt by: {hurt}"))
}
