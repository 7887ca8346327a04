//! PostgreSQL: advisory locks, through sqlx and through distributed-lock.

use crate::{
    bare::Pool,
    workload::{Comparison, Locks},
};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use sqlx::{
    PgPool,
    postgres::{PgAdvisoryLock, PgPoolOptions},
};

/// As many as the bare statements have in tenure's own bench of many tasks.
const CONNECTIONS: u32 = 16;

pub(crate) async fn measure(url: &str) -> Result<()> {
    // By its scheme, the bare pool knows what it talks to.
    ensure!(url.starts_with("postgres"), "the URL of a PostgreSQL server begins with postgres://");
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let pool = pool.connect(url).await.context("no connection")?;
    let theirs = sqlx_0_8::postgres::PgPoolOptions::new().max_connections(CONNECTIONS);
    let theirs = theirs.test_before_acquire(false).connect(url).await.context("distributed-lock")?;
    let theirs = PostgresLockProvider::builder().pool(theirs).build().await.context("distributed-lock")?;
    let mut all = Comparison::new("postgres", (25, 10));
    all.add("two bare statements", Pool::connect(url, false, CONNECTIONS).await);
    all.add("sqlx's PgAdvisoryLock", AdvisoryLocks(pool));
    all.add("distributed-lock", DistributedLocks(theirs));
    all.measure().await
}

struct AdvisoryLocks(PgPool);

#[async_trait]
impl Locks for AdvisoryLocks {
    async fn cycle(&self, name: &str) -> Result<()> {
        let lock = PgAdvisoryLock::new(name);
        let guard = lock.acquire(self.0.acquire().await?).await?;
        guard.release_now().await?;
        Ok(())
    }
}

struct DistributedLocks(PostgresLockProvider);

#[async_trait]
impl Locks for DistributedLocks {
    async fn cycle(&self, name: &str) -> Result<()> {
        let handle = self.0.create_lock(name).acquire(None).await?;
        Ok(handle.release().await?)
    }
}
