//! Claims, and the requests that tests make most.

pub(crate) use tenure_testbed::claims::{AWAITED, LEASE, RELEASED, claim, granted, name, said};

use std::{num::NonZeroU32, time::Duration};
use tenure_core::{Attempt, Backend, Claim, Mode};
use tenure_testbed::claims;

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

pub(crate) async fn busy(store: &dyn Backend, claim: &Claim) -> Option<Duration> {
    match store.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}

/// Waits until `is_so`.
pub(crate) async fn until(is_so: impl AsyncFnMut() -> bool) {
    claims::until("what it waits for", is_so).await;
}

/// Panics instead of hanging.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    claims::in_time("it hangs", work).await
}
