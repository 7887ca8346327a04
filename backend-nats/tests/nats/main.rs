//! The store on a real server: what the conformance suite cannot see from above.

mod bucket;
mod page;
mod rights;
mod server;
mod tls;

use std::{future::Future, sync::Arc, time::Duration};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name, Release};
use tenure_nats::NatsBackend;

/// After this time a test gives up an event, on a busy machine too.
const HANG: Duration = Duration::from_mins(3);
const RELEASED: Release = Release::Released { awaited: false };

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(text).unwrap(),
        mode: Mode::Exclusive,
        lease: Duration::from_mins(10),
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

async fn granted(backend: &NatsBackend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}
