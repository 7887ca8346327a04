//! Lease rows on real servers. Several backends on one server are what several processes are.
//!
//! Each test has a table of its own. Without a server the tests fail, and say how one can be had.

mod mysql;
mod postgres;

use std::{sync::Arc, time::Duration};
use tenure_conformance::servers::{Kind, Server};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name, Release};
use tokio::sync::OnceCell;

const LEASE: Duration = Duration::from_secs(30);
/// What surely comes has come by then.
const LONG: Duration = Duration::from_secs(30);
const RELEASED: Release = Release::Released { awaited: false };

/// The server that all tests of one kind share. It goes with this process.
async fn server(kind: Kind, place: &'static OnceCell<Server>) -> &'static Server {
    let found = place.get_or_try_init(|| Server::find(kind)).await;
    found.unwrap_or_else(|unavailable| panic!("{unavailable}"))
}

/// A table's name that no other test has.
fn fresh_table() -> String {
    format!("locks_{}", ClaimId::new().as_uuid().simple())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Waits until `is_so`.
async fn until(is_so: impl AsyncFn() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, look).await.expect("it did not come about");
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(text),
        mode: Mode::Exclusive,
        lease: LEASE,
        waits: false,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

fn waiting(text: &str) -> Claim {
    Claim { waits: true, ..claim(text) }
}

async fn granted(backend: &impl Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

async fn busy(backend: &impl Backend, claim: &Claim) -> Option<Duration> {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}
