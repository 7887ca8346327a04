//! A NATS server of this machine, with settings that no shared one has.

use std::{
    fs,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;
use tenure_conformance::pause;
use tenure_core::Error;
use tenure_nats::{NatsBackend, NatsOptions};
use tenure_testbed::free_ports;

/// One server, ended with this value.
pub(crate) struct Server {
    _directory: TempDir,
    port: u16,
    program: Child,
}

impl Server {
    /// A server without JetStream.
    pub(crate) async fn without_jetstream() -> Option<Self> {
        Self::configured(|_| String::new()).await
    }

    /// A server with more lines in its configuration; `None` where there is none. Where `TENURE_TEST_REQUIRE=1`, there must
    /// be one.
    pub(crate) async fn with(lines: &str) -> Option<Self> {
        Self::configured(|data| format!("jetstream {{ store_dir: \"{data}\" }}\n{lines}\n")).await
    }

    /// A server with the lines that this makes for its directory.
    async fn configured(lines: impl FnOnce(&str) -> String) -> Option<Self> {
        if Command::new("nats-server").arg("--version").output().is_err() {
            tenure_conformance::skip("nats", "no program of its own here (nats-server)").unwrap();
            return None;
        }
        let (directory, port) = (tempfile::tempdir().unwrap(), free_ports(1).unwrap()[0]);
        let config = directory.path().join("server.conf");
        let text = format!("listen: 127.0.0.1:{port}\n{}", lines(&directory.path().display().to_string()));
        fs::write(&config, text).unwrap();
        let program = Command::new("nats-server").arg("--config").arg(config).stderr(Stdio::null()).spawn();
        let server = Self { _directory: directory, port, program: program.unwrap() };
        crate::in_time("the server listens", async {
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                pause::look_again().await;
            }
        })
        .await;
        Some(server)
    }

    pub(crate) async fn start() -> Option<Self> {
        Self::with("").await
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn options(&self) -> NatsOptions {
        NatsOptions::new([self.host()], "locks")
    }

    pub(crate) async fn backend(&self) -> NatsBackend {
        NatsBackend::connect(self.options()).await.unwrap()
    }

    /// Why it does not serve these options.
    pub(crate) async fn refuses(&self, options: NatsOptions) -> Error {
        Box::pin(NatsBackend::connect(options)).await.unwrap_err()
    }

    /// Another program's connection.
    pub(crate) async fn eyes(&self) -> async_nats::jetstream::Context {
        async_nats::jetstream::new(async_nats::connect(self.host()).await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.program.kill().and_then(|()| self.program.wait()).expect("a server that runs can be ended");
    }
}
