//! Opening the one session of a client.

use crate::contract::{Moment, StoreError};
use std::{future::Future, sync::Arc};
use tokio::sync::Mutex;

/// Opens a client's session, one attempt at a time.
///
/// An attempt that gets no answer fails for all who have come meanwhile: if each tried in turn, the last would wait for all
/// the others.
#[derive(Debug, Default)]
pub struct Opening(Mutex<Option<Failure>>);

/// When the last attempt without an answer began, and why it failed.
#[derive(Debug)]
struct Failure {
    began: Moment,
    error: Arc<StoreError>,
}

impl Opening {
    /// Returns the `current` session, or the one that `open` opens. `asked` is when the caller came.
    ///
    /// Run it in a task: a caller that is not polled would block the others.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of `open`, also from an attempt that began after `asked`.
    pub async fn session<S>(
        &self,
        asked: Moment,
        current: impl Fn() -> Option<S>,
        open: impl Future<Output = Result<S, StoreError>>,
    ) -> Result<S, StoreError> {
        let mut failed = self.0.lock().await;
        if let Some(session) = current() {
            return Ok(session);
        }
        if let Some(Failure { began, error }) = &*failed
            && asked < *began
        {
            return Err(StoreError::unavailable(Arc::clone(error)));
        }
        let began = Moment::now();
        open.await.map_err(|error| {
            if !error.is_unavailable() {
                return error;
            }
            let Failure { error, .. } = failed.insert(Failure { began, error: Arc::new(error) });
            StoreError::unavailable(Arc::clone(error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };
    use tokio::time::{Instant, sleep};

    /// Ten callers come while an attempt fails after a second: one more attempt answers all of them.
    #[tokio::test(start_paused = true)]
    async fn callers_share_a_failure() {
        let (opening, attempts) = (Arc::new(Opening::default()), Arc::new(AtomicU32::new(0)));
        let start = Instant::now();
        let callers = (0..11_u64).map(|after| {
            let (opening, attempts) = (Arc::clone(&opening), Arc::clone(&attempts));
            tokio::spawn(async move {
                sleep(Duration::from_millis(after)).await;
                let open = async {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                    Err::<(), _>(StoreError::unavailable("silent"))
                };
                opening.session(Moment::now(), || None, open).await.unwrap_err().to_string()
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert_eq!(caller.await.unwrap(), "silent");
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 2);
        assert!(start.elapsed() < Duration::from_millis(2_100), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn session_that_is_there_is_not_opened_again() {
        let opened = Opening::default().session(Moment::now(), || Some(1), async { Ok(2) }).await;
        assert_eq!(opened.unwrap(), 1);
    }
}
