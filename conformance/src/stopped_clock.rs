//! A clock that stands still. Nothing that comes meanwhile was asked for because a timer ran out: it was pushed.

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

/// Runs `work` while the clock of this runtime, which has one thread, stands still. `what` names it in the error.
///
/// # Errors
///
/// If the work only waits for a timer, or for something that does not come.
pub(crate) async fn with_stopped_clock<T>(what: &str, work: impl Future<Output = Check<T>>) -> Check<T> {
    let mut stopped = StoppedClock::begin();
    tokio::select! {
        biased;
        outcome = work => outcome,
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
    async fn no_timer_runs_out_while_the_clock_stands_still() {
        let (tell, told) = oneshot::channel();
        let timer = tokio::spawn(time::sleep(Duration::from_hours(1)));
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            tell.send(()).unwrap();
        });
        let before = with_stopped_clock("a word from a thread", async {
            let now = Instant::now();
            told.await?;
            Check::Ok(now == Instant::now())
        });
        assert!(before.await.unwrap(), "the clock went on");
        assert!(!timer.is_finished(), "the timer was skipped to");
        timer.abort();
    }
}
