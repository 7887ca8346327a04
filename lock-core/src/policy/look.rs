//! Who keeps a waiter waiting: looked up once when the wait has become long, and shortly before it ends.

use super::store::Store;
use crate::{Holder, Name};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// A wait that lasts longer is worth a line in the log.
const LONG: Duration = Duration::from_secs(30);
/// How long the answer for that line may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long before the end of a wait the store is asked who holds the lock: the error names them, and the wait is no longer
/// for it. Of a short wait it is the second half.
const BEFORE_THE_END: Duration = Duration::from_millis(500);

/// Looks both times, and never ends. Only who contends looks, so tasks of one client that wait behind each other ask for
/// nothing.
pub(super) async fn look(
    store: &Store,
    name: &Name,
    end: Option<Instant>,
    holders: &mut Vec<Holder>,
) -> Infallible {
    if !store.backend.capabilities().listing {
        return pending().await;
    }
    let now = Instant::now();
    let last = end.map(|end| end - BEFORE_THE_END.min(end.saturating_duration_since(now) / 2));
    let long = now + LONG;
    if last.is_none_or(|last| long < last) {
        sleep_until(long).await;
        warn(store, name).await;
    }
    let Some(last) = last else { return pending().await };
    sleep_until(last).await;
    // What is wrong with the store is found out by the request for the lock.
    if let Ok(found) = store.backend.holders(name).await {
        *holders = found;
    }
    pending().await
}

async fn warn(store: &Store, name: &Name) {
    let found = timeout(PATIENCE, store.backend.holders(name)).await;
    let held_by: Vec<_> = found.into_iter().flatten().flatten().map(|holder| holder.to_string()).collect();
    let (store, held_by) = (&store.name, held_by.join(", "));
    tracing::warn!(lock.name = %name, lock.store = %store, held_by, "still waiting for the lock after {LONG:?}");
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
