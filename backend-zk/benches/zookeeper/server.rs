//! A ZooKeeper server on a core of its own.

use crate::pinning::server_core;
use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::Locks;
use tenure_testbed::free_port;
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::Client;

/// Where Debian has the server's code.
const CODE: &str = "/usr/share/java/zookeeper.jar";

/// Killed when dropped.
pub(crate) struct Server {
    process: Child,
    address: String,
    _directory: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a port");
        let process = Command::new("taskset")
            .args(["-c", &server_core().to_string()])
            .args(["java", "-cp", CODE, "-Dzookeeper.admin.enableServer=false"])
            .args(["org.apache.zookeeper.server.ZooKeeperServerMain", &port.to_string()])
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java and taskset are installed");
        Self { process, address: format!("127.0.0.1:{port}"), _directory: directory }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A new client's locks.
    pub(crate) async fn locks(&self) -> Locks {
        locks(&self.address).await
    }

    /// A client past tenure.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.address).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) async fn locks(address: &str) -> Locks {
    Locks::new(ZkBackend::connect(ZkOptions::new([address])).await.expect("a server"))
}

/// Also the first, to a server that is starting.
pub(crate) async fn connect(address: &str) -> Client {
    for _ in 0..100 {
        if let Ok(client) = Client::connect(address).await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the server does not answer")
}
