//! Claims, and the requests that tests make most.

use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name, Release};

/// Of every claim that nothing is said of: longer than a test.
pub(crate) const LEASE: Duration = Duration::from_mins(10);
pub(crate) const RELEASED: Release = Release::Released { awaited: false };
pub(crate) const AWAITED: Release = Release::Released { awaited: true };
/// A test that waits for so long hangs.
const HANGS: Duration = Duration::from_mins(3);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn claim(text: &str) -> Claim {
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

pub(crate) fn waiting(text: &str) -> Claim {
    Claim { waits: true, ..claim(text) }
}

pub(crate) fn reader(text: &str) -> Claim {
    Claim { mode: Mode::Shared, ..claim(text) }
}

pub(crate) fn permits(text: &str, take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..claim(text) }
}

pub(crate) async fn granted(store: &dyn Backend, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

pub(crate) async fn busy(store: &dyn Backend, claim: &Claim) -> Option<Duration> {
    match store.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Waits until `is_so`.
pub(crate) async fn until(is_so: impl AsyncFn() -> bool) {
    let look = async {
        while !is_so().await {
            pause::look_again().await;
        }
    };
    soon(look).await;
}

/// Panics instead of hanging.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, work).await.expect("it hangs")
}
