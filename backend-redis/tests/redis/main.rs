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
    time::Duration,
};
use tenure_conformance::{
    proxy::{Connection, Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Backend, Claim, Grant, Mode, StoreError};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::claims::{HANG, LEASE, claim, granted, in_time, said, waits};
use tokio::task::JoinHandle;

/// A claim in this mode.
fn claim_in(mode: Mode, name: &str) -> Claim {
    Claim { mode, ..claim(name) }
}

fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).expect("a number of permits");
    Mode::Permit { take: number(take), of: number(of) }
}

/// Waits for the grant of a claim in a task.
fn acquires(backend: &RedisBackend, claim: &Claim) -> JoinHandle<Result<Grant, StoreError>> {
    let (backend, claim) = (backend.clone(), claim.clone());
    tokio::spawn(async move { backend.acquire(&claim).await })
}

/// Looks again and again until something is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    tenure_testbed::claims::until(what, async || so()).await;
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
