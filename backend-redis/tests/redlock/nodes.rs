//! Servers that know nothing of each other, for one test.

pub(crate) use tenure_testbed::claims::{LEASE as LONG, claim, granted, in_time, waits};

use std::{sync::Arc, time::Duration};
use tenure_conformance::saboteur::Saboteur;
use tenure_core::{Guard, Locks};
use tenure_redis::{RedlockBackend, RedlockOptions};
use tenure_testbed::{Kind, Member, Server};

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
        options_at(&self.server.url())
    }

    pub(crate) async fn backend(&self) -> RedlockBackend {
        RedlockBackend::connect(self.options()).await.expect("a majority")
    }

    /// A client that waits for a node so long that four such waits take longer than a test may.
    pub(crate) async fn patient(&self) -> RedlockBackend {
        let options = self.options().node_timeout(Duration::from_mins(1));
        let options = options.each(|server| server.response_timeout(LONG));
        RedlockBackend::connect(options).await.expect("a majority")
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

/// Patient, so that a busy machine is no fault; tests of patience set their own.
pub(crate) fn options_at(url: &str) -> RedlockOptions {
    let options = RedlockOptions::from_url(url).expect("a good URL").node_timeout(Duration::from_secs(3));
    options.each(|server| server.response_timeout(Duration::from_millis(2500)))
}

/// The key of what a server remembers of a lock.
pub(crate) fn record(name: &str) -> String {
    format!("tenure:{name}\u{1f}{{tenure:{name}}}r")
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    tenure_testbed::claims::until(what, async || so()).await;
}

/// Waits until the lease has been renewed.
pub(crate) async fn until_renewed(guard: &Guard) {
    let before = guard.deadline();
    until("it is renewed", || guard.deadline() > before || !guard.is_held()).await;
    assert!(guard.is_held(), "{guard:?}");
}
