//! A candidate's reports, to its service manager and at its port.

use crate::stage::{Done, PATIENCE, Running, Stage, until};
use nix::sys::signal::Signal;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::Command,
};

/// A service manager, and what it calls its socket.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn new(stage: &Stage) -> Self {
        let name = stage.path("notify");
        let socket = UnixDatagram::bind(&name).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, name: name.display().to_string() }
    }

    /// In Linux's abstract namespace.
    fn without_a_file() -> Self {
        let name = format!("tenure-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, name: format!("@{name}") }
    }

    /// A command that it starts, and watches at most so long without a sign of life.
    fn starts<'a>(&self, command: &'a mut Command, watchdog: &str) -> &'a mut Command {
        command.env("NOTIFY_SOCKET", &self.name).env("WATCHDOG_USEC", watchdog).env_remove("WATCHDOG_PID")
    }

    /// The next message.
    #[track_caller]
    fn hears(&self) -> String {
        let mut message = [0; 1024];
        let size = self.socket.recv(&mut message).expect("it is notified");
        str::from_utf8(&message[..size]).unwrap().to_owned()
    }

    /// The next message that is another one.
    #[track_caller]
    fn hears_other_than(&self, told: &str) -> String {
        loop {
            let message = self.hears();
            if message != told {
                return message;
            }
        }
    }
}

const WAITING: &str = "READY=1\nSTATUS=waiting to lead \"s\"\nWATCHDOG=1";
/// A command that prints what it knows of the manager, and ends when it is told.
const COMMAND: &str =
    "echo \"${NOTIFY_SOCKET-none} ${WATCHDOG_USEC-none} ${WATCHDOG_PID-none}\"; exec sleep 1000";

#[test]
fn manager_is_notified_from_start_to_end() {
    let stage = Stage::new();
    for (manager, lease) in [(Manager::new(&stage), "30s"), (Manager::without_a_file(), "3s")] {
        let args = ["elect", "s", "--lease", lease, "--", "sh", "-c", COMMAND];
        let candidate = Running::start(manager.starts(&mut stage.tenure(&args), "300000"));
        let first = manager.hears();
        // It may lead before it has said anything.
        let leading = if first == WAITING { manager.hears_other_than(WAITING) } else { first };
        assert!(leading.starts_with("READY=1\nSTATUS=leading \"s\" in term "), "{leading}");
        assert!(leading.ends_with("\nWATCHDOG=1"), "{leading}");
        assert_eq!(candidate.line(), "none none none");
        // As long as it lives.
        for _ in 0..3 {
            assert_eq!(manager.hears(), leading);
        }
        candidate.signal(Signal::SIGTERM);
        assert_eq!(manager.hears_other_than(&leading), "STOPPING=1");
        candidate.end().expect(143);
    }
}

#[test]
fn manager_is_notified_of_a_wait_and_a_loss() {
    let stage = Stage::new();
    let holder = stage.holder("s");
    holder.line();
    let manager = Manager::new(&stage);
    // With a command that takes its time to end.
    let args = ["elect", "s", "--lease", "6s", "--kill-after", "1h", "--", "sh", "-c"];
    let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let args = [&args[..], &[script]].concat();
    let candidate = Running::start(manager.starts(&mut stage.tenure(&args), "300000"));
    for _ in 0..3 {
        assert_eq!(manager.hears(), WAITING);
    }
    holder.signal(Signal::SIGTERM);
    let leading = manager.hears_other_than(WAITING);
    assert!(leading.contains("STATUS=leading"), "{leading}");
    let group = candidate.group();
    let _ends = group.ends();
    stage.done(&["release", "s", "--force"]).expect(0);
    assert_eq!(manager.hears_other_than(&leading), WAITING);
    assert!(!group.has_ended());
}

#[test]
fn manager_without_watchdog_gets_no_keepalive() {
    let stage = Stage::new();
    let manager = Manager::new(&stage);
    let mut tenure = stage.tenure(&["elect", "s", "--", "true"]);
    Running::start(manager.starts(&mut tenure, "300000").env("WATCHDOG_PID", "1")).end().expect(0);
    let mut last = manager.hears();
    while last != "STOPPING=1" {
        assert!(last.starts_with("READY=1\nSTATUS=") && !last.contains("WATCHDOG"), "{last}");
        last = manager.hears();
    }
}

/// It would keep a lost lock's command alive.
#[test]
fn deaf_manager_delays_nothing() {
    let stage = Stage::new();
    let manager = Manager::new(&stage);
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"x", &manager.name).is_ok() {}
    let mut tenure = stage.tenure(&["elect", "s", "--", "true"]);
    Running::start(manager.starts(&mut tenure, "300000")).end().expect(0);
    // A manager that is gone delays nothing either.
    drop(manager.socket);
    let mut tenure = stage.tenure(&["elect", "s", "--", "true"]);
    tenure.env("NOTIFY_SOCKET", &manager.name);
    Running::start(&mut tenure).end().expect(0);
}

