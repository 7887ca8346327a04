//! The whole suite on a majority of five servers: `cargo test -p tenure-redis --test redlock_conformance -- waiting`.

use std::{process::ExitCode, sync::Arc};
use tenure_conformance::{
    Absent, BoxError, Subject, Subjects, async_trait, saboteur::Saboteur, servers::Server,
};
use tenure_core::Backend;
use tenure_redis::{RedlockBackend, RedlockOptions};
use tokio::sync::OnceCell;

/// Five Redis servers that know nothing of each other, found as [`Server`] finds them.
#[derive(Default)]
struct FiveServers(OnceCell<Server>);

impl FiveServers {
    async fn servers(&self) -> Result<&Server, BoxError> {
        Ok(self.0.get_or_try_init(|| Server::redlock(5)).await?)
    }

    async fn open(&self, prefix: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let options = RedlockOptions::from_url(&self.servers().await?.url())?;
        Ok(Arc::new(RedlockBackend::connect(options.each(|server| server.prefix(prefix))).await?))
    }
}

#[async_trait]
impl Subject for FiveServers {
    fn name(&self) -> &'static str {
        "redlock"
    }

    async fn start(&self) -> Result<(), Absent> {
        let servers = self.servers().await.map_err(|error| Absent::because(error.to_string()))?;
        eprintln!("redlock: {}", servers.way());
        Ok(())
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.open("tenure:").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        self.open(&format!("{namespace}:")).await.map(Some)
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![("TENURE_TEST_REDLOCK_URL".to_owned(), self.0.get()?.url())])
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(self.0.get()?.saboteur())
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { Subjects::new().with(FiveServers::default()) })
}
