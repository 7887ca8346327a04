//! Redis Cluster: three masters with a third of the slots each, and a replica of each.

use crate::assembly::Assembly;
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use crate::redis::{Redis, ask, connect_to};
use crate::redis_node::{RedisNode, Role};
use redis::aio::MultiplexedConnection;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tenure_conformance::proxy::Proxy;
use tokio::time::sleep;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Starts them. Clients, and replicas, are told the proxies' addresses; the members' bus goes directly.
pub(crate) async fn start(platform: Platform) -> io::Result<Assembly> {
    let (ports, buses) = (free_ports(2 * MASTERS)?, free_ports(2 * MASTERS)?);
    let mut nodes = Vec::new();
    for (number, (port, bus)) in ports.iter().zip(&buses).enumerate() {
        let proxy = Proxy::start(([127, 0, 0, 1], *port).into()).await?;
        let settings = [
            "cluster-enabled yes".to_owned(),
            "cluster-node-timeout 2000".into(),
            "cluster-announce-ip 127.0.0.1".into(),
            format!("cluster-announce-port {}", proxy.address().port()),
            format!("cluster-port {bus}"),
            format!("cluster-announce-bus-port {bus}"),
        ];
        let recipe = Arc::new(Redis::member(RedisNode::new(*port, Role::ClusterData, settings)));
        nodes.push(platform.start(&format!("redis_cluster {number}"), recipe, Some(proxy)).await?);
    }
    join(&nodes, &buses).await?;
    let assembly = Assembly::of(nodes).failing_over(|members| Box::pin(last_failover(members)));
    assembly.settling(|members| Box::pin(settled(members))).await
}

/// Each failover has a new epoch.
async fn last_failover(members: &[Arc<Node>]) -> io::Result<u64> {
    let mut last = 0;
    for node in members {
        let state: String = ask(&mut connect_to(node).await?, &["CLUSTER", "INFO"]).await?;
        let epoch = state.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        let epoch: Option<u64> = epoch.and_then(|epoch| epoch.trim().parse().ok());
        last = last.max(epoch.ok_or_else(|| io::Error::other("a member names no epoch"))?);
    }
    Ok(last)
}

/// Makes a cluster of them.
async fn join(nodes: &[Node], buses: &[u16]) -> io::Result<()> {
    let mut redises = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut redis = connect_to(node).await?;
        // Distinct, so that no two masters have to settle whose slots are whose.
        ask::<()>(&mut redis, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await?;
        redises.push(redis);
    }
    let mut masters = Vec::new();
    for (number, redis) in redises.iter_mut().take(MASTERS).enumerate() {
        let (first, next) = (SLOTS * number / MASTERS, SLOTS * (number + 1) / MASTERS);
        let range = [first, next - 1].map(|slot| slot.to_string());
        ask::<()>(redis, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
        masters.push(ask::<String>(redis, &["CLUSTER", "MYID"]).await?);
    }
    meet(&mut redises, nodes, buses).await?;
    for (redis, master) in redises.iter_mut().skip(MASTERS).zip(&masters) {
        // Only once it has heard of its master can it follow it.
        while ask::<()>(redis, &["CLUSTER", "REPLICATE", master]).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Has them know each other. Each forgets whom it does not hear from within the node timeout, two seconds, and waits for the
/// disk whenever it notes another: so they are told again.
async fn meet(redises: &mut [MultiplexedConnection], nodes: &[Node], buses: &[u16]) -> io::Result<()> {
    for _ in 0..30 {
        for (node, bus) in nodes.iter().zip(buses) {
            let port = node.address().port().to_string();
            ask::<()>(&mut redises[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus.to_string()]).await?;
        }
        for _ in 0..60 {
            let mut known = 0;
            for redis in redises.iter_mut() {
                let nodes: String = ask(redis, &["CLUSTER", "NODES"]).await?;
                known += nodes.lines().filter(|line| !line.contains("handshake")).count();
            }
            if known == nodes.len() * nodes.len() {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Err(io::Error::other("the nodes do not meet"))
}

/// Every member sees every slot served and every other member, and every replica has its master's data.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    for node in members {
        let mut redis = connect_to(node).await?;
        let state: String = ask(&mut redis, &["CLUSTER", "INFO"]).await?;
        if !state.contains("cluster_state:ok") || !state.contains("cluster_slots_ok:16384") {
            return Err(io::Error::other(format!("{} finds its cluster incomplete", node.name)));
        }
        let known: String = ask(&mut redis, &["CLUSTER", "NODES"]).await?;
        let replicas = known.lines().filter(|line| line.contains("slave")).count();
        let broken = ["fail", "handshake", "noaddr", "disconnected"];
        if known.lines().count() != members.len()
            || replicas != members.len() - MASTERS
            || broken.iter().any(|word| known.contains(word))
        {
            return Err(io::Error::other(format!("{} finds a member missing", node.name)));
        }
        let replication: String = ask(&mut redis, &["INFO", "replication"]).await?;
        if replication.contains("role:slave") && !replication.contains("master_link_status:up") {
            return Err(io::Error::other(format!("{} has no link to its master", node.name)));
        }
    }
    Ok(())
}
