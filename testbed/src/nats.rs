//! NATS with JetStream.

use crate::admin::Admin;
use crate::jetstream::JetStream;
use crate::program::find;
use crate::recipe::{Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// One NATS server, alone or in a cluster.
///
/// Its times are the defaults: a follower asks for votes 4 to 9 s after the last heartbeat, and a leader without a majority
/// steps down after 10 s. It syncs its files every two minutes, which this version cannot change.
#[derive(Debug)]
pub(crate) struct Nats(Option<Place>);

/// A server's place in a cluster.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// For clients.
    pub(crate) port: u16,
    /// For the other members.
    pub(crate) peers: u16,
    /// The ways to the other members.
    pub(crate) routes: Vec<SocketAddr>,
}

/// Where each member says it is. Members pass that on, and with the real address would connect past the proxies.
const NOWHERE: &str = "127.0.0.1:1";

/// The bucket of clients.
const BUCKET: &str = "tenure";

/// The URL of a store on servers of which each keeps a replica. The servers are new, and so is this bucket.
pub(crate) fn url(addresses: &str, replicas: usize) -> String {
    let parameters = if replicas > 1 { format!("?replicas={replicas}") } else { String::new() };
    format!("nats://{addresses}/{BUCKET}{parameters}")
}

impl Nats {
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    pub(crate) fn member(place: Place) -> Self {
        Self(Some(place))
    }

    /// How it is started, with its data below its working directory, which is the home of a program.
    fn options(&self, host: Ipv4Addr, port: u16) -> Vec<String> {
        let mut options = vec![
            "--jetstream".to_owned(),
            "--store_dir=data".to_owned(),
            format!("--addr={host}"),
            format!("--port={port}"),
        ];
        if let Some(place) = &self.0 {
            let routes: Vec<_> = place.routes.iter().map(|route| format!("nats://{route}")).collect();
            options.extend([
                format!("--name={}", place.name),
                "--cluster_name=tenure".to_owned(),
                format!("--cluster=nats://{host}:{}", place.peers),
                format!("--cluster_advertise={NOWHERE}"),
                // Clients are not told of other members, and keep to the proxies.
                "--no_advertise".to_owned(),
                format!("--routes={}", routes.join(",")),
            ]);
        }
        options
    }

    fn replicas(&self) -> usize {
        self.0.as_ref().map_or(1, |place| place.routes.len() + 1)
    }
}

#[async_trait]
impl Recipe for Nats {
    fn family(&self) -> &'static str {
        "nats"
    }

    /// A cluster carries out several updates of one revision, before 2.9.21.
    fn image(&self) -> &'static str {
        if self.0.is_some() { "nats:2.10.27" } else { "nats:2.9.10" }
    }

    fn port(&self) -> u16 {
        4222
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
        image.with_cmd(self.options(host, port))
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("nats-server")
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command.args(self.options(Ipv4Addr::LOCALHOST, port));
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        url(&address.to_string(), self.replicas())
    }

    fn may_proxy(&self, url: &Url) -> bool {
        // Of several hosts one proxy could show only one.
        url.scheme() == "nats" && url.host_str().is_some_and(|host| !host.contains(','))
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        let mut server = JetStream::connect(admin.address).await?;
        // JetStream answers when enough members run, and they may be started after this one.
        if self.0.is_none() {
            server.ask("INFO", "").await?;
            server.make_bucket_if_old(BUCKET).await?;
        }
        Ok(())
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[]
    }
}
