//! The store on real servers: what the conformance suite cannot see from above.

mod fences;
mod foreign;
mod format;
mod full;
mod input;
mod interop;
mod keys;
mod latches;
mod late;
mod modes;
mod notices;
mod outages;
mod people;
mod pushes;
mod refused;
mod replicas;
mod rights;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod turns;
mod upgrades;

use server::Server;
use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};
use tenure_conformance::{
    pause,
    proxy::{Connection, Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name};
use tenure_redis::RedisOptions;

/// Longer than any test takes: nothing is gone by itself.
const LEASE: Duration = Duration::from_mins(10);
/// In which everything comes that comes at all, on a busy machine too.
const HANG: Duration = Duration::from_mins(3);

/// A claim of a name, for requests below `Locks`.
fn claim(name: &str, lease: Duration) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(name).expect("a name"),
        mode: Mode::Exclusive,
        lease,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

/// A claim in this mode.
fn claim_in(mode: Mode, name: &str) -> Claim {
    Claim { mode, ..claim(name, LEASE) }
}

fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).expect("a number of permits");
    Mode::Permit { take: number(take), of: number(of) }
}

/// The grant of a claim that is sure to be granted.
async fn grant(backend: &dyn Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

/// Looks again and again until something is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waits = async {
        while !so() {
            pause::look_again().await;
        }
    };
    in_time(what, waits).await;
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(HANG, future).await;
    outcome.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// A proxy before a server, and the way through it. A server that gives no answer is given up soon, because some tests
/// wait for that.
async fn proxy_to(server: &Server) -> (Proxy, RedisOptions) {
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port))).await.expect("a port");
    let options = RedisOptions::from_url(&format!("redis://{}", proxy.address())).expect("a good URL");
    (proxy, options.response_timeout(Duration::from_secs(3)))
}

/// Keeps back what is sent on the present connections. Later ones are not held up.
fn hold(proxy: &Proxy) -> Vec<Connection> {
    let held = proxy.connections();
    for connection in &held {
        connection.set(Direction::Requests, Flow::Hold);
    }
    held
}

fn let_go(held: &[Connection]) {
    for connection in held {
        connection.set(Direction::Requests, Flow::Pass);
    }
}

/// Cuts the present connections, which a client that is not polled meanwhile has yet to see.
fn cut(proxy: &Proxy) {
    proxy.connections().iter().for_each(Connection::cut);
}
