//! A ZooKeeper ensemble, with proxies between its members.

use crate::assembly::Assembly;
use crate::jute;
use crate::links::Links;
use crate::node::Node;
use crate::platform::Platform;
use crate::ports::free_ports;
use crate::zookeeper::{Place, Zookeeper};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tenure_conformance::proxy::Rewrite;

/// Starts an ensemble of so many.
pub(crate) async fn start(platform: Platform, count: u8) -> io::Result<Assembly> {
    let count = usize::from(count);
    // For clients, for followers of the leader, and for elections.
    let ports = free_ports(3 * count)?;
    let ports: Vec<&[u16]> = ports.chunks(3).collect();
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut links = Links::default();
    // By who goes where.
    let ways: Arc<OnceLock<BTreeMap<(usize, usize), SocketAddr>>> = Arc::default();
    let (mut follow, mut elect) = (BTreeMap::new(), BTreeMap::new());
    for way in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        let (from, to) = way;
        if from == to {
            follow.insert(way, at(ports[to][1]));
            elect.insert(way, at(ports[to][2]));
            continue;
        }
        let back = Arc::clone(&ways);
        let rewrite = Rewrite::new(move |said| introduced(said, *back.get()?.get(&(to, from))?));
        follow.insert(way, links.lead(way, at(ports[to][1]), None).await?);
        elect.insert(way, links.lead(way, at(ports[to][2]), Some(rewrite)).await?);
    }
    ways.set(elect.clone()).map_err(|_| io::Error::other("the ways are known already"))?;
    let mut starting = Vec::new();
    for own in 0..count {
        let servers = ports.iter().enumerate().map(|(other, ports)| {
            let (follow, elect) = (follow[&(own, other)].port(), elect[&(own, other)].port());
            format!("server.{}=127.0.0.1:{follow}:{elect};127.0.0.1:{}", other + 1, ports[0])
        });
        let place = Place { id: own + 1, port: ports[own][0], servers: servers.collect() };
        starting.push((Zookeeper::member(place), None));
    }
    let mut assembly = Assembly::of(platform.start_all("zookeeper_ensemble", starting).await?);
    assembly.links = Some(links);
    assembly.settling(|members| Box::pin(settled(members))).await
}

/// What a member says first to another at an election: its protocol, its number, and where it can be called back. It
/// would be called back past the proxies, so it is made to say another address. `None`: it has not said all of it.
fn introduced(said: &[u8], back: SocketAddr) -> Option<Vec<u8>> {
    let protocol = i64::from_be_bytes(said.get(..8)?.try_into().ok()?);
    if protocol >= 0 {
        return Some(said.to_vec()); // so old that it says no address
    }
    let length = u32::from_be_bytes(said.get(16..20)?.try_into().ok()?);
    let rest = said.get(20 + usize::try_from(length).ok()?..)?;
    let back = back.to_string();
    let length = u32::try_from(back.len()).ok()?.to_be_bytes();
    Some([&said[..16], &length, back.as_bytes(), rest].concat())
}

/// One member leads, and every other follows.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    let mut leaders = 0;
    for node in members {
        let answer = jute::ask(node.direct_address(), "srvr").await?;
        match answer.lines().find_map(|line| line.strip_prefix("Mode: ")) {
            Some("leader") => leaders += 1,
            Some("follower") => {}
            _ => return Err(io::Error::other(format!("{} does not serve", node.name))),
        }
    }
    if leaders == 1 { Ok(()) } else { Err(io::Error::other(format!("{leaders} leaders"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_called_back_where_it_is_made_to_say() {
        let head = |address: &str| {
            let length = u32::try_from(address.len()).unwrap().to_be_bytes();
            [&(-65_536_i64).to_be_bytes()[..], &7_i64.to_be_bytes(), &length, address.as_bytes()].concat()
        };
        let said = head("127.0.0.1:3888");
        let back = "127.0.0.1:40001".parse().unwrap();
        for partly in 0..said.len() {
            assert_eq!(introduced(&said[..partly], back), None, "after {partly} bytes");
        }
        assert_eq!(introduced(&said, back), Some(head("127.0.0.1:40001")));
        let more = [&said[..], b"more"].concat();
        assert_eq!(introduced(&more, back), Some([&head("127.0.0.1:40001")[..], b"more"].concat()));
    }
}
