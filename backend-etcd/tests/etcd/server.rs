//! An etcd server of this machine, with settings that no shared one has.

use crate::HANG;
use etcd_client::{Client, ConnectOptions};
use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tenure_etcd::{EtcdBackend, EtcdOptions};
use tenure_testbed::free_ports;

/// One server, ended with this value or with this process.
pub(crate) struct Server {
    pub(crate) directory: TempDir,
    client: u16,
    peer: u16,
    scheme: &'static str,
    arguments: Vec<String>,
    shell: Child,
}

/// Whether such a server can be had here. Where `TENURE_TEST_REQUIRE=1`, it must.
pub(crate) fn available() -> bool {
    let here = |program: &str| Command::new(program).arg("--help").output().is_ok();
    let both = here("etcd") && here("etcdctl");
    if !both {
        tenure_conformance::skip("etcd", "no programs of its own here (etcd-server, etcd-client)").unwrap();
    }
    both
}

impl Server {
    /// A server on a directory of its own; `None` where there is none.
    pub(crate) fn start() -> Option<Self> {
        available().then(|| Self::with("http", tempfile::tempdir().unwrap(), |_| Vec::new()))
    }

    /// A server with more arguments, some of which may name files in its directory.
    pub(crate) fn with(
        scheme: &'static str,
        directory: TempDir,
        arguments: impl FnOnce(&TempDir) -> Vec<String>,
    ) -> Self {
        let ports = free_ports(2).unwrap();
        let (arguments, client, peer) = (arguments(&directory), ports[0], ports[1]);
        let shell = run(scheme, &directory, [client, peer], &arguments);
        let server = Self { directory, client, peer, scheme, arguments, shell };
        server.until_serves(1);
        server
    }

    /// Ends it without warning, and starts it on the same data.
    pub(crate) fn restart(&mut self) {
        self.end();
        let starts = self.starts();
        self.shell = run(self.scheme, &self.directory, [self.client, self.peer], &self.arguments);
        self.until_serves(starts + 1);
    }

    /// Waits until it has begun to serve so often. Its port accepts connections long before that.
    fn until_serves(&self, starts: usize) {
        let began = Instant::now();
        while self.starts() < starts {
            assert!(began.elapsed() < HANG, "no service: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn starts(&self) -> usize {
        self.log().matches("ready to serve client requests").count()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new([self.host()])
    }

    pub(crate) async fn backend(&self) -> EtcdBackend {
        EtcdBackend::connect(self.options()).await.unwrap()
    }

    /// Another client, to look at what is there.
    pub(crate) async fn eyes(&self) -> Client {
        self.eyes_with(ConnectOptions::new()).await
    }

    pub(crate) async fn eyes_with(&self, options: ConnectOptions) -> Client {
        Client::connect([format!("{}://{}", self.scheme, self.host())], Some(options)).await.unwrap()
    }

    fn end(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().expect("the shell ends with its input");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(scheme: &str, directory: &TempDir, [client, peer]: [u16; 2], arguments: &[String]) -> Child {
    let home = directory.path();
    let log = || fs::File::options().create(true).append(true).open(home.join("log")).unwrap();
    let clients = format!("{scheme}://127.0.0.1:{client}");
    let peers = format!("http://127.0.0.1:{peer}");
    Command::new("sh")
        // The end of its input ends the server too.
        .args(["-c", r#"etcd "$@" </dev/null & cat >/dev/null; kill -9 $!; wait"#, "etcd"])
        .args(["--data-dir", &home.join("data").display().to_string()])
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(log())
        .stderr(log())
        .spawn()
        .unwrap()
}
