//! A `ZooKeeper` server of Debian's package, on this machine.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub(crate) const JARS: &str = "/usr/share/java/zookeeper.jar";

/// One server, ended with this value or with this process.
pub(crate) struct Server {
    directory: TempDir,
    pub(crate) port: u16,
    settings: Vec<String>,
    process: Option<Process>,
}

struct Process {
    shell: Child,
    /// Its end ends the server too.
    keep: ChildStdin,
    pid: String,
}

/// Whether a server can be had here. Without one the tests have nothing to say; where `TENURE_TEST_REQUIRE=1`, that
/// is a failure.
pub(crate) fn available() -> bool {
    let here = Path::new(JARS).exists() && Command::new("java").arg("-version").output().is_ok();
    let required = tenure_conformance::is_required("zookeeper");
    assert!(here || !required, "no ZooKeeper here (apt install zookeeper), and TENURE_TEST_REQUIRE=1");
    if !here {
        eprintln!("skipped: there is no ZooKeeper here (apt install zookeeper)");
    }
    here
}

/// The server for tests that do not disturb it.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&[]))
}

/// A port that nobody else takes meanwhile: each is given out once, below those that systems give to connections.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    loop {
        let process = u16::try_from(std::process::id() % 500).unwrap() * 40;
        let port = 10_000 + process + GIVEN.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Server {
    /// A server with these system properties.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings)
    }

    /// The same on a directory that may hold data already.
    pub(crate) fn start_in(directory: TempDir, settings: &[&str]) -> Self {
        let mut server = Self::prepare(directory, free_port(), settings, "");
        server.run();
        server
    }

    /// Three servers that are one, in the order of their numbers, with these ports for each other. The first sees the others
    /// at the ports of `first_sees`, and does not lead.
    pub(crate) fn ensemble(ports: [[u16; 2]; 3], first_sees: [[u16; 2]; 3]) -> [Self; 3] {
        let mut servers = [ports, ports, ports];
        servers[0] = [ports[0], first_sees[1], first_sees[2]];
        let mut number = 0;
        let mut servers = servers.map(|seen| {
            number += 1;
            let mut members = "initLimit=50\nsyncLimit=20\n".to_owned();
            for (member, [quorum, election]) in seen.iter().enumerate() {
                writeln!(members, "server.{}=127.0.0.1:{quorum}:{election}", member + 1).unwrap();
            }
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("myid"), number.to_string()).unwrap();
            Self::prepare(directory, free_port(), &[], &members)
        });
        let [first, others @ ..] = &mut servers;
        others.iter_mut().for_each(Self::spawn);
        others.iter().for_each(Self::await_service);
        first.run();
        servers
    }

    /// Two ports each, for the ensemble and for its elections.
    pub(crate) fn ensemble_ports() -> [[u16; 2]; 3] {
        [(); 3].map(|()| [free_port(), free_port()])
    }

    pub(crate) fn leads(&self) -> bool {
        self.command("srvr").is_some_and(|answer| answer.contains("Mode: leader"))
    }

    fn prepare(directory: TempDir, port: u16, settings: &[&str], more: &str) -> Self {
        let mut config = String::new();
        writeln!(config, "dataDir={}", directory.path().display()).unwrap();
        writeln!(config, "clientPort={port}\nclientPortAddress=127.0.0.1").unwrap();
        config += "tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n";
        config += "admin.enableServer=false\n4lw.commands.whitelist=*\n";
        config += more;
        fs::write(directory.path().join("zoo.cfg"), config).unwrap();
        let settings = settings.iter().map(|setting| format!("-D{setting}")).collect();
        Self { directory, port, settings, process: None }
    }

    /// Starts the process, and waits until it serves.
    pub(crate) fn run(&mut self) {
        // Many at once take longer than one after the other.
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        self.spawn();
        self.await_service();
    }

    pub(crate) fn spawn(&mut self) {
        let log =
            fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", r#"java "$@" </dev/null >&2 & echo $!; cat >/dev/null; kill -9 $!"#, "zookeeper"])
            .args([
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dzookeeper.jmx.log4j.disable=true",
            ])
            .args(&self.settings)
            .args(["-cp", &format!("{JARS}:/etc/zookeeper/conf")])
            .args([
                "-Dzookeeper.root.logger=WARN,CONSOLE",
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            ])
            .arg(self.directory.path().join("zoo.cfg"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let keep = shell.stdin.take().unwrap();
        self.process = Some(Process { shell, keep, pid: pid.trim().to_owned() });
    }

    pub(crate) fn await_service(&self) {
        let started = Instant::now();
        while !self.serves() {
            assert!(started.elapsed() < Duration::from_mins(2), "no service: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.command("srvr").is_some_and(|answer| answer.contains("Mode: "))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap();
        assert!(Command::new("kill").args([signal, &process.pid]).status().unwrap().success());
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        if let Some(Process { mut shell, keep, pid: _ }) = self.process.take() {
            drop(keep);
            shell.wait().unwrap();
        }
    }

    /// One of the [four letter words](https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_4lw).
    pub(crate) fn command(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// How many requests the server has had, pings included, and this very question too.
    pub(crate) fn requests(&self) -> u64 {
        let answer = self.command("srvr").unwrap();
        answer.lines().find_map(|line| line.strip_prefix("Received: ")).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends a session as its own client would, by taking it over on another connection and closing it there.
pub(crate) fn end_session(port: u16, session: i64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes());
    connect.extend(0_i64.to_be_bytes());
    connect.extend(10_000_i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    let answer = exchange(&mut stream, &connect);
    assert_eq!(answer[8..16], session.to_be_bytes(), "the session could not be taken over");
    let mut close = Vec::new();
    close.extend(1_i32.to_be_bytes());
    close.extend((-11_i32).to_be_bytes());
    exchange(&mut stream, &close);
}

fn exchange(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    let length = i32::try_from(request.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), request].concat()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// The server makes a session's password from its id and a constant, by `java.util.Random`
/// ([`ZooKeeperServer.generatePasswd`](https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/server/ZooKeeperServer.java)).
fn password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ 0xB341_5C00).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut bytes = [0; 16];
    for word in bytes.chunks_mut(4) {
        seed = (seed.wrapping_mul(MULTIPLIER) + 0xB) & MASK;
        let next = u32::try_from(seed >> 16).unwrap();
        word.copy_from_slice(&next.to_le_bytes());
    }
    bytes
}