/// Its path is too long for a socket, or was meant for another process.
#[test]
fn unreachable_manager_is_reported_once() {
    let stage = Stage::new();
    let mut tenure = stage.tenure(&["elect", "s", "--", "echo", "in"]);
    let done = Done::of(tenure.env("NOTIFY_SOCKET", format!("/{}", "x".repeat(200)))).expect(0);
    assert_eq!((done.out.trim(), done.err.matches("NOTIFY_SOCKET").count()), ("in", 1), "{}", done.err);
}

/// A candidate that answers at a port, and where.
fn with_port(stage: &Stage, options: &[&str], script: &str) -> (Running, String) {
    let args = [&["-v", "elect", "s", "--ready-port", "0"], options, &["--", "sh", "-c", script]].concat();
    let running = stage.start(&args);
    let address = address(&running);
    (running, address)
}

/// Where it says that it answers.
fn address(running: &Running) -> String {
    running.says("listening on http://");
    let said = running.said();
    let (_, rest) = said.split_once("listening on http://").unwrap();
    let address = rest.split_once('/').unwrap().0.to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    address
}

/// The status of the answer to this request, and all of it.
#[track_caller]
fn ask(address: &str, request: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, answer)
}

#[track_caller]
fn status(address: &str) -> String {
    status_of(address, "/leader")
}

#[track_caller]
fn status_of(address: &str, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")).0
}

/// A candidate is live before it is ready, and ready before it leads.
#[test]
fn probes_follow_the_election() {
    let stage = Stage::new();
    let statuses = |address: &str| ["/live", "/ready?x", "/leader"].map(|path| status_of(address, path));
    // No server is at port 1.
    let (waiting, at) = with_port(&stage, &["--store", "redis://127.0.0.1:1/"], "true");
    assert_eq!(statuses(&at), ["200", "503", "503"]);
    waiting.signal(Signal::SIGTERM);
    waiting.end().expect(143);
    let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let (leader, at_leader) = with_port(&stage, &["--lease", "6s", "--kill-after", "1h"], script);
    let group = leader.group();
    let _ends = group.ends();
    assert_eq!(statuses(&at_leader), ["200", "200", "200"]);
    let (second, at_second) = with_port(&stage, &[], "echo in; exec sleep 1000");
    until("it takes part", || status_of(&at_second, "/ready") == "200");
    assert_eq!(statuses(&at_second), ["200", "200", "503"]);
    for request in ["GET /leader HTTP/1.0\r\n\r\n", "HEAD /?a=b HTTP/1.1\r\nHost: here\r\nX: y\r\n\r\n"] {
        let (status, answer) = ask(&at_second, request);
        assert_eq!(status, "503", "{request}");
        assert_eq!(
            answer,
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    // A leader that has lost its term does not lead, although its command has not ended yet.
    stage.done(&["release", "s", "--force"]).expect(0);
    until("it knows of its loss", || status(&at_leader) == "503");
    assert!(!group.has_ended());
    assert_eq!(second.line(), "in");
    assert_eq!(status(&at_second), "200");
}

/// The store, which does not answer, has two seconds for the end. Clients would wait for as long.
#[test]
fn port_closes_before_the_farewell() {
    let stage = Stage::new();
    let holder = stage.holder("s");
    holder.line();
    let manager = Manager::new(&stage);
    let args = ["-v", "elect", "s", "--ready-port", "0", "--", "true"];
    let candidate = Running::start(manager.starts(&mut stage.tenure(&args), "300000"));
    let address = address(&candidate);
    assert_eq!((manager.hears(), status(&address)), (WAITING.to_owned(), "503".to_owned()));
    let frozen = stage.freeze();
    candidate.signal(Signal::SIGTERM);
    assert_eq!(manager.hears_other_than(WAITING), "STOPPING=1");
    TcpStream::connect(&address).expect_err("the port is closed");
    frozen.thaw();
    candidate.end().expect(143);
}

#[test]
fn silent_probe_clients_delay_others_briefly() {
    let stage = Stage::new();
    let (leader, address) = with_port(&stage, &[], "echo in; exec sleep 1000");
    assert_eq!(leader.line(), "in");
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(status(&address), "200");
    // A request that never ends is answered too.
    assert_eq!(ask(&address, &"x".repeat(8192)).0, "200");
    leader.signal(Signal::SIGTERM);
    leader.end().expect(143);
    drop(silent);
}

#[test]
fn unusable_port_starts_nothing() {
    let stage = Stage::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let done = stage.done(&["elect", "s", "--ready-port", &port, "--", "echo", "never"]).expect(74);
    assert!(
        done.out.is_empty() && done.err.contains(&format!("cannot listen on 127.0.0.1:{port}")),
        "{}",
        done.err
    );
    for wrong in ["65536", "-1", "localhost:80", "http"] {
        let option = format!("--ready-port={wrong}");
        let done = stage.done(&["elect", "s", &option, "--", "echo", "never"]).expect(64);
        assert!(done.err.contains("give 8089, 0.0.0.0:8089 or [::]:8089"), "{}", done.err);
    }
}
