//! The network between the members of an ensemble.

use crate::socks::Socks;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use tenure_conformance::{
    proxy::{Flow, Proxy, Rewrite},
    saboteur::Direction,
};

/// The proxies between members.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// For every way from one member to another, one for each kind of traffic.
    ways: BTreeMap<(usize, usize), Vec<Proxy>>,
    /// Those that members ask for their ways.
    socks: Vec<Socks>,
}

impl Links {
    /// Leads a member to a port of another through a proxy, whose address is returned.
    pub(crate) async fn lead(
        &mut self,
        (from, to): (usize, usize),
        port: SocketAddr,
        rewrite: Option<Rewrite>,
    ) -> io::Result<SocketAddr> {
        let proxy = Proxy::start_link(port, rewrite).await?;
        let address = proxy.address();
        self.ways.entry((from, to)).or_default().push(proxy);
        Ok(address)
    }

    /// Keeps a proxy that leads to these.
    pub(crate) fn keep(&mut self, socks: Socks) {
        self.socks.push(socks);
    }

    /// Cuts this member off from the others, both ways or only as the sender: messages arrive nowhere, and no connection
    /// is closed.
    pub(crate) fn partition(&self, member: usize, still_hears: bool) {
        for ((from, to), proxies) in &self.ways {
            for proxy in proxies.iter().filter(|_| (*from == member) != (*to == member)) {
                match (still_hears, *from == member) {
                    (false, _) => proxy.half_open(),
                    (true, true) => proxy.set(Direction::Requests, Flow::Drop),
                    (true, false) => proxy.set(Direction::Replies, Flow::Drop),
                }
            }
        }
    }

    /// Lets every member see every other.
    pub(crate) async fn rejoin(&self) -> io::Result<()> {
        for proxy in self.ways.values().flatten() {
            proxy.mend().await?;
        }
        Ok(())
    }
}
