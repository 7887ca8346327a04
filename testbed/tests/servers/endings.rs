//! Nothing stays behind, however the process that had the server ends.
//!
//! Each case starts this program again. That process starts a server, says so, and ends in its own way.

use crate::{CHILD, LONG};
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tenure_conformance::saboteur::Hurt;
use tenure_testbed::{Kind, Server, Use};
use testcontainers::bollard::query_parameters::ListContainersOptionsBuilder;
use testcontainers::core::client::docker_client_instance;
use tokio::runtime::Runtime;

/// By then a cancelled start has come to where it can end, and all is gone. A program that prepares its data is not
/// interrupted, and a busy engine takes its time to remove several containers; how long is not what is shown here.
const AT_LAST: Duration = Duration::from_mins(5);

const NAMES: [&str; 8] = [
    "leaves_nothing_when_stopped",
    "leaves_nothing_when_cancelled",
    "leaves_nothing_after_kill_while_frozen",
    "leaves_nothing_when_dropped",
    "leaves_nothing_after_panic",
    "leaves_nothing_after_exit",
    "leaves_nothing_after_interrupt",
    "leaves_nothing_after_kill",
];

/// How a process can end is the same for all kinds, so one server and several show every way. What is left to clear away is
/// each kind's own: the others show an orderly end, one amid their start, and the worst.
pub(crate) fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Redis | Kind::RedisSentinel => &NAMES,
        _ => &NAMES[..3],
    }
}

pub(crate) fn trials(prefix: &str, kind: Kind, way: &'static str) -> Vec<Trial> {
    let trial = |name: &'static str| {
        Trial::test(format!("{prefix}::{name}"), move || {
            leaves_nothing(kind, way, name);
            Ok(())
        })
    };
    names(kind).iter().copied().map(trial).collect()
}

/// What the process started again does.
pub(crate) async fn run(kind: Kind, ways: Use, name: &str) {
    if name == "leaves_nothing_when_cancelled" {
        say("starting");
        let mut told = tokio::task::spawn_blocking(wait);
        tokio::select! {
            // Too quick to be cancelled: then it is dropped, once it has been seen.
            server = Server::start(kind, ways) => {
                let server = server.expect("a server");
                told.await.expect("told to go on");
                drop(server);
            }
            waited = &mut told => waited.expect("told to go on"),
        }
        say("cancelled");
        return wait();
    }
    let server = Server::start(kind, ways).await.expect("a server");
    if name == "leaves_nothing_after_kill_while_frozen" {
        server.saboteur().hurt(Hurt::Freeze).await.expect("frozen");
    }
    say("started");
    wait();
    match name {
        "leaves_nothing_when_stopped" => server.stop().await.expect("stopped"),
        "leaves_nothing_when_dropped" => drop(server),
        "leaves_nothing_after_panic" => panic!("as asked"),
        "leaves_nothing_after_exit" => std::process::exit(0),
        // The others are ended from without.
        _ => wait(),
    }
    say("gone");
    wait();
}

fn say(word: &str) {
    println!("{word}");
}

fn wait() {
    stdin().read_line(&mut String::new()).expect("a line");
}

fn leaves_nothing(kind: Kind, way: &'static str, name: &str) {
    let temporary = tempfile::tempdir().unwrap();
    // A server that refuses root runs as another user, who must reach its home.
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Started::new(kind, way, name, temporary.path());
    let look =
        Look { way, pid: child.process.id(), temporary: temporary.path(), runtime: Runtime::new().unwrap() };
    if name == "leaves_nothing_when_cancelled" {
        child.hear("starting");
        look.until(AT_LAST, |left| !left.is_empty());
        child.say();
        child.hear("cancelled");
        // The child lives on, so this is not its end's doing.
        return look.until(AT_LAST, <[String]>::is_empty);
    }
    child.hear("started");
    assert_ne!(look.left(), Vec::<String>::new(), "there is something to leave behind");
    child.say();
    match name {
        "leaves_nothing_when_stopped" | "leaves_nothing_when_dropped" => {
            child.hear("gone");
            assert_eq!(look.left(), Vec::<String>::new());
        }
        "leaves_nothing_after_panic" | "leaves_nothing_after_exit" => {
            child.process.wait().unwrap();
            look.until(LONG, <[String]>::is_empty);
        }
        "leaves_nothing_after_interrupt" => {
            // As the keyboard does it: to the whole group.
            let group = Pid::from_child(&child.process);
            rustix::process::kill_process_group(group, Signal::INT).unwrap();
            child.process.wait().unwrap();
            look.until(LONG, <[String]>::is_empty);
        }
        _ => {
            kill_process(Pid::from_child(&child.process), Signal::KILL).unwrap();
            child.process.wait().unwrap();
            look.until(LONG, <[String]>::is_empty);
        }
    }
}

/// This program, started again.
struct Started {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn new(kind: Kind, way: &str, name: &str, temporary: &Path) -> Self {
        // Whoever started the tests may have interrupts ignored, as a shell does for what it runs in the background.
        let mut process = Command::new("env")
            .arg("--default-signal=INT")
            .arg(std::env::current_exe().unwrap())
            .env(CHILD, format!("{kind} {way} {name}"))
            .env("TMPDIR", temporary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if name.ends_with("panic") { Stdio::null() } else { Stdio::inherit() })
            .process_group(0)
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output }
    }

    fn say(&mut self) {
        self.input.write_all(b"go on\n").unwrap();
    }

    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where a process could have left something.
struct Look<'a> {
    way: &'static str,
    pid: u32,
    temporary: &'a Path,
    runtime: Runtime,
}

impl Look<'_> {
    fn until(&self, patience: Duration, wished: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + patience;
        while !wished(&self.left()) {
            assert!(Instant::now() < deadline, "there is {:?}", self.left());
            sleep(Duration::from_millis(5));
        }
    }

    /// The containers, processes and files that there are.
    fn left(&self) -> Vec<String> {
        let mut left =
            if self.way == "docker" { self.runtime.block_on(self.containers()) } else { self.processes() };
        left.extend(
            fs::read_dir(self.temporary).unwrap().map(|entry| entry.unwrap().path().display().to_string()),
        );
        left
    }

    async fn containers(&self) -> Vec<String> {
        let docker = docker_client_instance().await.unwrap();
        let filters = HashMap::from([("label".to_owned(), vec!["tenure.owner".to_owned()])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let containers = docker.list_containers(Some(options)).await.unwrap();
        let ours = containers.into_iter().filter(|container| {
            let owner = container.labels.as_ref().and_then(|labels| labels.get("tenure.owner"));
            owner.is_some_and(|owner| owner.contains(&format!("/{}/", self.pid)))
        });
        ours.filter_map(|container| container.id).collect()
    }

    fn processes(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let ours = processes.filter(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|home| home.starts_with(self.temporary))
        });
        ours.map(|process| process.path().display().to_string()).collect()
    }
}
