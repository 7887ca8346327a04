//! One of several servers that are one store to their clients.

use crate::assembly::Assembly;
use crate::node::Node;
use crate::sabotage::MembersSaboteur;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::Saboteur;
use tokio::runtime::Handle;

/// One server of an ensemble, or the only one. It ends with its [`Server`](crate::Server), not with this.
#[derive(Clone)]
pub struct Member {
    node: Arc<Node>,
    runtime: Handle,
}

impl Member {
    pub(crate) fn new(node: &Arc<Node>, runtime: &Handle) -> Self {
        Self { node: Arc::clone(node), runtime: runtime.clone() }
    }

    /// The address that clients, and where servers announce one the other members, know it by. It stays the same.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// The URL of this server alone, as if it were no member of anything. It may hold a password.
    #[must_use]
    pub fn url(&self) -> String {
        self.node.url()
    }

    /// The same past the proxy. A container has another one after a restart.
    #[must_use]
    pub fn direct_url(&self) -> String {
        self.node.direct_url()
    }

    /// The proxy in front of it. None where a client would notice one.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.node.proxy.as_ref()
    }

    /// What hurts this one alone. A restarted member may have to wait for others before it serves.
    #[must_use]
    pub fn saboteur(&self) -> Arc<dyn Saboteur> {
        let alone = Arc::new(Assembly::over(vec![Arc::clone(&self.node)]));
        Arc::new(MembersSaboteur::new(self.node.to_string(), alone, &self.runtime))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.node.name)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
