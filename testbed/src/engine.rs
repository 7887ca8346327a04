//! What runs a server.

use crate::container::Container;
use crate::program::Program;
use std::io;
use std::net::SocketAddr;

/// What runs a server, and so what can stop it.
#[derive(Debug)]
pub(crate) enum Engine {
    /// Somebody else does.
    Given(SocketAddr),
    /// Docker.
    Container(Box<Container>),
    /// This machine.
    Program(Program),
}

impl Engine {
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Given(address) => *address,
            Self::Container(container) => container.address(),
            Self::Program(program) => program.address(),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        !matches!(self, Self::Given(_))
    }

    pub(crate) async fn freeze(&self) -> io::Result<()> {
        match self {
            Self::Given(_) => Err(not_ours()),
            Self::Container(container) => container.freeze().await,
            Self::Program(program) => program.freeze().await,
        }
    }

    pub(crate) async fn thaw(&self) -> io::Result<()> {
        match self {
            Self::Given(_) => Err(not_ours()),
            Self::Container(container) => container.thaw().await,
            Self::Program(program) => program.thaw(),
        }
    }

    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        match self {
            Self::Given(_) => Err(not_ours()),
            Self::Container(container) => container.kill().await,
            Self::Program(program) => program.kill().await,
        }
    }

    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        match self {
            Self::Given(_) => Err(not_ours()),
            Self::Container(container) => container.restart().await,
            Self::Program(program) => program.restart().await,
        }
    }

    pub(crate) async fn restart_empty(&mut self) -> io::Result<()> {
        match self {
            Self::Given(_) => Err(not_ours()),
            Self::Container(container) => container.restart_empty().await,
            Self::Program(program) => program.restart_empty().await,
        }
    }

    /// Why it no longer runs, if it does not.
    pub(crate) async fn ended(&mut self) -> Option<String> {
        match self {
            Self::Given(_) => None,
            Self::Container(container) => container.ended().await,
            Self::Program(program) => program.ended(),
        }
    }
}

fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "somebody else runs this server")
}
