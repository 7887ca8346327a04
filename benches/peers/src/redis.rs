//! Redis: rslock, and distributed-lock.

use crate::{
    bare::Commands,
    workload::{Comparison, Locks},
};
use anyhow::{Context, Result};
use async_trait::async_trait;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;
use redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};
use rslock::LockManager;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

pub(crate) async fn measure(url: &str) -> Result<()> {
    let connection = client(url)?.get_multiplexed_async_connection().await.context("no connection")?;
    let mut all = Comparison::new("redis", (200, 20));
    all.add("two bare commands", Commands::new(connection));
    all.add("rslock", Rslock(LockManager::from_clients(vec![client(url)?])));
    let provider = RedisLockProvider::builder().url(url).expiry(LEASE).build().await;
    all.add("distributed-lock", DistributedLocks(provider.context("distributed-lock")?));
    all.measure().await
}

/// With the settings that tenure has.
fn client(url: &str) -> Result<Client> {
    let info = url.into_connection_info().context("not a URL of Redis")?;
    Ok(Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?)
}

struct Rslock(LockManager);

#[async_trait]
impl Locks for Rslock {
    async fn cycle(&self, name: &str) -> Result<()> {
        // Not `acquire`, which retries every failure for ever.
        let lock = self.0.lock(name, LEASE).await?;
        // Does not say whether it failed. If it did, the next cycle finds the name taken.
        lock.release().await;
        Ok(())
    }
}

struct DistributedLocks(RedisLockProvider);

#[async_trait]
impl Locks for DistributedLocks {
    async fn cycle(&self, name: &str) -> Result<()> {
        let handle = self.0.create_lock(name).acquire(None).await?;
        Ok(handle.release().await?)
    }
}
