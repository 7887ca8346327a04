//! What runs a server.

use async_trait::async_trait;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use tenure_conformance::saboteur::Injection;

/// What runs a server, and so what can stop it.
#[async_trait]
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// Where the server is. A container has another address after a restart.
    fn address(&self) -> SocketAddr;

    async fn freeze(&self) -> io::Result<()> {
        Err(not_ours())
    }

    async fn thaw(&self) -> io::Result<()> {
        Err(not_ours())
    }

    async fn kill(&mut self) -> io::Result<()> {
        Err(not_ours())
    }

    /// Starts it again on its data.
    async fn restart(&mut self) -> io::Result<()> {
        Err(not_ours())
    }

    /// Starts it again with nothing.
    async fn restart_empty(&mut self) -> io::Result<()> {
        Err(not_ours())
    }

    /// Sets its clock ahead or back.
    fn set_clock(&self, _: Injection) -> io::Result<()> {
        Err(not_ours())
    }

    /// Why it no longer runs, with the last lines of its log, if it does not.
    async fn ended(&mut self) -> Option<String> {
        None
    }

    /// Kills it for good, and removes what it left.
    async fn remove(self: Box<Self>) -> io::Result<()>;
}

/// A server that the environment names: the testbed can neither start nor kill it.
#[derive(Debug)]
pub(crate) struct Given(pub(crate) SocketAddr);

#[async_trait]
impl Engine for Given {
    fn address(&self) -> SocketAddr {
        self.0
    }

    async fn remove(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "somebody else runs this server")
}

/// The end of a log, in one line.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
