//! The recipe against real servers. Several backends of one server are what several processes are.

mod ensemble;
mod faults;
mod interop;
mod names;
mod people;
mod recipe;
mod relay;
mod requests;
mod server;
mod session;
mod wrap;

use server::Server;
use std::{future::Future, sync::Arc, time::Duration};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Locks, Mode, Name};
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Client, Error};

const PATIENCE: Duration = Duration::from_secs(30);

/// A test's own part of a server, and what it sees there with another client's eyes.
struct Scene {
    address: String,
    prefix: String,
    eyes: Client,
}

impl Scene {
    async fn on(server: &Server, test: &str) -> Self {
        let address = server.address();
        let eyes = Client::connect(&address).await.unwrap();
        Self { address, prefix: format!("/{test}"), eyes }
    }

    fn options(&self) -> ZkOptions {
        ZkOptions::new([&self.address]).prefix(&self.prefix)
    }

    async fn backend(&self) -> ZkBackend {
        ZkBackend::connect(self.options()).await.unwrap()
    }

    async fn locks(&self) -> Locks {
        Locks::new(self.backend().await)
    }

    fn path(&self, lock: &str) -> String {
        format!("{}/{lock}", self.prefix)
    }

    /// The nodes below a lock's node, in the order of their numbers.
    async fn nodes(&self, lock: &str) -> Vec<String> {
        match self.eyes.list_children(&self.path(lock)).await {
            Ok(mut nodes) => {
                nodes.sort_by_key(|node| node[node.len().saturating_sub(10)..].to_owned());
                nodes
            }
            Err(Error::NoNode) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    async fn node(&self, lock: &str, at: usize) -> String {
        format!("{}/{}", self.path(lock), self.nodes(lock).await[at])
    }

    async fn until_nodes(&self, lock: &str, count: usize) {
        eventually(&format!("{count} nodes of {lock}"), async || self.nodes(lock).await.len() == count).await;
    }
}

fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(name).unwrap(),
        mode: Mode::Exclusive,
        lease: Duration::from_secs(30),
        waits: true,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

async fn try_grant(backend: &ZkBackend, claim: &Claim) -> Option<Grant> {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => Some(grant),
        Attempt::Busy { .. } => None,
    }
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "not within {PATIENCE:?}: {what}");
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}
