//! The store on real servers: what the conformance suite cannot see from above.

mod anywhere;
mod faults;
mod fences;
mod foreign;
mod full;
mod input;
mod interop;
mod keys;
mod latches;
mod masters;
mod notices;
mod outages;
mod people;
mod proxy;
mod refused;
mod replicas;
mod server;
mod several;
mod shards;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod turns;
mod upgrades;
mod waiting;

use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Error, Grant, Guard, HolderInfo, Mode, Name};

/// Sooner than a waiter asks again that is told nothing: 1.2 s after it asked last.
pub(crate) const NO_POLL: Duration = Duration::from_millis(1100);
/// The same of one in a queue: it shows up again after a second, and what another was handed runs out after 0.9 s.
pub(crate) const NO_SHOW_UP: Duration = Duration::from_millis(800);

/// A claim of a name, for requests below `Locks`.
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

/// Releases what was handed over, which is lost if the machine stalls for 0.9 s before it is renewed.
pub(crate) async fn give_back(guard: Guard) {
    match guard.release().await {
        Ok(()) | Err(Error::Lost { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The median, because a machine may stall now and then; whoever is told nothing is late every time.
pub(crate) fn typical(mut delays: Vec<Duration>) -> Duration {
    delays.sort_unstable();
    println!("after {delays:?}");
    delays[delays.len() / 2]
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(15), "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
