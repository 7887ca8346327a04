//! A Redis server that can be hurt, in a container or from this machine's program, behind a proxy.

use std::{sync::Arc, time::Duration};
use tenure_conformance::saboteur::Saboteur;
use tenure_core::Locks;
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::Kind;

/// The server of a test that must hold both ways: `TENURE_TEST_USE` says which.
pub(crate) struct Server(tenure_testbed::Server);

impl Server {
    pub(crate) async fn start() -> Self {
        let server = tenure_testbed::Server::find(Kind::Redis).await.expect("a server");
        assert!(!server.members().is_empty(), "a server that can be hurt; unset TENURE_TEST_REDIS_URL");
        Self(server)
    }

    /// As clients see it, through the proxy.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.0.address().expect("one server")
    }

    /// Patient, so that a server that stands still on a busy machine is no fault.
    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::from_url(&self.0.url()).expect("a good URL").response_timeout(Duration::from_secs(5))
    }

    /// A new client.
    pub(crate) async fn backend(&self) -> RedisBackend {
        RedisBackend::connect(self.options()).await.expect("a server")
    }

    /// A new client's locks.
    pub(crate) async fn locks(&self) -> Locks {
        Locks::new(self.backend().await)
    }

    pub(crate) fn saboteur(&self) -> Arc<dyn Saboteur> {
        self.0.saboteur()
    }

    /// Tells the server something past tenure and past the proxy.
    pub(crate) fn tell<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let (command, arguments) = words.split_first().expect("a command");
        let client = redis::Client::open(self.0.direct_url()).expect("a good URL");
        let mut connection =
            client.get_connection_with_timeout(Duration::from_secs(20)).expect("a connection");
        redis::cmd(command).arg(arguments).query(&mut connection).expect("an answer")
    }

    /// How many clients listen for the release of a lock.
    pub(crate) fn listeners(&self, name: &str) -> u64 {
        self.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", &format!("tenure:{name}")]).1
    }
}
