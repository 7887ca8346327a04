//! Releases and withdrawals in the background.

use super::client::Client;
use std::{future::Future, pin::pin, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::Notify};

/// How long a runtime may be silent before the background takes over, however long the lease.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// Runs `work` in the background. Only [`Locks::close`](crate::Locks::close) waits for it.
///
/// It begins on the runtime of its caller: the store's connection is there, so the request is sent after the one that
/// it may undo. If that runtime ends first, or is not polled for `patience` (at most 1 s) because it is busy or no
/// longer driven, the background starts the work again. An answer may take as long as the work allows.
pub(super) fn leave<Work>(
    client: &Client,
    callers: &Handle,
    patience: Duration,
    work: impl Fn() -> Work + Send + 'static,
) where
    Work: Future<Output = ()> + Send + 'static,
{
    let patience = patience.min(LONGEST_PATIENCE);
    let polled = Arc::new(Notify::new());
    let first = {
        let (polled, work) = (Arc::clone(&polled), work());
        async move {
            let mut work = pin!(work);
            loop {
                polled.notify_one();
                if tokio::time::timeout(patience / 2, &mut work).await.is_ok() {
                    return;
                }
            }
        }
    };
    // Not among the tasks: on an unpolled runtime, it would never end. It stays when the background takes over: the silent
    // runtime may wake up, send the acquisition late, and must then send this after it.
    let mut first = callers.spawn(first);
    let watch = async move {
        let silent = async { while tokio::time::timeout(patience, polled.notified()).await.is_ok() {} };
        let ended = tokio::select! {
            biased;
            outcome = &mut first => outcome.is_err(),
            () = silent => true,
        };
        if ended {
            work().await;
        }
    };
    client.tasks.spawn_on(watch, &client.store.background.handle());
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Grant, StoreError},
        forward_backend,
        memory::Memory,
        store::{Backend, Release},
    };
    use std::{sync::Arc, time::Duration};
    use tokio::{
        runtime::{Builder, Runtime},
        sync::Notify,
        task::yield_now,
        time::timeout,
    };

    /// Longer than this test may take.
    const LEASE: Duration = Duration::from_hours(1);
    const SOON: Duration = Duration::from_secs(20);

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A store whose answer to a release comes only when the runtime that asked is polled once more.
    #[derive(Clone)]
    struct AnswersLater {
        memory: Memory,
        asked: Arc<Notify>,
    }

    #[async_trait]
    impl Backend for AnswersLater {
        forward_backend!(self => self.memory, except release);

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            self.asked.notify_one();
            yield_now().await;
            self.memory.release(grant).await
        }
    }

    /// As a `static` in a test whose runtime is kept: that is no reason for `close` to wait, whether the release has begun
    /// there or not.
    #[test]
    fn guard_dropped_on_an_unpolled_runtime_is_released() {
        for begins in [false, true] {
            let store = AnswersLater { memory: Memory::new(), asked: Arc::default() };
            let locks = Locks::new(store.clone());
            let kept = runtime();
            kept.block_on(async {
                drop(locks.lock("a").lease(LEASE).acquire().await.unwrap());
                if begins {
                    store.asked.notified().await;
                }
            });
            assert_eq!(locks.names_in_use(), 1, "it was released while its runtime was polled");
            let closed = runtime().block_on(async { timeout(SOON, locks.close()).await });
            assert!(closed.is_ok(), "closing waits; begun: {begins}");
            let next = Locks::new(store).lock("a").wait(SOON);
            let next = runtime().block_on(async { next.acquire().await });
            assert!(next.is_ok(), "begun: {begins}: {next:?}");
            drop(kept);
        }
    }
}
