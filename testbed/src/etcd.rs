//! etcd.

use crate::admin::{Admin, unknown};
use crate::gateway;
use crate::program::find;
use crate::recipe::{Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// One etcd server, alone or in a cluster.
///
/// Its times are the defaults: a heartbeat each 100 ms, an election after 1 s without one, and so leases of 2 s or more.
#[derive(Debug)]
pub(crate) struct Etcd(Option<Place>);

/// A server's place in a cluster.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// For clients.
    pub(crate) port: u16,
    /// For the other members.
    pub(crate) peers: u16,
    /// Where clients of the cluster find it.
    pub(crate) announced: SocketAddr,
    /// Every member's name, and its address for the others.
    pub(crate) cluster: String,
    /// The proxy through which it reaches the others.
    pub(crate) socks: SocketAddr,
}

/// The address of a member for the others, the same in every member. A SOCKS proxy is not used for `localhost`, and is for
/// the same name with the dot that ends a full one.
pub(crate) fn peer_url(port: u16) -> String {
    format!("http://localhost.:{port}")
}

/// Relative to its working directory, which is the home of a program.
const DATA: &str = "--data-dir=data";
/// Does not wait for the disk, as no server here does: see `postgres.rs`.
const OFF_DISK: &str = "--unsafe-no-fsync";

impl Etcd {
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    pub(crate) fn member(place: Place) -> Self {
        Self(Some(place))
    }

    /// The addresses that it listens to, and the other members. A lone server gets a peer port that no one uses.
    fn options(&self, host: Ipv4Addr, port: u16) -> Vec<String> {
        let clients = format!("--listen-client-urls=http://{host}:{port}");
        match &self.0 {
            Some(place) => vec![
                clients,
                format!("--advertise-client-urls=http://{}", place.announced),
                format!("--name={}", place.name),
                format!("--listen-peer-urls=http://{host}:{}", place.peers),
                format!("--initial-advertise-peer-urls={}", peer_url(place.peers)),
                format!("--initial-cluster={}", place.cluster),
            ],
            None => vec![
                clients,
                format!("--advertise-client-urls=http://{}:{port}", Ipv4Addr::LOCALHOST),
                format!("--listen-peer-urls=http://{}:0", Ipv4Addr::LOCALHOST),
            ],
        }
    }

    /// Leads what a member says to others to its proxy.
    fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|place| ("HTTP_PROXY", format!("socks5://{}", place.socks)))
    }
}

#[async_trait]
impl Recipe for Etcd {
    fn family(&self) -> &'static str {
        "etcd"
    }

    fn image(&self) -> &'static str {
        "quay.io/coreos/etcd:v3.4.23"
    }

    fn port(&self) -> u16 {
        2379
    }

    fn fixed_port(&self) -> Option<u16> {
        self.0.as_ref().map(|place| place.port)
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        let (host, port) = match &self.0 {
            // On the host's network.
            Some(place) => (Ipv4Addr::LOCALHOST, place.port),
            None => (Ipv4Addr::UNSPECIFIED, self.port()),
        };
        let command = ["etcd", DATA, OFF_DISK].map(str::to_owned).into_iter().chain(self.options(host, port));
        let request = image.with_cmd(command);
        self.environment().fold(request, |request, (name, value)| request.with_env_var(name, value))
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("etcd")
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command.arg(DATA).args(Some(OFF_DISK).filter(|_| !setup.on_disk));
        command.args(self.options(Ipv4Addr::LOCALHOST, port)).envs(self.environment());
        Ok(command)
    }

    /// Its revisions, which are tokens, are in its data: without them another cluster begins.
    fn may_wipe(&self) -> bool {
        false
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("etcd://{address}")
    }

    fn may_proxy(&self, url: &Url) -> bool {
        // Of several hosts one proxy could show only one.
        url.scheme() == "etcd" && url.host_str().is_some_and(|host| !host.contains(','))
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        match &self.0 {
            // A member serves clients when enough others run, and they may be started after it.
            Some(place) => gateway::is_running((Ipv4Addr::LOCALHOST, place.peers).into()).await,
            None => gateway::is_healthy(admin.address).await,
        }
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[Hurt::ExpireSessions, Hurt::FillDisk]
    }

    /// A server whose database is full refuses what adds to it, until that alarm is taken back, also after a restart.
    fn is_held(&self, _: Hurt) -> bool {
        false
    }

    async fn inject(&self, admin: &Admin<'_>, Injection { hurt, .. }: Injection) -> io::Result<()> {
        match hurt {
            Hurt::ExpireSessions => gateway::revoke_leases(admin.address).await,
            Hurt::FillDisk => gateway::set_full(admin.address, true).await,
            hurt => Err(unknown(hurt)),
        }
    }

    async fn undo(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<()> {
        match hurt {
            Hurt::FillDisk => gateway::set_full(admin.address, false).await,
            hurt => Err(unknown(hurt)),
        }
    }
}
