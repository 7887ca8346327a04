//! Redis with Sentinel: a master and two replicas, watched by three sentinels.

use crate::assembly::Assembly;
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use crate::redis::{Redis, ask, connect_to};
use crate::redis_node::{RedisNode, Role};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tenure_conformance::proxy::Proxy;

/// How many of the members have data; the others are sentinels.
pub(crate) const DATA: usize = 3;
const SENTINELS: usize = 3;

/// What the sentinels call the master and its replicas.
pub(crate) const SERVICE: &str = "tenure";

/// Starts them. Every one is known by its proxy's address, to clients and to the others.
pub(crate) async fn start(platform: Platform) -> io::Result<Assembly> {
    let mut ports = free_ports(DATA + SENTINELS)?.into_iter();
    let mut nodes: Vec<Node> = Vec::new();
    for (number, port) in ports.by_ref().take(DATA).enumerate() {
        let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
        let own = proxy.address().port();
        let announced = ["replica-announce-ip 127.0.0.1".to_owned(), format!("replica-announce-port {own}")];
        let master = nodes.first().map(|master| format!("replicaof 127.0.0.1 {}", master.address().port()));
        let node = RedisNode::new(port, Role::Data, announced.into_iter().chain(master));
        let (name, recipe) = (format!("redis_sentinel data {number}"), Arc::new(Redis::member(node)));
        nodes.push(platform.start(&name, recipe, Some(proxy)).await?);
    }
    let master = nodes[0].address().port();
    // A sentinel asks the master for its replicas when it starts, and then every ten seconds.
    let replicating = Assembly::of(nodes).settling(|members| Box::pin(replicated(&members[0])));
    let mut assembly = replicating.await?;
    for (number, port) in ports.enumerate() {
        let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
        let own = proxy.address().port();
        let settings = [
            "sentinel announce-ip 127.0.0.1".to_owned(),
            format!("sentinel announce-port {own}"),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {master} 2"),
            format!("sentinel down-after-milliseconds {SERVICE} 1000"),
            format!("sentinel failover-timeout {SERVICE} 5000"),
        ];
        let node = RedisNode::new(port, Role::Sentinel, settings);
        let (name, recipe) = (format!("redis_sentinel sentinel {number}"), Arc::new(Redis::member(node)));
        assembly.members.push(Arc::new(platform.start(&name, recipe, Some(proxy)).await?));
    }
    // Sentinels that come back before the master put another one in its place.
    let assembly = assembly.beginning_with(DATA);
    let assembly = assembly.failing_over(|members| Box::pin(last_failover(members)));
    assembly.settling(|members| Box::pin(settled(members))).await
}

/// What a sentinel says of one server.
type Facts = HashMap<String, String>;

/// Each failover has a new epoch.
async fn last_failover(members: &[Arc<Node>]) -> io::Result<u64> {
    let mut last = 0;
    for sentinel in &members[DATA..] {
        let master: Facts = ask(&mut connect_to(sentinel).await?, &["SENTINEL", "MASTER", SERVICE]).await?;
        let epoch: Option<u64> = master.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        last = last.max(epoch.ok_or_else(|| io::Error::other("a sentinel names no epoch"))?);
    }
    Ok(last)
}

/// The master has all its replicas.
async fn replicated(master: &Node) -> io::Result<()> {
    let state: String = ask(&mut connect_to(master).await?, &["INFO", "replication"]).await?;
    let replicas = state.lines().filter(|line| line.contains("state=online")).count();
    if !state.contains("role:master") || replicas != DATA - 1 {
        return Err(io::Error::other(format!("the master has {replicas} replicas")));
    }
    Ok(())
}

/// The sentinels know each other and one healthy master, which has all its replicas, and know these well enough to choose
/// the next master among them.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    let (data, sentinels) = members.split_at(DATA);
    let mut masters = Vec::new();
    for sentinel in sentinels {
        let mut redis = connect_to(sentinel).await?;
        let master: Facts = ask(&mut redis, &["SENTINEL", "MASTER", SERVICE]).await?;
        let value = |name| master.get(name).map(String::as_str);
        let others = (SENTINELS - 1).to_string();
        if value("flags") != Some("master") || value("num-other-sentinels") != Some(&*others) {
            return Err(io::Error::other(format!("a sentinel finds {:?}", value("flags"))));
        }
        masters.extend(value("port").map(str::to_owned));
        let replicas: Vec<Facts> = ask(&mut redis, &["SENTINEL", "REPLICAS", SERVICE]).await?;
        let says = |replica: &Facts, name, value| replica.get(name).is_some_and(|said| said == value);
        let known =
            |replica: &&Facts| says(replica, "flags", "slave") && says(replica, "master-link-status", "ok");
        if replicas.iter().filter(known).count() != DATA - 1 {
            return Err(io::Error::other("a sentinel does not know every replica"));
        }
    }
    masters.dedup();
    let [master] = &masters[..] else {
        return Err(io::Error::other("the sentinels do not agree on a master"));
    };
    let master = data.iter().find(|node| node.address().port().to_string() == *master);
    let master = master.ok_or_else(|| io::Error::other("the master is none of the members"))?;
    replicated(master).await
}
