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
                    // Nobody waits for the outcome any more.
                    () = sender.closed() => Err(Stop::failed("given up")),
                    outcome = work() => outcome,
                }
            }),
            Err(error) => Err(error.into()),
        };
        drop(sender.send(outcome));
    });
    outcome.await.map_err(|_| Stop::failed("the thread of a runtime panicked"))?
}
