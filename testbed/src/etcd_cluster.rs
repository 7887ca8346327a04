//! An etcd cluster, with proxies between its members.

use crate::assembly::Assembly;
use crate::etcd::{Etcd, Place, peer_url};
use crate::gateway;
use crate::links::Links;
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use crate::socks::Socks;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tenure_conformance::proxy::Proxy;
use tokio::time::timeout;

/// How long a member may take to answer. One that waits for a majority says nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a cluster of so many.
pub(crate) async fn start(platform: Platform, count: u8) -> io::Result<Assembly> {
    let count = usize::from(count);
    // For clients, and for the other members.
    let ports = free_ports(2 * count)?;
    let (clients, peers) = ports.split_at(count);
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let named = peers.iter().enumerate().map(|(number, port)| format!("{number}={}", peer_url(*port)));
    let cluster = named.collect::<Vec<_>>().join(",");
    let mut links = Links::default();
    let mut starting = Vec::new();
    for own in 0..count {
        let mut ways = BTreeMap::new();
        for other in (0..count).filter(|other| *other != own) {
            let port = peers[other];
            ways.insert(port, links.lead((own, other), at(port), None).await?);
        }
        let socks = Socks::start(ways).await?;
        let proxy = Proxy::start(at(clients[own])).await?;
        let place = Place {
            name: own.to_string(),
            port: clients[own],
            peers: peers[own],
            announced: proxy.address(),
            cluster: cluster.clone(),
            socks: socks.address(),
        };
        links.keep(socks);
        starting.push((Etcd::member(place), Some(proxy)));
    }
    let mut assembly = Assembly::of(platform.start_all("etcd_cluster", starting).await?);
    assembly.links = Some(links);
    assembly.settling(|members| Box::pin(settled(members))).await
}

/// Every member serves, and all follow the same one.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    let mut leaders = Vec::new();
    for node in members {
        let server = node.direct_address();
        let asking = async {
            gateway::is_healthy(server).await?;
            gateway::status(server).await
        };
        leaders.push(timeout(PATIENCE, asking).await??.leader);
    }
    leaders.dedup();
    if leaders.len() == 1 { Ok(()) } else { Err(io::Error::other(format!("{} leaders", leaders.len()))) }
}
