//! Who keeps a waiter waiting: looked up once the wait has become long, and shortly before it ends.

use super::store::Store;
use crate::{Claim, Holder};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// A wait that lasts longer is worth a line in the log.
const LONG: Duration = Duration::from_secs(30);
/// How long the answer for that line may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long before the end of a wait the store is asked who holds the lock: the error names them, and the wait is no longer
/// for it. Of a short wait it is the second half.
const BEFORE_THE_END: Duration = Duration::from_millis(500);

/// When a wait began and when it is over, and what was found out meanwhile.
pub(super) struct Look {
    began: Instant,
    pub(super) end: Option<Instant>,
    told: bool,
    /// Who held the lock shortly before the end.
    pub(super) holders: Vec<Holder>,
}

impl Look {
    pub(super) fn new(wait: Option<Duration>) -> Self {
        let began = Instant::now();
        Self { began, end: wait.map(|wait| began + wait), told: false, holders: Vec::new() }
    }

    /// Looks both times, and never ends. Only a contender looks, so tasks of one client that wait behind each other ask for
    /// nothing.
    pub(super) async fn go_on(&mut self, store: &Store, claim: &Claim) -> Infallible {
        if !store.backend.capabilities().listing {
            return pending().await;
        }
        let last =
            self.end.map(|end| end - BEFORE_THE_END.min(end.saturating_duration_since(Instant::now()) / 2));
        let long = self.began + LONG;
        if !self.told && last.is_none_or(|last| long < last) {
            sleep_until(long).await;
            self.told = true;
            tell(store, claim, self.began.elapsed()).await;
        }
        let Some(last) = last else { return pending().await };
        sleep_until(last).await;
        // What is wrong with the store is found out by the request for the lock.
        if let Ok(found) = store.backend.holders(&claim.name).await {
            self.holders = found.into_iter().filter(|holder| holder.claim != Some(claim.id)).collect();
        }
        pending().await
    }
}

/// No warning: a candidate waits for as long as the leader lives, and all is well.
async fn tell(store: &Store, claim: &Claim, waited: Duration) {
    let found = timeout(PATIENCE, store.backend.holders(&claim.name)).await;
    let holder = found.into_iter().flatten().flatten().next().map(|holder| holder.to_string());
    let (name, store) = (&claim.name, &store.name);
    tracing::info!(lock.name = %name, lock.store = %store, ?waited, holder, "still waiting for the lock");
}

#[cfg(test)]
mod tests {
    use crate::{Error, Locks, Memory};
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_timeout_names_who_had_the_lock() {
        let memory = Memory::new();
        let (one, other) = (Locks::new(memory.clone()), Locks::new(memory));
        let guard = one.lock("a").label("backup").acquire().await.unwrap();
        for wait in [1, 100, 10_000, 100_000].map(Duration::from_millis) {
            let began = Instant::now();
            let error = other.lock("a").wait(wait).acquire().await.unwrap_err();
            assert_eq!(began.elapsed(), wait);
            assert!(error.to_string().contains("held by backup ("), "{error}");
            let Error::Timeout { holders, .. } = error else { panic!("{error}") };
            assert_eq!(holders[0].claim, Some(guard.claim()));
        }
    }
}
