//! MariaDB and MySQL: the server's user-level locks, through sqlx and through distributed-lock.

use crate::{
    bare::Pool,
    workload::{Comparison, Locks},
};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::MySqlLockProvider;
use sqlx::{MySqlPool, mysql::MySqlPoolOptions};
use std::time::Duration;

/// As many as the bare statements have in tenure's own bench of many tasks.
const CONNECTIONS: u32 = 16;
const WAIT: Duration = Duration::from_secs(30);

pub(crate) async fn measure(store: &str, url: &str) -> Result<()> {
    // By its scheme, the bare pool knows what it talks to.
    ensure!(
        url.starts_with("mysql") || url.starts_with("mariadb"),
        "the URL of a MariaDB or MySQL server begins with mysql:// or mariadb://"
    );
    let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let pool = pool.connect(url).await.context("no connection")?;
    let theirs = sqlx_0_8::mysql::MySqlPoolOptions::new().max_connections(CONNECTIONS);
    let theirs = theirs.test_before_acquire(false).connect(url).await.context("distributed-lock")?;
    let theirs = MySqlLockProvider::builder().pool(theirs).build().await.context("distributed-lock")?;
    let mut all = Comparison::new(store, (25, 10));
    all.add("two bare statements", Pool::connect(url, false, CONNECTIONS).await);
    all.add("GET_LOCK through sqlx", UserLevelLocks(pool));
    all.add("distributed-lock", DistributedLocks(theirs));
    all.measure().await
}

struct UserLevelLocks(MySqlPool);

#[async_trait]
impl Locks for UserLevelLocks {
    async fn cycle(&self, name: &str) -> Result<()> {
        let mut connection = self.0.acquire().await?;
        let acquire = sqlx::query_scalar("SELECT CAST(GET_LOCK(?, ?) AS SIGNED)");
        let acquire = acquire.bind(name).bind(WAIT.as_secs_f64());
        let acquired: Option<i64> = acquire.fetch_one(&mut *connection).await?;
        ensure!(acquired == Some(1), "GET_LOCK answered {acquired:?}");
        let release = sqlx::query_scalar("SELECT CAST(RELEASE_LOCK(?) AS SIGNED)").bind(name);
        let released: Option<i64> = release.fetch_one(&mut *connection).await?;
        ensure!(released == Some(1), "RELEASE_LOCK answered {released:?}");
        Ok(())
    }
}

struct DistributedLocks(MySqlLockProvider);

#[async_trait]
impl Locks for DistributedLocks {
    async fn cycle(&self, name: &str) -> Result<()> {
        // `None` sends a negative timeout; a positive one means the same to both servers.
        let handle = self.0.create_lock(name).acquire(Some(WAIT)).await?;
        Ok(handle.release().await?)
    }
}
