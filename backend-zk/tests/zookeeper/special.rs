//! A `ZooKeeper` server of Debian's package on this machine, with settings or data that no shared one has.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tenure_testbed::free_port;

pub(crate) const JARS: &str = "/usr/share/java/zookeeper.jar";
/// TLS needs these, and the archive does not name them.
const NETTY: [&str; 3] = ["netty-codec", "netty-resolver", "netty-transport-native-unix-common"];

/// One server, ended with this value or with this process.
pub(crate) struct Special {
    directory: TempDir,
    pub(crate) port: u16,
    shell: Child,
}

/// Whether such a server can be had here. Where `TENURE_TEST_REQUIRE=1`, it must.
pub(crate) fn available() -> bool {
    let here = Path::new(JARS).exists() && Command::new("java").arg("-version").output().is_ok();
    if !here {
        let why = "no programs of its own here (libzookeeper-java, and a JRE)";
        tenure_conformance::skip("zookeeper", why).unwrap();
    }
    here
}

impl Special {
    /// A server on a directory that may hold data already, with these lines of configuration and these properties of
    /// Java's.
    pub(crate) fn start(directory: TempDir, configuration: &str, properties: &[String]) -> Self {
        // Many at once take longer than one after the other.
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (port, home) = (free_port().unwrap(), directory.path());
        let common = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=200\nminSessionTimeout=400\n\
             maxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n",
            home.display()
        );
        fs::write(home.join("zoo.cfg"), common + configuration).unwrap();
        let netty = NETTY.map(|name| format!("/usr/share/java/{name}.jar")).join(":");
        let shell = Command::new("sh")
            // The end of its input ends the server too.
            .args(["-c", r#"java "$@" </dev/null & cat >/dev/null; kill -9 $!"#, "zookeeper"])
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .args(properties.iter().map(|property| format!("-D{property}")))
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.root.logger=WARN,CONSOLE"])
            .args(["-cp", &format!("{JARS}:{netty}:/etc/zookeeper/conf")])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(home.join("zoo.cfg"))
            .stdin(Stdio::piped())
            .stdout(fs::File::create(home.join("log")).unwrap())
            .stderr(fs::File::options().append(true).open(home.join("log")).unwrap())
            .spawn()
            .unwrap();
        let server = Self { directory, port, shell };
        server.until(|| server.serves());
        server
    }

    /// Waits for what comes with the server's start.
    pub(crate) fn until(&self, started: impl Fn() -> bool) {
        let began = Instant::now();
        while !started() {
            assert!(began.elapsed() < Duration::from_mins(2), "no service: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn serves(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"srvr")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        ask().is_ok_and(|answer| answer.contains("Mode: "))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Special {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
