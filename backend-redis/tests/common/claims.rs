//! Claims below `Locks`, and waits that end if a test hangs.

use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Error, Grant, Guard, HolderInfo, Lock, Mode, Name};
use tokio::task::JoinHandle;

/// Longer than any test takes: nothing is gone by itself.
pub(crate) const LEASE: Duration = Duration::from_mins(10);
/// After this time a test gives up an event, on a busy machine too. In a failover the sentinels need a second to find
/// the master dead, some to agree, and ten more each time that they do not. A sentinel that stood still for two seconds
/// does nothing for thirty.
pub(crate) const HANG: Duration = Duration::from_mins(3);

/// A claim that neither waits nor shares.
pub(crate) fn claim(name: &str, lease: Duration) -> Claim {
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

/// The grant of a claim that is sure to be granted.
pub(crate) async fn grant(backend: &dyn Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

/// Waits for a lock in a task.
pub(crate) fn waits(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.acquire().await })
}

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(HANG, future).await;
    outcome.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !so().await {
            pause::look_again().await;
        }
    };
    in_time(what, waits).await;
}

/// The whole of what a person is told.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", said(source)),
        None => error.to_string(),
    }
}
