//! One Redis server, found as `tenure_conformance::servers` finds it.

use std::sync::Arc;
use tenure_conformance::{Absent, BoxError, Subject, async_trait, servers::Server};
use tenure_core::Backend;
use tenure_redis::{RedisBackend, RedisOptions};
use tokio::sync::OnceCell;

/// The server, once it was asked for.
#[derive(Default)]
pub(crate) struct OneServer(OnceCell<Server>);

impl OneServer {
    async fn server(&self) -> Result<&Server, BoxError> {
        Ok(self.0.get_or_try_init(Server::redis).await?)
    }

    async fn open(&self, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let options = RedisOptions::from_url(&self.server().await?.url())?.prefix(prefix);
        Ok(Arc::new(RedisBackend::connect(options).await?))
    }
}

#[async_trait]
impl Subject for OneServer {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn start(&self) -> Result<(), Absent> {
        let server = self.server().await.map_err(|error| Absent::because(error.to_string()))?;
        eprintln!("redis: {}", server.way());
        Ok(())
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.open("tenure:").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        self.open(&format!("{namespace}:")).await.map(Some)
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![("TENURE_TEST_REDIS_URL".to_owned(), self.0.get()?.url())])
    }

    async fn restart(&self) -> Result<bool, BoxError> {
        let saboteur = self.server().await?.saboteur();
        saboteur.kill().await?;
        saboteur.restart().await?;
        Ok(true)
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        let saboteur = self.server().await?.saboteur();
        saboteur.kill().await?;
        saboteur.restart_empty().await?;
        Ok(true)
    }
}
