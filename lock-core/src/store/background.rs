//! A thread with its own small runtime, for work that must outlive the callers' runtimes.

use crate::contract::Moment;
use std::{
    future::Future,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Where a client does the work that must go on: renewal, releases in the background, sessions, subscriptions.
///
/// A program's runtimes come and go, as in tests that share a `static`, and computation or blocking calls may keep a
/// runtime busy for longer than a lease. So this work runs on its own thread (clause L8). The thread starts with the
/// first work. It ends with the last clone, or when the last [`Locks`](crate::Locks) that uses it is closed.
///
/// If tokio's time is paused, as in tests, the work runs on the caller's runtime and follows its time.
///
/// Clones use the same thread. A task that runs here must not keep a clone, or the thread never ends: give it a
/// [`Handle`].
#[derive(Clone, Debug, Default)]
pub struct Background(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    thread: Mutex<Option<Thread>>,
    /// How many clients use it: several may share one store.
    uses: AtomicUsize,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    stop: CancellationToken,
    /// Cancelled when the thread has dropped its runtime.
    ended: CancellationToken,
}

impl Background {
    /// Makes one whose thread has not started yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work` in the background.
    pub fn spawn<Work>(&self, work: Work) -> JoinHandle<Work::Output>
    where
        Work: Future + Send + 'static,
        Work::Output: Send + 'static,
    {
        self.handle().spawn(work)
    }

    /// Returns the background's runtime, starting it if necessary; the caller's own if time is paused.
    ///
    /// If the system refuses another thread, returns the caller's runtime and logs a warning.
    ///
    /// # Panics
    ///
    /// If the system refuses another thread and the caller is outside a tokio runtime.
    #[must_use]
    pub fn handle(&self) -> Handle {
        if Moment::are_virtual()
            && let Ok(callers) = Handle::try_current()
        {
            return callers;
        }
        let mut thread = self.0.thread();
        match &*thread {
            Some(thread) => thread.runtime.clone(),
            None => match Thread::start() {
                Ok(started) => thread.insert(started).runtime.clone(),
                Err(error) => {
                    tracing::warn!(%error, "cannot start a thread for renewals; using the caller's runtime");
                    Handle::current()
                }
            },
        }
    }

    /// Returns how many [`Locks`](crate::Locks) use this background and are not closed yet.
    ///
    /// For [`Backend::close`](crate::Backend::close): a store whose clients share a session ends it only with the last
    /// of them. The one that is closing is still counted.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.0.uses.load(Ordering::Relaxed)
    }

    /// Registers one more client.
    pub(crate) fn used(&self) -> Use {
        self.0.uses.fetch_add(1, Ordering::Relaxed);
        Use(self.clone())
    }

    /// Ends the thread, and waits for its end. Work that still runs there is dropped; later work starts it again.
    async fn stop(&self) {
        let thread = self.0.thread().take();
        if let Some(thread) = thread {
            let ended = thread.ended.clone();
            drop(thread);
            ended.cancelled().await;
        }
    }
}

/// A client's use of the background.
pub(crate) struct Use(Background);

impl Use {
    /// Ends this use. The last one also ends the thread, and waits for its end.
    pub(crate) async fn end(self) {
        let background = self.0.clone();
        drop(self);
        if background.0.uses.load(Ordering::Relaxed) == 0 {
            background.stop().await;
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.0.uses.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let thread = Self { runtime: runtime.handle().clone(), stop: stop.clone(), ended: ended.clone() };
        let gone = ended.drop_guard();
        std::thread::Builder::new().name("tenure".to_owned()).spawn(move || {
            let _gone = gone;
            runtime.block_on(stop.cancelled());
            // Even a DNS lookup that hangs does not keep the thread.
            runtime.shutdown_background();
        })?;
        Ok(thread)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Does not wait: the last clone may be dropped on the thread itself.
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::{sync::oneshot, time::timeout};

    #[tokio::test]
    async fn thread_ends_with_its_last_clone_or_use() {
        for used in [true, false] {
            let background = Background::new();
            let (held, dropped) = oneshot::channel::<()>();
            background.spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            let ended = background.0.thread().as_ref().unwrap().ended.clone();
            if used {
                let (one, other) = (background.used(), background.used());
                assert_eq!(background.clients(), 2);
                one.end().await;
                assert_eq!(background.clients(), 1);
                assert!(!ended.is_cancelled(), "another still uses it");
                other.end().await;
                assert!(ended.is_cancelled());
            } else {
                drop(background.clone());
                assert!(!ended.is_cancelled());
                drop(background);
                timeout(Duration::from_secs(10), ended.cancelled()).await.expect("the thread goes on");
            }
            assert!(dropped.await.is_err(), "its work was not dropped");
        }
    }
}
