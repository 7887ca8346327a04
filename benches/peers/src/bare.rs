//! The bare requests that all are compared with, in the files of tenure's own benches.

#[path = "../../../backend-redis/benches/redis/bare.rs"]
mod redis;
#[path = "../../../backend-sql/benches/servers/pool.rs"]
mod sql;
#[path = "../../../backend-zk/benches/zookeeper/bare.rs"]
mod zookeeper;

pub(crate) use redis::Bare as Commands;
pub(crate) use sql::Pool;

use crate::workload::Locks;
use anyhow::Result;
use async_trait::async_trait;
use uuid::Uuid;
use zookeeper_client::Client;

#[async_trait]
impl Locks for Commands {
    async fn cycle(&self, name: &str) -> Result<()> {
        Self::cycle(self, name, &claim()).await;
        Ok(())
    }
}

#[async_trait]
impl Locks for Pool {
    async fn cycle(&self, name: &str) -> Result<()> {
        Self::cycle(self, name, &claim()).await;
        Ok(())
    }
}

/// The bare recipe.
pub(crate) struct Recipe(pub(crate) Client);

#[async_trait]
impl Locks for Recipe {
    async fn prepare(&self, name: &str) -> Result<()> {
        zookeeper::prepare(&self.0, name).await;
        Ok(())
    }

    async fn cycle(&self, name: &str) -> Result<()> {
        let node = zookeeper::acquire(&self.0, name).await;
        zookeeper::release(&self.0, &node).await;
        Ok(())
    }
}

/// As tenure has them: a new one for each acquisition.
fn claim() -> String {
    Uuid::new_v4().to_string()
}
