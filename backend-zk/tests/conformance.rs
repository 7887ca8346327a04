//! tenure's conformance suite on a `ZooKeeper` server of this machine.

#[allow(dead_code, reason = "the recipe's own tests use all of it")]
#[path = "zookeeper/server.rs"]
mod server;

use server::Server;
use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_conformance::{Absent, BoxError, Subject, Subjects, async_trait};
use tenure_core::Backend;
use tenure_zk::{ZkBackend, ZkOptions};

const ADDRESS: &str = "TENURE_TEST_ZOOKEEPER_ADDRESS";
/// As long as the leases that the suite asks for, which a session takes the place of.
const SESSION: Duration = Duration::from_secs(1);

/// One server, which other processes find by its address.
#[derive(Default)]
struct ZooKeeper(Mutex<Option<Server>>);

impl ZooKeeper {
    fn address(&self) -> String {
        let server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map_or_else(|| std::env::var(ADDRESS).unwrap_or_default(), Server::address)
    }

    async fn connect(&self, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let options = ZkOptions::new([self.address()]).prefix(prefix).session_timeout(SESSION);
        Ok(Arc::new(ZkBackend::connect(options).await?))
    }
}

#[async_trait]
impl Subject for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    async fn start(&self) -> Result<(), Absent> {
        if !server::available() {
            return Err(Absent::because("there is no ZooKeeper here (apt install zookeeper)"));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Server::start(&[]));
        Ok(())
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.connect("/tenure").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(self.connect(&format!("/{namespace}")).await?))
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![(ADDRESS.to_owned(), self.address())])
    }

    async fn restart(&self) -> Result<bool, BoxError> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(server) = server.as_mut() else { return Ok(false) };
        server.kill();
        server.run();
        Ok(true)
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        let client = zookeeper_client::Client::connect(&self.address()).await?;
        let mut paths = vec!["/tenure".to_owned()];
        let mut at = 0;
        while let Some(path) = paths.get(at).cloned() {
            let children = client.list_children(&path).await.unwrap_or_default();
            paths.extend(children.into_iter().map(|child| format!("{path}/{child}")));
            at += 1;
        }
        for path in paths.iter().rev() {
            match client.delete(path, None).await {
                Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { Subjects::new().with(ZooKeeper::default()) })
}
