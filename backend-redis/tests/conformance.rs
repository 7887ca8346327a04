//! The whole suite on Redis, without and with a queue: `cargo test -p tenure-redis --test conformance -- redis_fair::waiting`.

use std::{process::ExitCode, sync::Arc};
use tenure_conformance::{
    Absent, BoxError, Subject, Subjects, async_trait, saboteur::Saboteur, servers::Server,
};
use tenure_core::Backend;
use tenure_redis::{RedisBackend, RedisOptions};
use tokio::sync::OnceCell;

/// One Redis server, found as [`Server`] finds it.
struct OneServer {
    name: &'static str,
    fair: bool,
    server: OnceCell<Server>,
}

impl OneServer {
    fn new(name: &'static str, fair: bool) -> Self {
        Self { name, fair, server: OnceCell::new() }
    }

    async fn open(&self, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let server = self.server.get_or_try_init(Server::redis).await?;
        let options = RedisOptions::from_url(&server.url())?.prefix(prefix).fair(self.fair);
        Ok(Arc::new(RedisBackend::connect(options).await?))
    }
}

#[async_trait]
impl Subject for OneServer {
    fn name(&self) -> &str {
        self.name
    }

    async fn start(&self) -> Result<(), Absent> {
        let server = self.server.get_or_try_init(Server::redis).await;
        let server = server.map_err(|error| Absent::because(error.to_string()))?;
        eprintln!("{}: {}", self.name, server.way());
        Ok(())
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.open("tenure:").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        self.open(&format!("{namespace}:")).await.map(Some)
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![("TENURE_TEST_REDIS_URL".to_owned(), self.server.get()?.url())])
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(self.server.get()?.saboteur())
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async {
        Subjects::new().with(OneServer::new("redis", false)).with(OneServer::new("redis_fair", true))
    })
}
