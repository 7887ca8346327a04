//! The least of a client: one connection that writes a value and reads it back. And how long that may take.

use crate::etcd::Etcd;
use crate::nats::Nats;
use crate::redis::Redis;
use crate::s3::S3;
use crate::sql::{Mysql, Postgres};
use crate::zookeeper::Zookeeper;
use crate::{LONG, SHORT};
use async_trait::async_trait;
use std::fmt::Debug;
use std::io;
use std::time::Duration;
use tenure_testbed::{Kind, Server};
use tokio::time::timeout;

/// A client on one connection, without a retry or a timeout of its own.
#[async_trait]
pub(crate) trait Client: Send {
    /// Writes the one value.
    async fn put(&mut self, value: &str) -> io::Result<()>;

    /// Reads it. `None`: there is none.
    async fn get(&mut self) -> io::Result<Option<String>>;

    /// Sends a statement, to a database.
    async fn execute(&mut self, statement: &'static str) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, statement))
    }
}

/// Connects through the server's proxy.
pub(crate) async fn connect(server: &Server) -> io::Result<Box<dyn Client>> {
    connect_to(server.kind(), &server.url()).await
}

/// Connects to a URL.
pub(crate) async fn connect_to(kind: Kind, url: &str) -> io::Result<Box<dyn Client>> {
    match kind {
        Kind::Redis => Ok(Box::new(Redis::connect(url).await?)),
        Kind::RedisSentinel => Ok(Box::new(Redis::by_sentinel(url).await?)),
        Kind::RedisCluster => Ok(Box::new(Redis::by_slot(url).await?)),
        Kind::Postgres | Kind::Pgbouncer => Ok(Box::new(Postgres::connect(url).await?)),
        Kind::Mariadb | Kind::Mysql => Ok(Box::new(Mysql::connect(url).await?)),
        Kind::Zookeeper | Kind::ZookeeperEnsemble(_) => Ok(Box::new(Zookeeper::connect(url, None).await?)),
        Kind::Etcd | Kind::EtcdCluster(_) => Ok(Box::new(Etcd::connect(url).await?)),
        Kind::Nats | Kind::NatsCluster(_) => Ok(Box::new(Nats::connect(url).await?)),
        Kind::S3 => Ok(Box::new(S3::connect(url).await?)),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, kind.name())),
    }
}

pub(crate) async fn client(server: &Server) -> Box<dyn Client> {
    within(connect(server)).await.expect("a connection")
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.expect("an end")
}

pub(crate) async fn hangs<T: Debug>(work: impl Future<Output = T>) {
    if let Ok(ended) = timeout(SHORT, work).await {
        panic!("should have hung: {ended:?}");
    }
}

/// Both a new connection and its first exchange: either may be what fails.
pub(crate) async fn exchange(server: &Server) -> io::Result<Option<String>> {
    within(async { connect(server).await?.get().await }).await
}

/// How long one of several servers is waited for before the next is asked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Connects to the first that answers of these addresses, separated by commas. To a single one it waits for good.
pub(crate) async fn any<T>(addresses: &str, connect: impl AsyncFn(&str) -> io::Result<T>) -> io::Result<T> {
    if !addresses.contains(',') {
        return connect(addresses).await;
    }
    let mut last = io::Error::other("no address");
    for address in addresses.split(',') {
        match timeout(PATIENCE, connect(address)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = elapsed.into(),
        }
    }
    Err(last)
}
