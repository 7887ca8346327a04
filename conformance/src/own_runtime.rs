//! A runtime that ends, like that of a `#[tokio::test]`, or one of several in a program.

use crate::check::{Check, Stop};
use std::{future::Future, thread};
use tokio::{runtime::Builder, sync::oneshot};

/// Runs `work` in a runtime and on a thread of its own, and returns its outcome. By then both have ended, with
/// everything that was spawned there.
pub(crate) async fn in_own_runtime<T, Work>(work: impl FnOnce() -> Work + Send + 'static) -> Check<T>
where
    T: Send + 'static,
    Work: Future<Output = Check<T>>,
{
    let (mut sender, outcome) = oneshot::channel();
    thread::spawn(move || {
        let outcome = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(async {
                tokio::select! {
                    // The caller stopped waiting for the outcome.
                    () = sender.closed() => Err(Stop::failed("the case stopped waiting for its runtime")),
                    outcome = work() => outcome,
                }
            }),
            Err(error) => Err(error.into()),
        };
        drop(sender.send(outcome));
    });
    outcome.await.map_err(|_| Stop::failed("the work in a runtime of its own panicked"))?
}
