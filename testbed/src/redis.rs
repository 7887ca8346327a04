//! Redis.

use crate::admin::{Admin, Order, unknown};
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// One Redis server with an append-only file, so that it remembers over a restart.
#[derive(Debug)]
pub(crate) struct Redis;

/// Every write is in the system's hands before its reply is sent, so a killed process forgets nothing. By default
/// (`everysec`) Redis keeps writes back for up to two seconds while the disk is busy with the last ones.
const OPTIONS: [&str; 8] =
    ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--protected-mode", "no"];

#[async_trait]
impl Recipe for Redis {
    fn family(&self) -> &'static str {
        "redis"
    }

    fn image(&self) -> &'static str {
        "redis:7"
    }

    fn port(&self) -> u16 {
        6379
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        image.with_cmd(["redis-server"].into_iter().chain(OPTIONS))
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("redis-server")
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).args(OPTIONS);
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("redis://{address}/")
    }

    fn may_proxy(&self, url: &Url) -> bool {
        url.scheme() == "redis"
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        // An error while it loads its data.
        tell(admin, &["PING"]).await
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[
            Hurt::TerminateBackends,
            Hurt::FlushScripts,
            Hurt::PauseWrites,
            Hurt::ReadOnly,
            Hurt::FillConnections,
            Hurt::FillMemory,
        ]
    }

    async fn obey(&self, admin: &Admin<'_>, order: Order) -> io::Result<()> {
        match order {
            Order::TerminateBackends => {
                tell(admin, &["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
                tell(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await
            }
            Order::FlushScripts => tell(admin, &["SCRIPT", "FLUSH", "SYNC"]).await,
            Order::PauseWrites(at_most) => {
                tell(admin, &["CLIENT", "PAUSE", &at_most.as_millis().to_string(), "WRITE"]).await
            }
            Order::ResumeWrites => tell(admin, &["CLIENT", "UNPAUSE"]).await,
            // The replica of a master that cannot be reached keeps its data and refuses writes.
            Order::MakeReadOnly => tell(admin, &["REPLICAOF", "127.0.0.1", "1"]).await,
            Order::MakeWritable => tell(admin, &["REPLICAOF", "NO", "ONE"]).await,
            // It evicts nothing unless it is told to.
            Order::FillMemory => tell(admin, &["CONFIG", "SET", "maxmemory", "1"]).await,
            Order::FreeMemory => tell(admin, &["CONFIG", "SET", "maxmemory", "0"]).await,
            Order::ExpireSessions => Err(unknown(order)),
        }
    }

    async fn fill(&self, admin: &Admin<'_>) -> io::Result<Held> {
        let mut redis = connect(admin.address, admin.url).await?;
        let (_, limit): (String, String) = ask(&mut redis, &["CONFIG", "GET", "maxclients"]).await?;
        ask::<()>(&mut redis, &["CONFIG", "SET", "maxclients", "1"]).await?;
        // Whoever is connected stays. This connection is kept, because no other could raise the limit again.
        Ok(Held::Redis { redis, limit })
    }

    async fn free(&self, held: Held) -> io::Result<()> {
        let Held::Redis { mut redis, limit } = held else { return Ok(()) };
        ask(&mut redis, &["CONFIG", "SET", "maxclients", &limit]).await
    }
}

async fn tell(admin: &Admin<'_>, command: &[&str]) -> io::Result<()> {
    ask(&mut connect(admin.address, admin.url).await?, command).await
}

/// Connects, and authenticates as the URL says.
pub(crate) async fn connect(address: SocketAddr, url: &str) -> io::Result<MultiplexedConnection> {
    let addressed = url.into_connection_info().map_err(io::Error::other)?;
    let addressed = addressed.set_addr(ConnectionAddr::Tcp(address.ip().to_string(), address.port()));
    // How long an answer may take is bounded by who asks.
    let patient = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = Client::open(addressed).map_err(io::Error::other)?;
    client.get_multiplexed_async_connection_with_config(&patient).await.map_err(io::Error::other)
}

/// Sends a command and returns its reply.
pub(crate) async fn ask<T: FromRedisValue>(
    redis: &mut MultiplexedConnection,
    command: &[&str],
) -> io::Result<T> {
    Cmd::new().arg(command).query_async(redis).await.map_err(io::Error::other)
}
