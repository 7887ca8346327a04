//! A Galera cluster of two MariaDB servers.

use crate::admin::{Admin, Order, unknown};
use crate::assembly::Assembly;
use crate::mysql::{Mysql, connect, options};
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use sqlx::Row;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// Where Debian and the official image keep the library.
const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";

/// How long a node may be silent before the other gives it up, and with it the quorum: a busy machine stands still for
/// seconds.
const PATIENT: &str = "evs.suspect_timeout=PT1M;evs.inactive_timeout=PT2M;evs.install_timeout=PT1M";

/// Starts the second once the first answers, because it copies the first one's data.
pub(crate) async fn start(platform: Platform) -> io::Result<Assembly> {
    let first = GaleraNode::new(String::new())?;
    let second = GaleraNode::new(at(first.group))?;
    let nodes =
        vec![platform.start("galera 0", first, None).await?, platform.start("galera 1", second, None).await?];
    Assembly::of(nodes).settling(|members| Box::pin(settled(members))).await
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// One of the servers.
#[derive(Debug, Default)]
pub(crate) struct GaleraNode {
    clients: u16,
    /// Where the other node reaches it; where it is sent missing updates; where it is sent all data.
    group: u16,
    updates: u16,
    copy: u16,
    /// The node to join. Empty: it begins a cluster.
    joins: String,
}

impl GaleraNode {
    fn new(joins: String) -> io::Result<Self> {
        let ports = free_ports(4)?;
        Ok(Self { clients: ports[0], group: ports[1], updates: ports[2], copy: ports[3], joins })
    }

    fn options(&self) -> Vec<String> {
        let (group, updates, copy) = (at(self.group), at(self.updates), at(self.copy));
        vec![
            "--wsrep-on=1".to_owned(),
            format!("--wsrep-provider={LIBRARY}"),
            format!("--wsrep-cluster-address=gcomm://{}", self.joins),
            format!("--wsrep-node-address={group}"),
            format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://{group};ist.recv_addr={updates};gcache.size=16M;{PATIENT}"
            ),
            "--wsrep-sst-method=rsync".to_owned(),
            format!("--wsrep-sst-receive-address={copy}"),
            "--binlog-format=ROW".to_owned(),
            "--innodb-autoinc-lock-mode=2".to_owned(),
        ]
    }
}

#[async_trait]
impl Recipe for GaleraNode {
    fn family(&self) -> &'static str {
        Mysql::Mariadb.family()
    }

    fn image(&self) -> &'static str {
        Mysql::Mariadb.image()
    }

    fn port(&self) -> u16 {
        self.clients
    }

    fn fixed_port(&self) -> Option<u16> {
        Some(self.clients)
    }

    fn default_port(&self) -> u16 {
        Mysql::Mariadb.port()
    }

    fn may_wipe(&self) -> bool {
        false
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        let place = [format!("--port={}", self.clients), "--bind-address=127.0.0.1".to_owned()];
        let options = options().map(str::to_owned).chain(place).chain(self.options());
        Mysql::Mariadb.container(image).with_cmd(options)
    }

    fn program(&self) -> Result<PathBuf, String> {
        find("rsync")?;
        if !Path::new(LIBRARY).is_file() {
            return Err(format!("no library {LIBRARY} on this machine"));
        }
        Mysql::Mariadb.program()
    }

    fn user(&self) -> Option<&'static str> {
        Mysql::Mariadb.user()
    }

    fn prepare(&self, setup: &Setup<'_>) -> io::Result<()> {
        Mysql::Mariadb.prepare(setup)
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = Mysql::Mariadb.serve(setup, port)?;
        command.args(self.options());
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        Mysql::Mariadb.url(address)
    }

    fn admin_url(&self, address: SocketAddr) -> String {
        Mysql::Mariadb.admin_url(address)
    }

    fn may_proxy(&self, url: &Url) -> bool {
        Mysql::Mariadb.may_proxy(url)
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        Mysql::Mariadb.ready(admin).await
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[]
    }

    async fn obey(&self, _: &Admin<'_>, order: Order) -> io::Result<()> {
        Err(unknown(order))
    }

    async fn fill(&self, _: &Admin<'_>) -> io::Result<Held> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Every node takes part, and knows of all others.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    for node in members {
        let url = node.admin_url(node.direct_address());
        let mut connection = connect(&node.admin(node.direct_address(), &url)).await?;
        let ask = "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_size')";
        let told = sqlx::raw_sql(ask).fetch_all(&mut connection).await.map_err(io::Error::other)?;
        let values: Result<Vec<String>, _> = told.iter().map(|row| row.try_get(1)).collect();
        let mut values = values.map_err(io::Error::other)?;
        values.sort();
        if values != [members.len().to_string(), "ON".to_owned()] {
            return Err(io::Error::other(format!("{} is not in the cluster: {values:?}", node.name)));
        }
    }
    Ok(())
}
