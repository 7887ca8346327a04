//! Work that is left behind: a release or a withdrawal for which nobody waits.

use super::shared::Shared;
use std::{future::Future, time::Duration};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How long a runtime may be busy before the background takes over, however long the lease.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// Does `work` although nobody waits for it; [`Locks::close`](crate::Locks::close) does.
///
/// It begins on the runtime of whoever left it behind, because there a store has its connection, and sends it behind what
/// it may undo. When that runtime ends first, or is too busy to begin within `patience` (1 s at the most), the background begins anew.
pub(super) fn leave<Work>(
    shared: &Shared,
    callers: &Handle,
    patience: Duration,
    work: impl Fn() -> Work + Send + 'static,
) where
    Work: Future<Output = ()> + Send + 'static,
{
    let began = CancellationToken::new();
    let first = {
        let (began, work) = (began.clone(), work());
        async move {
            began.cancel();
            work.await;
        }
    };
    let mut first = shared.tasks.spawn_on(first, callers);
    let watch = async move {
        let too_busy = async {
            if tokio::time::timeout(patience.min(LONGEST_PATIENCE), began.cancelled()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            outcome = &mut first => outcome.is_err(),
            () = too_busy => true,
        };
        if ended {
            work().await;
        }
    };
    shared.tasks.spawn_on(watch, &shared.background.handle());
}

#[cfg(test)]
mod tests {
    use crate::{Locks, Memory};
    use std::{sync::mpsc, thread, time::Duration};
    use tokio::runtime::{Builder, Runtime};

    /// Longer than any of these tests may take.
    const LEASE: Duration = Duration::from_hours(1);
    const SOON: Duration = Duration::from_secs(20);

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn is_soon_free(locks: &Locks, name: &str) -> bool {
        let wait = locks.lock(name).wait(SOON);
        runtime().block_on(async { wait.acquire().await.is_ok() })
    }

    #[test]
    fn what_is_dropped_as_its_runtime_ends_is_released() {
        let locks = Locks::new(Memory::new());
        runtime().block_on(async { drop(locks.lock("a").lease(LEASE).acquire().await.unwrap()) });
        assert!(is_soon_free(&locks, "a"));
    }

    #[test]
    fn a_waiter_that_is_dropped_as_its_runtime_ends_is_withdrawn() {
        let locks = Locks::new(Memory::new());
        let waiting = locks.clone();
        runtime().block_on(async {
            let guard = locks.lock("a").lease(LEASE).acquire().await.unwrap();
            tokio::spawn(async move { waiting.lock("a").acquire().await.map(drop) });
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        });
        assert!(is_soon_free(&locks, "a"));
    }

    #[test]
    fn what_is_dropped_on_a_busy_runtime_is_released() {
        let locks = Locks::new(Memory::new());
        let (busy, stop) = mpsc::channel::<()>();
        let (dropped, was_dropped) = mpsc::channel();
        let theirs = locks.clone();
        let work = thread::spawn(move || {
            runtime().block_on(async {
                drop(theirs.lock("a").lease(LEASE).acquire().await.unwrap());
                dropped.send(()).unwrap();
                stop.recv().unwrap_err();
            });
        });
        was_dropped.recv().unwrap();
        assert!(is_soon_free(&locks, "a"));
        drop(busy);
        work.join().unwrap();
    }
}
