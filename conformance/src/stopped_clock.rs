//! A clock that all but stands still. Nothing that comes meanwhile was asked for because a poll was due: it was pushed.

use crate::check::{Check, Stop};
use std::{
    future::Future,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::Duration,
};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time,
};

/// On the system's clock, and long: only what never comes takes so long.
const LIMIT: Duration = Duration::from_secs(30);
/// How far the clock goes on in all, a millisecond at a time. No store polls so often. But some servers push a change
/// before it can be read, and their clients look again a few times.
const STEPS: usize = 40;

/// Runs `work` while the clock of this runtime, which has one thread, goes on by 40 ms at most. `what` names it in the
/// error.
///
/// # Cancel safety
///
/// Cancel safe: the clock goes on.
///
/// # Errors
///
/// If the work only waits for a timer, or for something that does not come.
pub async fn with_stopped_clock<T>(what: &str, work: impl Future<Output = Check<T>>) -> Check<T> {
    in_steps(STEPS, what, work).await
}

/// Runs `work` while the clock of this runtime goes on by a millisecond now and then: what must sleep for a moment can,
/// and no limit passes early.
pub(crate) async fn with_slow_clock<T>(what: &str, work: impl Future<Output = Check<T>>) -> Check<T> {
    in_steps(usize::MAX, what, work).await
}

async fn in_steps<T>(steps: usize, what: &str, work: impl Future<Output = Check<T>>) -> Check<T> {
    const PAUSE: Duration = Duration::from_millis(10);
    let mut stopped = StoppedClock::begin();
    let go_on = async {
        for _ in 0..steps {
            if spawn_blocking(|| std::thread::sleep(PAUSE)).await.is_err() {
                break;
            }
            time::advance(Duration::from_millis(1)).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        outcome = work => outcome,
        never = go_on => never,
        _ = &mut stopped.limit => Err(Stop::failed(format_args!(
            "{what}: got nothing within {LIMIT:?}, while the client's timers stood still, expected an answer or a push"
        ))),
    }
}

/// Goes on when this is dropped.
struct StoppedClock {
    limit: JoinHandle<()>,
    _over: Sender<()>,
}

impl StoppedClock {
    fn begin() -> Self {
        let (over, wait) = channel();
        time::pause();
        // Tokio advances a paused clock when there is nothing else to do, but not while a blocking task runs.
        let limit = spawn_blocking(move || match wait.recv_timeout(LIMIT) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        });
        Self { limit, _over: over }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        time::resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{sync::oneshot, time::Instant};

    #[tokio::test]
    async fn no_poll_is_due_while_the_clock_stands_still() {
        let (tell, told) = oneshot::channel();
        let poll = tokio::spawn(time::sleep(Duration::from_millis(100)));
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(1));
            tell.send(()).unwrap();
        });
        let passed = with_stopped_clock("a word from a thread", async {
            let before = Instant::now();
            told.await?;
            Check::Ok(before.elapsed())
        });
        let passed = passed.await.unwrap();
        assert!(passed <= Duration::from_millis(STEPS as u64), "the clock went on by {passed:?}");
        assert!(!poll.is_finished(), "the timer was skipped to");
        poll.abort();
    }

    #[tokio::test]
    async fn a_client_may_look_again_after_a_push() {
        let looked = with_stopped_clock("a second look", async {
            time::sleep(Duration::from_millis(2)).await;
            Check::Ok(())
        });
        looked.await.unwrap();
    }
}
