//! A small TCP proxy between clients and a server that disturbs their connections on command.
//!
//! Clients connect to [`Proxy::address`], which stays the same while the server behind it is killed, restarted and
//! moved to another port. Every connection and direction has its own [`Flow`].
//!
//! It is also a [`Saboteur`](crate::saboteur::Saboteur): a subject whose clients connect through a proxy returns it to
//! inject network faults.
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `proxy` |
//! |---|---|
//! | the port, and the connections that arrive there | `listener` |
//! | one connection: two pumps, one for each direction | `connection` |
//! | the proxy as a saboteur | `sabotage` |
//! | the fate of the bytes; the counters; the rewriting | `flow`, `counters`, `rewrite` |

mod connection;
mod counters;
mod flow;
mod listener;
mod rewrite;
mod sabotage;

pub use connection::Connection;
pub use counters::{Counters, Traffic};
pub use flow::Flow;
pub use rewrite::Rewrite;

use crate::saboteur::Direction;
use connection::Connections;
use listener::Listener;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// A TCP proxy in front of one server.
///
/// Dropping it closes the address and resets every connection.
///
/// # Examples
///
/// ```no_run
/// # use tenure_conformance::proxy::{Flow, Proxy};
/// # use tenure_conformance::saboteur::Direction;
/// # async fn example() -> std::io::Result<()> {
/// let proxy = Proxy::start("127.0.0.1:6379".parse().unwrap()).await?;
/// println!("connect to {}", proxy.address());
/// proxy.set(Direction::Replies, Flow::Drop); // requests arrive, replies do not
/// proxy.mend().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    connections: Arc<Connections>,
    upstream: Arc<Mutex<SocketAddr>>,
    listener: Listener,
    runtime: Handle,
    accepting: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback interface, on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_with(upstream, None, Duration::ZERO).await
    }

    /// Like [`start`](Self::start), between servers that know each other. Their first messages may be rewritten,
    /// because they may contain addresses. If a server does not listen yet, a connection waits for it for up to a
    /// second: to its peer, a broken connection is a worse sign than a refused one.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn start_link(upstream: SocketAddr, rewrite: Option<Rewrite>) -> io::Result<Self> {
        Self::start_with(upstream, rewrite, Duration::from_secs(1)).await
    }

    async fn start_with(
        upstream: SocketAddr,
        rewrite: Option<Rewrite>,
        patience: Duration,
    ) -> io::Result<Self> {
        let proxy = Self {
            connections: Arc::new(Connections::new(rewrite, patience)),
            upstream: Arc::new(Mutex::new(upstream)),
            listener: Listener::bind()?,
            runtime: Handle::current(),
            accepting: tokio::sync::Mutex::new(None),
        };
        proxy.accept().await?;
        Ok(proxy)
    }

    /// Returns the address for clients to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the address that new connections lead to.
    #[must_use]
    pub fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads new connections to another address; open ones keep theirs.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Sets one direction of every connection, open or new.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.connections.set_all(direction, flow);
    }

    /// Makes every connection, open or new, hang: it is accepted and never answered. Nothing reaches the server.
    pub fn half_open(&self) {
        self.set(Direction::Requests, Flow::Hold);
        self.set(Direction::Replies, Flow::Hold);
    }

    /// Delays one direction by `by`, in order and without narrowing it.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.set(direction, Flow::Delay(by));
    }

    /// Hands bytes on one at a time in both directions, with this pause after each.
    pub fn drip(&self, pause: Duration) {
        self.set(Direction::Requests, Flow::Drip(pause));
        self.set(Direction::Replies, Flow::Drip(pause));
    }

    /// Resets every open connection on both sides (RST). New ones are served.
    ///
    /// Returns when they are gone.
    pub async fn cut(&self) {
        self.connections.cut(self.connections()).await;
    }

    /// Refuses new connections like a port without a server. The port stays ours, and open connections continue.
    pub async fn refuse(&self) {
        if let Some(accepting) = self.accepting.lock().await.take() {
            accepting.abort();
            // The socket is closed only once the task is gone. Only the abort ends it.
            let _ = accepting.await;
        }
    }

    /// Accepts new connections again.
    ///
    /// # Errors
    ///
    /// If the proxy cannot listen on the port.
    pub async fn accept(&self) -> io::Result<()> {
        let mut accepting = self.accepting.lock().await;
        if accepting.is_none() {
            let _inside = self.runtime.enter();
            let listener = self.listener.listen()?;
            let (connections, upstream) = (Arc::clone(&self.connections), Arc::clone(&self.upstream));
            *accepting = Some(self.runtime.spawn(listener::serve(listener, upstream, connections)));
        }
        Ok(())
    }

    /// Undoes everything: accepts connections, and passes on what was held back. A connection that lost bytes is reset,
    /// because no network loses bytes inside a connection and carries on.
    ///
    /// # Errors
    ///
    /// If the proxy cannot listen on the port.
    pub async fn mend(&self) -> io::Result<()> {
        self.connections.mend().await;
        self.accept().await
    }

    /// Returns the open connections, oldest first, to disturb them one by one.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.connections.all()
    }

    /// Returns counts of what has passed so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.connections.counters.borrow().clone()
    }

    /// Waits until the counters satisfy `wished`, for example until one more request has arrived.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn until(&self, wished: impl FnMut(&Counters) -> bool + Send) -> Counters {
        let mut counters = self.connections.counters.subscribe();
        match counters.wait_for(wished).await {
            Ok(counters) => counters.clone(),
            // The sender lives as long as `self`.
            Err(_) => unreachable!("the counters outlive their proxy"),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.get_mut().take() {
            accepting.abort();
        }
        self.connections().iter().for_each(Connection::cut);
    }
}
