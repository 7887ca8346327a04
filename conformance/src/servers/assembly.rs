//! The servers that are one to their clients.

use super::kind::Kind;
use super::links::Links;
use super::mysql::Mysql;
use super::node::Node;
use super::platform::Platform;
use super::postgres::Postgres;
use super::redis::Redis;
use super::zookeeper::Zookeeper;
use super::{pooler, redis_cluster, redis_sentinel, zookeeper_ensemble};
use std::io;
use std::net::SocketAddr;
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

    /// Starts what this kind is made of.
    pub(super) async fn start(kind: Kind, platform: Platform) -> io::Result<Self> {
        let name = kind.name();
        match kind {
            Kind::Redis => platform.start(name, Redis, None).await.map(Self::single),
            Kind::RedisSentinel => redis_sentinel::start(platform).await,
            Kind::RedisCluster => redis_cluster::start(platform).await,
            Kind::Redlock(count) => {
                let mut nodes = Vec::new();
                for number in 0..count {
                    nodes.push(platform.start(&format!("{name} {number}"), Redis, None).await?);
                }
                Ok(Self::of(nodes))
            }
            Kind::Postgres => platform.start(name, Postgres, None).await.map(Self::single),
            Kind::Pgbouncer => pooler::start(platform).await,
            Kind::Mariadb => platform.start(name, Mysql::Mariadb, None).await.map(Self::single),
            Kind::Mysql => platform.start(name, Mysql::Mysql, None).await.map(Self::single),
            Kind::Zookeeper => platform.start(name, Zookeeper::alone(), None).await.map(Self::single),
            Kind::ZookeeperEnsemble(count) => zookeeper_ensemble::start(platform, count).await,
        }
    }

    /// The URL of the whole, through the proxies.
    pub(super) fn url(&self, kind: Kind) -> String {
        self.url_of(kind, Node::address, Node::url)
    }

    /// The URL of the whole, past the proxies where clients are not told of them by the servers themselves.
    pub(super) fn direct_url(&self, kind: Kind) -> String {
        self.url_of(kind, Node::direct_address, Node::direct_url)
    }

    fn url_of(
        &self,
        kind: Kind,
        address: impl Fn(&Node) -> SocketAddr,
        single: impl Fn(&Node) -> String,
    ) -> String {
        let all = |nodes: &[Arc<Node>]| {
            nodes.iter().map(|node| address(node).to_string()).collect::<Vec<_>>().join(",")
        };
        match kind {
            Kind::RedisSentinel => {
                let sentinels = &self.members[redis_sentinel::DATA..];
                format!("redis+sentinel://{}/{}", all(sentinels), redis_sentinel::SERVICE)
            }
            Kind::RedisCluster => format!("redis+cluster://{}", all(&self.members)),
            Kind::Redlock(_) => format!("redlock://{}", all(&self.members)),
            Kind::ZookeeperEnsemble(_) => format!("zookeeper://{}", all(&self.members)),
            _ => single(&self.members[0]),
        }
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
