//! The servers that are one to their clients.

use super::links::Links;
use super::node::Node;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an ensemble may take until its members agree.
const PATIENCE: Duration = Duration::from_secs(90);

/// The servers that are one to their clients: often just one.
#[derive(Debug)]
pub(super) struct Assembly {
    /// Those that we started or reach through a proxy. None of an ensemble that the environment names.
    pub(super) members: Vec<Arc<Node>>,
    /// The network between the members, where it is ours.
    pub(super) links: Option<Links>,
    /// What tells whether the members agree, where they must.
    settled: Option<Settled>,
    /// How many of the members are there before the others are started.
    pub(super) first: usize,
}

/// Succeeds when the members agree with each other.
pub(super) type Settled = for<'a> fn(&'a [Arc<Node>]) -> futures_util::future::BoxFuture<'a, io::Result<()>>;

impl Assembly {
    /// An ensemble that somebody else runs.
    pub(super) fn foreign() -> Self {
        Self { members: Vec::new(), links: None, settled: None, first: 0 }
    }

    pub(super) fn single(node: Node) -> Self {
        Self::of(vec![node])
    }

    /// Servers that know nothing of each other.
    pub(super) fn of(nodes: Vec<Node>) -> Self {
        Self { members: nodes.into_iter().map(Arc::new).collect(), links: None, settled: None, first: 0 }
    }

    /// Of these members so many are restarted before the others.
    pub(super) fn beginning_with(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// Waits, from now on, also for this.
    pub(super) async fn settling(mut self, settled: Settled) -> io::Result<Self> {
        self.settled = Some(settled);
        self.settle().await?;
        Ok(self)
    }

    /// Waits until the members agree.
    pub(super) async fn settle(&self) -> io::Result<()> {
        let Some(settled) = self.settled else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match settled(&self.members).await {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(50)).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Kills every member for good and removes what they left.
    pub(super) async fn stop(&self) -> io::Result<()> {
        let stopping = self.members.iter().map(|node| node.stop());
        futures_util::future::join_all(stopping).await.into_iter().collect()
    }
}
