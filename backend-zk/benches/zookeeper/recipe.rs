//! [ZooKeeper's recipe](https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks).

use crate::{bare, beside_recipe::Recipe};
use std::path::Path;
use tenure_core::Locks;
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::Client;

/// Where Debian has the server's code.
const CODE: &str = "/usr/share/java/zookeeper.jar";

pub(crate) struct Zookeeper {
    client: Client,
    /// The lock whose node was made last.
    made: String,
}

impl Recipe for Zookeeper {
    const STORE: &'static str = "zookeeper";
    const ROUNDS: u32 = 60;
    const CYCLES: u32 = 100;

    fn server([port, _]: [u16; 2], directory: &Path) -> Vec<String> {
        let (port, data) = (port.to_string(), directory.display().to_string());
        let server = "org.apache.zookeeper.server.ZooKeeperServerMain";
        ["java", "-cp", CODE, "-Dzookeeper.admin.enableServer=false", server, &port, &data]
            .map(str::to_owned)
            .to_vec()
    }

    async fn locks(address: &str) -> Locks {
        Locks::new(ZkBackend::connect(ZkOptions::new([address])).await.expect("a server"))
    }

    async fn connect(address: &str) -> Option<Self> {
        Some(Self { client: Client::connect(address).await.ok()?, made: String::new() })
    }

    async fn acquire(&mut self, lock: &str) -> String {
        let lock = format!("/{lock}");
        if self.made != lock {
            bare::prepare(&self.client, &lock).await;
            self.made.clone_from(&lock);
        }
        bare::acquire(&self.client, &lock).await
    }

    async fn release(&mut self, node: &str) {
        bare::release(&self.client, node).await;
    }
}
