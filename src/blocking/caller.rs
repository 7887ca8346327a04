//! The thread that does the work of blocking calls.

use std::{
    fmt,
    future::Future,
    sync::{Arc, mpsc},
};
use tokio::runtime::{Builder, Runtime};
use tracing::Instrument;

/// Carries out futures on a thread of its own, and blocks the caller's until they are done. Clones share the thread,
/// which ends with the last of them.
#[derive(Clone)]
pub(super) struct Caller(Arc<Own>);

/// `None` only while it is dropped.
struct Own(Option<Runtime>);

impl Caller {
    /// Starts the thread.
    ///
    /// # Panics
    ///
    /// If the system refuses another thread, as [`std::thread::spawn`] does.
    pub(super) fn start() -> Self {
        // Not a current-thread runtime, which would stand still between calls and serve no connection.
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("tenure-blocking").enable_all().build();
        Self(Arc::new(Own(Some(runtime.expect("the system refused another thread")))))
    }

    /// Blocks until `work` is done, in the caller's span. The caller may itself be on a thread of a runtime, where
    /// `Runtime::block_on` would panic.
    pub(super) fn wait<Work>(&self, work: Work) -> Work::Output
    where
        Work: Future + Send + 'static,
        Work::Output: Send,
    {
        let runtime = self.0.0.as_ref().expect("a runtime is there until the last caller is dropped");
        let (tell, told) = mpsc::sync_channel(1);
        let work = async move {
            let output = work.await;
            // The caller waits for it.
            let _ = tell.send(output);
        };
        runtime.spawn(work.in_current_span());
        told.recv().expect("tenure's own thread panicked, as reported above")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for its end would panic if the last caller is dropped on a thread of a runtime.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}
