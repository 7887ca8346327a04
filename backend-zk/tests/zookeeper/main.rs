//! The recipe against real servers. Several backends of one server are what several processes are.

mod conversions;
mod ensemble;
mod faults;
mod fences;
mod foreign;
mod format;
mod gone;
mod input;
mod interop;
mod log;
mod nodes;
mod people;
mod requests;
#[cfg(all(feature = "sasl", feature = "tls"))]
mod secure;
mod server;
mod session;
mod special;
mod wrap;

use server::{Place, Shared};
use std::{net::SocketAddr, time::Duration};
use tenure_conformance::pause;
use tenure_conformance::proxy::Proxy;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, Guard, Lock, Locks};
use tenure_testbed::{
    Member,
    claims::{self, HANG, in_time, until},
};
use tenure_zk::{ZkBackend, ZkOptions};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// The session by default.
const USUAL_SESSION: Duration = Duration::from_secs(30);
/// The longest session: its pings and heartbeats come every few minutes.
const LONG_SESSION: Duration = Duration::from_mins(10);
/// A child of a lock's node that does not contend.
const KEEPER: &str = "keeper";

/// A test's own part of a server, and what it sees there with another client's eyes.
struct Scene {
    hosts: Vec<String>,
    prefix: String,
    eyes: Client,
    /// Where it has a shared one.
    place: Option<Place>,
}

impl Scene {
    /// A part of a server that others use too; `None` where there is none.
    async fn on(shared: &'static Shared, test: &str) -> Option<Self> {
        Some(Self::at(shared.share().await?, test).await)
    }

    async fn at(place: Place, test: &str) -> Self {
        // Of its own, also where the server was used before.
        let prefix = format!("/{test}-{}", &ClaimId::new().to_string()[..8]);
        let hosts = place.hosts();
        Self { place: Some(place), ..Self::of(hosts, prefix).await }
    }

    async fn of(hosts: Vec<String>, prefix: String) -> Self {
        // A minute, so that few of its pings fall into what is counted.
        let eyes = Client::connector().with_session_timeout(Duration::from_mins(1));
        let eyes = eyes.connect(&hosts.join(",")).await.unwrap();
        Self { hosts, prefix, eyes, place: None }
    }

    /// Has the eyes look at this member alone.
    async fn look_at(&mut self, member: &Member) {
        self.eyes = Client::connect(&member.address().to_string()).await.unwrap();
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("a shared server")
    }

    fn options(&self) -> ZkOptions {
        ZkOptions::new(&self.hosts).prefix(&self.prefix)
    }

    /// Through a proxy.
    fn through(&self, proxy: &Proxy) -> ZkOptions {
        ZkOptions::new([proxy.address().to_string()]).prefix(&self.prefix)
    }

    async fn proxy(&self) -> Proxy {
        Proxy::start(self.place().address().await).await.unwrap()
    }

    /// A client past a proxy, with a session of this length.
    async fn past_proxy(&self, session: Duration) -> (Proxy, ZkBackend) {
        let proxy = self.proxy().await;
        let backend = ZkBackend::connect(self.through(&proxy).session_timeout(session)).await.unwrap();
        (proxy, backend)
    }

    /// A client past a proxy, on which only what the client is told to do is heard.
    async fn behind_proxy(&self) -> (Proxy, Locks) {
        let (proxy, backend) = self.past_proxy(LONG_SESSION).await;
        (proxy, Locks::new(backend))
    }

    async fn backend(&self) -> ZkBackend {
        ZkBackend::connect(self.options()).await.unwrap()
    }

    async fn locks(&self) -> Locks {
        Locks::new(self.backend().await)
    }

    fn path(&self, lock: &str) -> String {
        format!("{}/{lock}", self.prefix)
    }

    /// The nodes below a lock's node, in the order of their numbers.
    async fn nodes(&self, lock: &str) -> Vec<String> {
        // The eyes may look at a member that is behind.
        self.eyes.sync("/").await.unwrap();
        match self.eyes.list_children(&self.path(lock)).await {
            Ok(mut nodes) => {
                nodes.retain(|node| node != KEEPER);
                nodes.sort_by_key(|node| node[node.len().saturating_sub(10)..].to_owned());
                nodes
            }
            Err(Error::NoNode) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes the lock's node, and keeps it from being taken away when the queue is empty.
    async fn keep(&self, lock: &str) {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.eyes.mkdir(&format!("{}/{KEEPER}", self.path(lock)), &persistent).await.unwrap();
    }

    async fn node(&self, lock: &str, at: usize) -> String {
        format!("{}/{}", self.path(lock), self.nodes(lock).await[at])
    }

    async fn until_nodes(&self, lock: &str, count: usize) {
        until(&format!("{count} nodes of {lock}"), async || self.nodes(lock).await.len() == count).await;
    }
}

fn claim(name: &str) -> Claim {
    Claim { lease: Duration::from_secs(30), waits: true, ..claims::claim(name) }
}

async fn try_grant(backend: &ZkBackend, claim: &Claim) -> Option<Grant> {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => Some(grant),
        Attempt::Busy { .. } => None,
    }
}

/// Ends the session of the client past this proxy, at this server.
async fn end_session(server: SocketAddr, proxy: &Proxy) {
    let opening = proxy.connections().last().expect("a connection").opening();
    in_time("the session's end", tenure_testbed::end_session(server, &opening)).await.unwrap();
}

/// Waits until the client of a long session has no more to send: it watches a grant's node a moment after the grant.
async fn quiet(proxy: &Proxy) {
    loop {
        let before = proxy.counters();
        pause::settle(Duration::from_millis(300)).await;
        if proxy.counters() == before {
            return;
        }
    }
}

/// A wait.
type Waiting = JoinHandle<Result<Guard, tenure_core::Error>>;

/// Has it wait, and comes back when it stands in the queue as the last of so many.
async fn wait(scene: &Scene, name: &str, lock: Lock, count: usize) -> Waiting {
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_nodes(name, count).await;
    waiting
}

async fn granted(waiting: Waiting) -> Guard {
    in_time("the grant", waiting).await.unwrap().unwrap()
}

/// Whether none is granted, also if one is about to be.
async fn none_is_finished(waiting: &[&Waiting]) {
    pause::linger(Duration::from_millis(200)).await;
    assert!(!waiting.iter().any(|waiting| waiting.is_finished()), "granted out of turn");
}
