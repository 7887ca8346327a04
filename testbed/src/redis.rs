//! Redis.

use crate::admin::{Admin, Order, unknown};
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup};
use crate::resp;
use crate::way::Way;
use async_trait::async_trait;
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
        ask(admin, &["PING"]).await
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
                ask(admin, &["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
                ask(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await
            }
            Order::FlushScripts => ask(admin, &["SCRIPT", "FLUSH", "SYNC"]).await,
            Order::PauseWrites(at_most) => {
                ask(admin, &["CLIENT", "PAUSE", &at_most.as_millis().to_string(), "WRITE"]).await
            }
            Order::ResumeWrites => ask(admin, &["CLIENT", "UNPAUSE"]).await,
            // The replica of a master that cannot be reached keeps its data and refuses writes.
            Order::MakeReadOnly => ask(admin, &["REPLICAOF", "127.0.0.1", "1"]).await,
            Order::MakeWritable => ask(admin, &["REPLICAOF", "NO", "ONE"]).await,
            // It evicts nothing unless it is told to.
            Order::FillMemory => ask(admin, &["CONFIG", "SET", "maxmemory", "1"]).await,
            Order::FreeMemory => ask(admin, &["CONFIG", "SET", "maxmemory", "0"]).await,
            Order::ExpireSessions => Err(unknown(order)),
        }
    }

    async fn fill(&self, admin: &Admin<'_>) -> io::Result<Held> {
        let mut redis = resp::Redis::connect(admin.address, admin.url).await?;
        let limit = redis.ask(&["CONFIG", "GET", "maxclients"]).await?;
        let limit = limit.lines().last().unwrap_or_default().to_owned();
        redis.ask(&["CONFIG", "SET", "maxclients", "1"]).await?;
        // Whoever is connected stays. This connection is kept, because no other could raise the limit again.
        Ok(Held::Redis { redis, limit })
    }

    async fn free(&self, held: Held) -> io::Result<()> {
        let Held::Redis { mut redis, limit } = held else { return Ok(()) };
        redis.ask(&["CONFIG", "SET", "maxclients", &limit]).await.map(drop)
    }
}

async fn ask(admin: &Admin<'_>, command: &[&str]) -> io::Result<()> {
    resp::Redis::connect(admin.address, admin.url).await?.ask(command).await.map(drop)
}
