//! Several servers that are one store to their clients.

use crate::links::Links;
use crate::node::Node;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an ensemble may take until its members agree.
const PATIENCE: Duration = Duration::from_secs(90);

/// The servers that are one to their clients: often just one.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// Those that we started or reach through a proxy. None of an ensemble that the environment names.
    pub(crate) members: Vec<Arc<Node>>,
    /// The network between the members, where it is ours.
    pub(crate) links: Option<Links>,
    /// What tells whether the members agree, where they must.
    settled: Option<Settled>,
    /// What tells which failover was the last, where there are any.
    last_failover: Option<LastFailover>,
    /// How many of the members are there before the others are started.
    pub(crate) first: usize,
}

/// Succeeds when the members agree with each other.
pub(crate) type Settled = for<'a> fn(&'a [Arc<Node>]) -> futures_util::future::BoxFuture<'a, io::Result<()>>;

/// The number of the last failover.
pub(crate) type LastFailover =
    for<'a> fn(&'a [Arc<Node>]) -> futures_util::future::BoxFuture<'a, io::Result<u64>>;

impl Assembly {
    /// An ensemble that the environment names.
    pub(crate) fn foreign() -> Self {
        Self::of(Vec::new())
    }

    pub(crate) fn single(node: Node) -> Self {
        Self::of(vec![node])
    }

    /// Servers that know nothing of each other.
    pub(crate) fn of(nodes: Vec<Node>) -> Self {
        Self::over(nodes.into_iter().map(Arc::new).collect())
    }

    /// Servers that know nothing of each other, and that other assemblies may share.
    pub(crate) fn over(members: Vec<Arc<Node>>) -> Self {
        Self { members, links: None, settled: None, last_failover: None, first: 0 }
    }

    /// Of these members so many are restarted before the others.
    pub(crate) fn beginning_with(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// Waits, from now on, also for this.
    pub(crate) async fn settling(mut self, settled: Settled) -> io::Result<Self> {
        self.settled = Some(settled);
        self.settle().await?;
        Ok(self)
    }

    /// Has it told, from now on, whether a replica takes its master's place.
    pub(crate) fn failing_over(self, last_failover: LastFailover) -> Self {
        Self { last_failover: Some(last_failover), ..self }
    }

    /// The number of the last failover, where there are any.
    pub(crate) async fn last_failover(&self) -> io::Result<u64> {
        match self.last_failover {
            Some(last_failover) => last_failover(&self.members).await,
            None => Ok(0),
        }
    }

    /// Waits until the members agree.
    pub(crate) async fn settle(&self) -> io::Result<()> {
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
    pub(crate) async fn stop(&self) -> io::Result<()> {
        let stopping = self.members.iter().map(|node| node.stop());
        futures_util::future::join_all(stopping).await.into_iter().collect()
    }
}
