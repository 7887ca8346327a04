//! The network between the members of an ensemble.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use tenure_conformance::{
    proxy::{Flow, Proxy, Rewrite},
    saboteur::Direction,
};

/// A proxy for every way from one member to another, one for each kind of traffic.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<(usize, usize), Vec<Proxy>>);

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
        self.0.entry((from, to)).or_default().push(proxy);
        Ok(address)
    }

    /// Cuts this member off from the others, both ways or only as the sender: messages arrive nowhere, and no connection
    /// is closed.
    pub(crate) fn partition(&self, member: usize, still_hears: bool) {
        for ((from, to), proxies) in &self.0 {
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
        for proxy in self.0.values().flatten() {
            proxy.mend().await?;
        }
        Ok(())
    }
}
