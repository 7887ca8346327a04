//! ZooKeeper: the lock recipe of zookeeper-client.

use crate::{
    bare::Recipe,
    workload::{Comparison, Locks},
};
use anyhow::{Context, Result};
use async_trait::async_trait;
use std::mem;
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockPrefix};

pub(crate) async fn measure(url: &str) -> Result<()> {
    let address = url.trim_start_matches("zookeeper://").trim_end_matches('/');
    let connect = async || Client::connect(address).await.context("no connection");
    let mut all = Comparison::new("zookeeper", (100, 10));
    all.add("the bare recipe", Recipe(connect().await?));
    all.add("zookeeper-client's lock", Dropped(connect().await?));
    all.add("the same, node deleted", Deleted(connect().await?));
    all.measure().await
}

/// Released as the library does it: in the background, so the next cycle may find the node still there, and wait.
struct Dropped(Client);

#[async_trait]
impl Locks for Dropped {
    async fn prepare(&self, name: &str) -> Result<()> {
        make(&self.0, name).await
    }

    async fn cycle(&self, name: &str) -> Result<()> {
        drop(lock(&self.0, name).await?);
        Ok(())
    }
}

/// Released past the library, which offers nothing to wait for.
struct Deleted(Client);

#[async_trait]
impl Locks for Deleted {
    async fn prepare(&self, name: &str) -> Result<()> {
        make(&self.0, name).await
    }

    async fn cycle(&self, name: &str) -> Result<()> {
        let lock = lock(&self.0, name).await?;
        self.0.delete(lock.lock_path(), None).await?;
        // Dropped, it would delete the node once more. Only a path is leaked.
        mem::forget(lock);
        Ok(())
    }
}

async fn make(client: &Client, name: &str) -> Result<()> {
    Ok(client.mkdir(name, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?)
}

async fn lock<'a>(client: &'a Client, name: &str) -> Result<LockClient<'a>> {
    let prefix = LockPrefix::new_curator(name, "lock-")?;
    Ok(client.lock(prefix, b"", Acls::anyone_all()).await?)
}
