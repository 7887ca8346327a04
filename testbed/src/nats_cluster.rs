//! A NATS cluster, with proxies between its members.

use crate::assembly::Assembly;
use crate::jetstream::JetStream;
use crate::links::Links;
use crate::nats::{Nats, Place};
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a member may take to answer. One that knows no leader says nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a cluster of so many.
pub(crate) async fn start(platform: Platform, count: u8) -> io::Result<Assembly> {
    let count = usize::from(count);
    // For clients, and for the other members.
    let ports = free_ports(2 * count)?;
    let (clients, peers) = ports.split_at(count);
    let mut links = Links::default();
    let mut starting = Vec::new();
    for own in 0..count {
        let mut routes = Vec::new();
        for other in (0..count).filter(|other| *other != own) {
            let port = SocketAddr::from((Ipv4Addr::LOCALHOST, peers[other]));
            routes.push(links.lead((own, other), port, None).await?);
        }
        let place = Place { name: own.to_string(), port: clients[own], peers: peers[own], routes };
        starting.push((Nats::member(place), None));
    }
    let mut assembly = Assembly::of(platform.start_all("nats_cluster", starting).await?);
    assembly.links = Some(links);
    assembly.settling(|members| Box::pin(settled(members))).await
}

/// Every member reaches the cluster's leader, and each stream's; and the cluster's leader knows them all: until then it
/// places no stream on each of them.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    if let Some(first) = members.first() {
        let placing = async {
            let mut server = JetStream::connect(first.direct_address()).await?;
            let replicas = members.len();
            let stream = format!(
                r#"{{"name":"settling","subjects":["settling"],"storage":"memory","num_replicas":{replicas}}}"#
            );
            server.ask("STREAM.CREATE.settling", &stream).await?;
            server.ask("STREAM.DELETE.settling", "").await
        };
        timeout(PATIENCE, placing).await??;
    }
    for node in members {
        let asking = async {
            let mut server = JetStream::connect(node.direct_address()).await?;
            let names = server.ask("STREAM.NAMES", "").await?;
            for stream in streams(&names) {
                server.reaches_leader_of(stream).await?;
            }
            io::Result::Ok(())
        };
        timeout(PATIENCE, asking).await??;
    }
    Ok(())
}

/// The names in an answer. None contains a quotation mark.
fn streams(names: &str) -> impl Iterator<Item = &str> {
    let list = names.split_once(r#""streams":["#).and_then(|(_, rest)| rest.split(']').next());
    list.into_iter().flat_map(|list| list.split('"').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_in_an_answer() {
        let names = r#"{"type":"names","total":2,"streams":["KV_a","KV_b"]}"#;
        assert_eq!(streams(names).collect::<Vec<_>>(), ["KV_a", "KV_b"]);
        assert_eq!(streams(r#"{"total":0,"streams":null}"#).next(), None);
    }
}
