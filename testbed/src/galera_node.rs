//! A MariaDB server's place in a Galera cluster.

use crate::ports::free_ports;
use std::io;

/// Where Debian and the official image keep the library.
pub(crate) const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";

/// How long a node may be silent before the other gives it up, and with it the quorum: a busy machine stands still for
/// seconds.
const PATIENT: &str = "evs.suspect_timeout=PT1M;evs.inactive_timeout=PT2M;evs.install_timeout=PT1M";

/// The ports of one of the servers, and whom it joins.
#[derive(Debug, Default)]
pub(crate) struct GaleraNode {
    pub(crate) clients: u16,
    /// Where the other node reaches it; where it is sent missing updates; where it is sent all data.
    pub(crate) group: u16,
    updates: u16,
    copy: u16,
    /// The node to join. Empty: it begins a cluster.
    joins: String,
}

impl GaleraNode {
    pub(crate) fn new(joins: String) -> io::Result<Self> {
        let ports = free_ports(4)?;
        Ok(Self { clients: ports[0], group: ports[1], updates: ports[2], copy: ports[3], joins })
    }

    pub(crate) fn options(&self) -> Vec<String> {
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

pub(crate) fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
