//! Redis.

use crate::admin::{Admin, unknown};
use crate::node::Node;
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup};
use crate::redis_node::{RedisNode, Role};
use crate::way::Way;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// One Redis server with an append-only file, so that it remembers over a restart, alone or among others.
#[derive(Debug)]
pub(crate) struct Redis(Option<RedisNode>);

impl Redis {
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    pub(crate) fn member(node: RedisNode) -> Self {
        Self(Some(node))
    }

    fn role(&self) -> Option<Role> {
        self.0.as_ref().map(|node| node.role)
    }
}

/// The first is a sentinel's too, the last that of a server alone.
static HURTS: [Hurt; 6] = [
    Hurt::TerminateBackends,
    Hurt::FlushScripts,
    Hurt::PauseWrites,
    Hurt::FillConnections,
    Hurt::FillMemory,
    Hurt::ReadOnly,
];

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

    fn fixed_port(&self) -> Option<u16> {
        self.0.as_ref().map(|node| node.port)
    }

    fn may_wipe(&self) -> bool {
        // Without its files it is a stranger to its cluster.
        self.role() != Some(Role::ClusterData)
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        match &self.0 {
            Some(node) => image.with_cmd(["sh".to_owned(), "-c".into(), node.script()]),
            None => image.with_cmd(["redis-server"].into_iter().chain(OPTIONS)),
        }
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("redis-server")
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        if let Some(node) = &self.0 {
            let mut command = (setup.command)(Path::new("sh"));
            command.args(["-c", &node.script()]);
            return Ok(command);
        }
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
        match self.role() {
            Some(Role::Sentinel) => &HURTS[..1],
            // Read-only is what its part makes it: a hurt, or its undo, would change the part.
            Some(_) => &HURTS[..5],
            None => &HURTS,
        }
    }

    async fn inject(&self, admin: &Admin<'_>, Injection { hurt, by, .. }: Injection) -> io::Result<()> {
        match hurt {
            Hurt::TerminateBackends => {
                tell(admin, &["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
                tell(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await
            }
            Hurt::FlushScripts => tell(admin, &["SCRIPT", "FLUSH", "SYNC"]).await,
            Hurt::PauseWrites => {
                tell(admin, &["CLIENT", "PAUSE", &by.as_millis().to_string(), "WRITE"]).await
            }
            // The replica of a master that cannot be reached keeps its data and refuses writes.
            Hurt::ReadOnly => tell(admin, &["REPLICAOF", "127.0.0.1", "1"]).await,
            // It evicts nothing unless it is told to.
            Hurt::FillMemory => tell(admin, &["CONFIG", "SET", "maxmemory", "1"]).await,
            hurt => Err(unknown(hurt)),
        }
    }

    async fn undo(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<()> {
        match hurt {
            Hurt::PauseWrites => tell(admin, &["CLIENT", "UNPAUSE"]).await,
            Hurt::ReadOnly => tell(admin, &["REPLICAOF", "NO", "ONE"]).await,
            Hurt::FillMemory => tell(admin, &["CONFIG", "SET", "maxmemory", "0"]).await,
            hurt => Err(unknown(hurt)),
        }
    }

    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        if hurt != Hurt::FillConnections {
            return Err(unknown(hurt));
        }
        let mut redis = connect(admin.address, &admin.url).await?;
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
    ask(&mut connect(admin.address, &admin.url).await?, command).await
}

/// Connects past its proxy.
pub(crate) async fn connect_to(node: &Node) -> io::Result<MultiplexedConnection> {
    connect(node.direct_address(), &node.direct_url()).await
}

/// Connects, and authenticates as the URL says.
async fn connect(address: SocketAddr, url: &str) -> io::Result<MultiplexedConnection> {
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
