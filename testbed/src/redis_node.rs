//! A Redis server that other Redis servers know.

use crate::admin::{Admin, Order};
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup};
use crate::redis::Redis;
use crate::way::Way;
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// A server whose settings are a file, because Redis itself changes them: a failover outlives a restart.
#[derive(Debug)]
pub(crate) struct RedisNode {
    port: u16,
    role: Role,
    settings: Vec<String>,
}

/// What a node is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has data, and a master or replicas.
    Data,
    /// Has data, and a place in a cluster that goes with its files.
    ClusterData,
    /// Watches the others.
    Sentinel,
}

impl RedisNode {
    pub(crate) fn new(port: u16, role: Role, settings: impl IntoIterator<Item = String>) -> Self {
        let own = [format!("port {port}"), "bind 127.0.0.1".into(), "protected-mode no".into()];
        // As for one server: no write is kept back after its reply.
        let data = ["save \"\"", "appendonly yes", "appendfsync no", "repl-diskless-sync-delay 0"]
            .map(str::to_owned);
        let data = data.into_iter().filter(|_| role != Role::Sentinel);
        Self { port, role, settings: own.into_iter().chain(data).chain(settings).collect() }
    }

    /// Writes the settings unless there are some, and serves.
    fn script(&self) -> String {
        let lines: Vec<String> = self.settings.iter().map(|line| format!("'{line}'")).collect();
        let option = if self.role == Role::Sentinel { " --sentinel" } else { "" };
        format!(
            "[ -f node.conf ] || printf '%s\\n' {} >node.conf; exec redis-server ./node.conf{option}",
            lines.join(" ")
        )
    }
}

#[async_trait]
impl Recipe for RedisNode {
    fn family(&self) -> &'static str {
        Redis.family()
    }

    fn image(&self) -> &'static str {
        Redis.image()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn fixed_port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        image.with_cmd(["sh".to_owned(), "-c".into(), self.script()])
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("redis-server")
    }

    fn serve(&self, setup: &Setup<'_>, _: u16) -> io::Result<Command> {
        let mut command = (setup.command)(Path::new("sh"));
        command.args(["-c", &self.script()]);
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        Redis.url(address)
    }

    fn may_proxy(&self, url: &Url) -> bool {
        Redis.may_proxy(url)
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        Redis.ready(admin).await
    }

    fn may_wipe(&self) -> bool {
        // Without its files it is a stranger to its cluster.
        self.role != Role::ClusterData
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        match self.role {
            Role::Sentinel => &[Hurt::TerminateBackends],
            // Read-only is what its part makes it: a hurt, or its undo, would change the part.
            _ => &[
                Hurt::TerminateBackends,
                Hurt::FlushScripts,
                Hurt::PauseWrites,
                Hurt::FillConnections,
                Hurt::FillMemory,
            ],
        }
    }

    async fn obey(&self, admin: &Admin<'_>, order: Order) -> io::Result<()> {
        Redis.obey(admin, order).await
    }

    async fn fill(&self, admin: &Admin<'_>) -> io::Result<Held> {
        Redis.fill(admin).await
    }

    async fn free(&self, held: Held) -> io::Result<()> {
        Redis.free(held).await
    }
}
