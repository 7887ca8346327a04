//! Claims of the stores' own tests, the requests that these make most, and waits that end if a test hangs.

#![allow(clippy::missing_panics_doc, clippy::must_use_candidate, reason = "a test that fails panics")]

use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{
    Attempt, Backend, Claim, ClaimId, Error, Grant, Guard, HolderInfo, Lock, Mode, Name, Release,
};
use tokio::task::JoinHandle;

/// Longer than any test takes: nothing is gone by itself.
pub const LEASE: Duration = Duration::from_mins(10);
/// After this time a test gives up an event, on a busy machine too. In a failover of Redis the sentinels need a second to
/// find the master dead, some to agree, and ten more each time that they do not. A sentinel that stood still for two
/// seconds does nothing for thirty.
pub const HANG: Duration = Duration::from_mins(3);
/// The answer to a release for which nobody waits.
pub const RELEASED: Release = Release::Released { awaited: false };
/// The answer to a release for which another client waits.
pub const AWAITED: Release = Release::Released { awaited: true };

/// A valid name.
pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A new claim of [`LEASE`] that neither waits nor shares.
pub fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(text),
        mode: Mode::Exclusive,
        lease: LEASE,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

/// The grant of a claim that must be granted at once.
pub async fn granted(store: &dyn Backend, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

/// Waits for a lock in a task.
pub fn waits(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.acquire().await })
}

/// The outcome, unless it takes longer than [`HANG`].
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Looks again and again until something is so.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !so().await {
            pause::look_again().await;
        }
    };
    in_time(what, looks).await;
}

/// The whole of what a person is told: the error with its causes.
pub fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", said(source)),
        None => error.to_string(),
    }
}
