//! A Redis server on a core of its own.

use crate::pinning::server_core;
use redis::aio::MultiplexedConnection;
use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::Locks;
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::free_port;

/// Killed when dropped.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _directory: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a port");
        let process = Command::new("taskset")
            .args(["-c", &server_core().to_string()])
            .args(["redis-server", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server and taskset are installed");
        Self { process, port, _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A new client's locks.
    pub(crate) async fn locks(&self) -> Locks {
        locks(&self.url(), false).await
    }

    /// A connection past tenure, of the kind that tenure has.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        connection(&self.url()).await
    }

    /// How many commands clients sent so far, without those within scripts.
    pub(crate) async fn commands(&self) -> u32 {
        let text: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.connection().await)
            .await
            .expect("INFO");
        let calls = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |rest| {
                rest.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number")
            })
        };
        ["evalsha", "subscribe", "unsubscribe", "ping", "script|load"].into_iter().map(calls).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) async fn locks(url: &str, fair: bool) -> Locks {
    let options = RedisOptions::from_url(url).expect("a good URL").fair(fair);
    Locks::new(RedisBackend::connect(options).await.expect("a server"))
}

/// Also the first, to a server that is starting.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let info: redis::ConnectionInfo =
        redis::IntoConnectionInfo::into_connection_info(url).expect("a good URL");
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(settings)).expect("a good URL");
    for _ in 0..200 {
        if let Ok(connection) = client.get_multiplexed_async_connection().await {
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the server does not answer")
}
