//! Servers that know nothing of each other, for one test.

use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_conformance::saboteur::Saboteur;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, Guard, HolderInfo, Locks, Mode, Name};
use tenure_redis::{RedlockBackend, RedlockOptions};
use tenure_testbed::{Kind, Member, Server};

/// Longer than any test takes: nothing is gone by itself.
pub(crate) const LONG: Duration = Duration::from_mins(10);
/// In which everything comes that comes at all, on a busy machine too.
pub(crate) const HANG: Duration = Duration::from_mins(3);

pub(crate) struct Nodes {
    server: Server,
    members: Vec<Member>,
}

impl Nodes {
    pub(crate) async fn start(count: u8) -> Self {
        let server = Server::find(Kind::Redlock(count)).await.expect("servers");
        let members = server.members();
        assert_eq!(
            members.len(),
            usize::from(count),
            "servers that can be hurt; unset TENURE_TEST_REDLOCK_URL"
        );
        Self { server, members }
    }

    pub(crate) fn options(&self) -> RedlockOptions {
        let options = RedlockOptions::from_url(&self.server.url()).expect("a good URL");
        // Patient, so that a busy machine is no fault; tests of patience set their own.
        let options = options.node_timeout(Duration::from_secs(3));
        options.each(|server| server.response_timeout(Duration::from_millis(2500)))
    }

    pub(crate) async fn backend(&self) -> RedlockBackend {
        RedlockBackend::connect(self.options()).await.expect("a majority")
    }

    pub(crate) async fn locks(&self) -> Locks {
        Locks::new(self.backend().await)
    }

    /// Injects faults into one.
    pub(crate) fn saboteur(&self, node: usize) -> Arc<dyn Saboteur> {
        self.members[node].saboteur()
    }

    pub(crate) fn member(&self, node: usize) -> &Member {
        &self.members[node]
    }

    /// Tells one of them something past tenure.
    pub(crate) fn tell<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> T {
        let (command, arguments) = words.split_first().expect("a command");
        let client = redis::Client::open(self.members[node].direct_url()).expect("a good URL");
        let mut connection = client.get_connection().expect("a connection");
        redis::cmd(command).arg(arguments).query(&mut connection).expect("an answer")
    }

    /// How many script calls one of them has carried out.
    pub(crate) fn scripts_called(&self, node: usize) -> u64 {
        self.calls(node, "evalsha")
    }

    /// How many of these commands one of them has carried out.
    pub(crate) fn calls(&self, node: usize, command: &str) -> u64 {
        let stats: String = self.tell(node, &["INFO", "commandstats"]);
        let begin = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or("0");
        line.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number")
    }

    /// By the clock of one of them.
    pub(crate) fn time(&self, node: usize) -> Duration {
        let [seconds, micros]: [u64; 2] = self.tell(node, &["TIME"]);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    /// Whether the lock's key stands on one of them.
    pub(crate) fn has_key(&self, node: usize, name: &str) -> bool {
        self.tell(node, &["EXISTS", &format!("tenure:{name}")])
    }
}

/// The longest that a node may be waited for. Four such waits take longer than a test may.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The key of what a server remembers of a lock.
pub(crate) fn record(name: &str) -> String {
    format!("tenure:{name}\u{1f}{{tenure:{name}}}r")
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(name).expect("a name"),
        mode: Mode::Exclusive,
        lease: LONG,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

pub(crate) async fn grant(backend: &dyn Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waits = async {
        while !so() {
            pause::look_again().await;
        }
    };
    in_time(what, waits).await;
}

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Waits until the lease has been renewed.
pub(crate) async fn until_renewed(guard: &Guard) {
    let before = guard.deadline();
    until("it is renewed", || guard.deadline() > before || !guard.is_held()).await;
    assert!(guard.is_held(), "{guard:?}");
}
