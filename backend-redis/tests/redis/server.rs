//! A Redis server of a test's own, from the program on this machine.

use crate::{HANG, until};
use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tenure_core::Locks;
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::free_port;

/// The file for what it prints.
const LOG: &str = "log";

/// A server on a socket and a port of its own. It keeps nothing on disk unless told to, and is killed when dropped.
pub(crate) struct Server {
    directory: TempDir,
    process: Child,
    arguments: Vec<String>,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a free port");
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = launch(&directory, port, &arguments);
        let mut server = Self { directory, process, arguments, port };
        server.until_it_answers();
        server
    }

    /// A node that is in no Cluster yet. Its bus has a port of its own: by default that is 10,000 above the other, where
    /// the system gives ports to connections, and a server that finds it taken ends.
    pub(crate) fn node(arguments: &[&str]) -> Self {
        let bus = free_port().expect("a free port").to_string();
        Self::with(&[&["--cluster-enabled", "yes", "--cluster-port", &bus], arguments].concat())
    }

    /// A Cluster of one node.
    pub(crate) async fn cluster(arguments: &[&str]) -> Self {
        let node = Self::node(arguments);
        node.tell::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let is_whole = || node.tell::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        until("the cluster is whole", is_whole).await;
        node
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    pub(crate) fn start_again(&mut self) {
        self.process = launch(&self.directory, self.port, &self.arguments);
        self.until_it_answers();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix:{}", self.socket().display())
    }

    pub(crate) fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Patient, so that a server that stands still on a busy machine is no fault.
    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::from_url(&self.url()).expect("a good URL").response_timeout(Duration::from_secs(5))
    }

    /// A new client.
    pub(crate) async fn backend(&self) -> RedisBackend {
        RedisBackend::connect(self.options()).await.expect("a server")
    }

    /// A new client that serves waiters of all clients in order.
    pub(crate) async fn fair(&self) -> RedisBackend {
        RedisBackend::connect(self.options().fair(true)).await.expect("a server")
    }

    /// A client of each kind.
    pub(crate) async fn both(&self) -> [RedisBackend; 2] {
        [self.backend().await, self.fair().await]
    }

    /// A new client's locks.
    pub(crate) async fn locks(&self) -> Locks {
        Locks::new(self.backend().await)
    }

    /// A connection past tenure.
    pub(crate) fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(format!("unix:{}", self.socket().display())).expect("a good URL");
        client.get_connection().expect("a connection")
    }

    /// Tells the server something past tenure.
    pub(crate) fn tell<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let (command, arguments) = words.split_first().expect("a command");
        redis::cmd(command).arg(arguments).query(&mut self.connection()).expect("an answer")
    }

    /// How many commands of these kinds clients sent so far. Those within scripts count too.
    pub(crate) fn calls(&self, commands: &[&str]) -> u64 {
        commands.iter().map(|command| self.count(command, "calls")).sum()
    }

    /// How many of this kind the server refused to carry out at all. Redis counts them from 6.2 on.
    pub(crate) fn rejected(&self, command: &str) -> u64 {
        self.count(command, "rejected_calls")
    }

    /// How many script calls.
    pub(crate) fn scripts_called(&self) -> u64 {
        self.calls(&["evalsha"])
    }

    /// How many clients listen for the release of a lock.
    pub(crate) fn listeners(&self, name: &str) -> u64 {
        self.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", &format!("tenure:{name}")]).1
    }

    /// By the server's clock.
    pub(crate) fn time(&self) -> Duration {
        let [seconds, micros]: [u64; 2] = self.tell(&["TIME"]);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    /// A figure of a command.
    fn count(&self, command: &str, what: &str) -> u64 {
        let text: String = self.tell(&["INFO", "commandstats"]);
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let counts = line.unwrap_or_default().split(',').filter_map(|count| count.split_once('='));
        let mut counted = counts.filter(|(name, _)| *name == what).map(|(_, count)| count.parse::<u64>());
        counted.next().map_or(0, |count| count.expect("a number"))
    }

    fn until_it_answers(&mut self) {
        let begin = Instant::now();
        let client = redis::Client::open(format!("unix:{}", self.socket().display())).expect("a good URL");
        // A server that asks for a password answers too.
        let answers = |outcome: redis::RedisResult<()>| match outcome {
            Ok(()) => true,
            Err(error) => error.code() == Some("NOAUTH"),
        };
        while !answers(client.get_connection().and_then(|mut it| redis::cmd("PING").exec(&mut it))) {
            if let Some(status) = self.process.try_wait().expect("a status") {
                let said = fs::read_to_string(self.directory.path().join(LOG)).expect("its log");
                panic!("the server has ended ({status}): {said}");
            }
            assert!(begin.elapsed() < HANG, "the server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(directory: &TempDir, port: u16, arguments: &[String]) -> Child {
    let program = std::env::var("TENURE_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let log = File::create(directory.path().join(LOG)).expect("a log");
    let mut command = Command::new(program);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--unixsocket", "redis.sock"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"])
        .arg("--dir")
        .arg(directory.path())
        .args(arguments)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log"))
        .stderr(log);
    command.spawn().unwrap_or_else(|error| {
        let _ = std::io::stderr().flush();
        panic!(
            "redis-server could not be started: {error}; install it, or name it in TENURE_TEST_REDIS_SERVER"
        )
    })
}
