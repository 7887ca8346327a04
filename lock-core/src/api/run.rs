//! Work that ends when its lock is lost.

use crate::{
    api::Lock,
    contract::{Error, LossCause},
    policy::{guard::Guard, hold::Hold},
};
use futures_core::Stream;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

impl Lock {
    /// Acquires the lock, runs `work` while it is held, and releases it.
    ///
    /// The work is dropped at the moment the lock is lost: when the holder's deadline passes, which is before the
    /// store would grant the lock to another. Code that blocks the thread cannot be stopped this way; let it check
    /// [`Hold::is_held`]. A panic in the work releases the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and then releases the lock in the background.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), and [`Error::Lost`] if the lock was lost before the work was done and the
    /// lock was released. The work's result is then dropped, because another holder may have worked meanwhile.
    ///
    /// If the store cannot be told of the release, the result counts: the lock was held until the work was done, and
    /// becomes free when its lease expires.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled, and if the work panics.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// let rows = locks.lock("etl").run(|hold| async move { format!("loaded with token {}", hold.token()) }).await?;
    /// # assert!(rows.starts_with("loaded"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<Work: Future>(&self, work: impl FnOnce(Hold) -> Work) -> Result<Work::Output, Error> {
        run_under(self.acquire().await?, work).await
    }

    /// Acquires the lock, and holds it until the stream that `items` makes has ended: [`run`](Self::run) for a stream
    /// of results.
    ///
    /// If the lock is lost, the stream is dropped and [`Error::Lost`] is the last item. After the stream's own end the
    /// lock is released; if that comes too late, [`Error::Lost`] is the last item.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream releases the lock in the background.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// use futures_util::{StreamExt, stream};
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    ///
    /// let mut feed = locks.lock("feed").run_stream(|_hold| stream::iter(1..=3)).await?;
    /// while let Some(item) = feed.next().await {
    ///     println!("{}", item?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_stream<Items: Stream>(
        &self,
        items: impl FnOnce(Hold) -> Items,
    ) -> Result<HeldStream<Items>, Error> {
        let guard = self.acquire().await?;
        let items = Box::pin(items(guard.hold()));
        let lost = Box::pin(guard.lost());
        Ok(HeldStream { phase: Phase::Running { items, lost, guard } })
    }
}

/// Runs `work` while the lock is held, and releases it.
pub(crate) async fn run_under<Work: Future>(
    guard: Guard,
    work: impl FnOnce(Hold) -> Work,
) -> Result<Work::Output, Error> {
    let lost = guard.lost();
    let outcome = {
        let work = work(guard.hold());
        tokio::select! {
            biased;
            _ = lost => None,
            output = work => Some(output),
        }
    };
    match outcome {
        Some(output) => counting(guard.release().await).map(|()| output),
        None => Err(guard.lost_error()),
    }
}

/// How the release after work ended. The work counts although the store could not be told: the lock was held until then.
#[doc(hidden)]
pub fn counting(released: Result<(), Error>) -> Result<(), Error> {
    match released {
        Err(error @ (Error::Unavailable { .. } | Error::Store { .. })) => {
            tracing::warn!(%error, "the work is done, but its lock could not be released");
            Ok(())
        }
        outcome => outcome,
    }
}

/// A stream whose items are produced while a lock is held. Made by [`Lock::run_stream`].
#[must_use = "dropping a held stream releases its lock"]
pub struct HeldStream<Items> {
    phase: Phase<Items>,
}

type Boxed<Output> = Pin<Box<dyn Future<Output = Output> + Send + Sync>>;

enum Phase<Items> {
    // The items come first, so that they are dropped before the guard releases the lock.
    Running { items: Pin<Box<Items>>, lost: Boxed<LossCause>, guard: Guard },
    Releasing(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>),
    Over,
}

impl<Items: Stream> Stream for HeldStream<Items> {
    type Item = Result<Items::Item, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.phase {
                Phase::Running { items, lost, guard } => {
                    if lost.as_mut().poll(context).is_ready() {
                        let error = guard.lost_error();
                        self.phase = Phase::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                    if let Some(item) = ready!(items.as_mut().poll_next(context)) {
                        return Poll::Ready(Some(Ok(item)));
                    }
                }
                Phase::Releasing(release) => {
                    let outcome = ready!(release.as_mut().poll(context));
                    self.phase = Phase::Over;
                    return Poll::Ready(outcome.err().map(Err));
                }
                Phase::Over => return Poll::Ready(None),
            }
            if let Phase::Running { items, guard, .. } = std::mem::replace(&mut self.phase, Phase::Over) {
                drop(items);
                self.phase = Phase::Releasing(Box::pin(async move { counting(guard.release().await) }));
            }
        }
    }
}

impl<Items> fmt::Debug for HeldStream<Items> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.phase {
            Phase::Running { .. } => "running",
            Phase::Releasing(_) => "releasing",
            Phase::Over => "over",
        };
        f.debug_struct("HeldStream").field("phase", &phase).finish_non_exhaustive()
    }
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
    use futures_util::{StreamExt, stream};

    /// A store that cannot be told of a release.
    struct Refuses(Memory, fn() -> StoreError);

    #[async_trait]
    impl Backend for Refuses {
        forward_backend!(self => self.0, except release);

        async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
            Err(self.1())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_counts_if_its_release_fails() {
        for error in [|| StoreError::unavailable("down"), || StoreError::failed("forbidden")] {
            let locks = Locks::new(Refuses(Memory::new(), error));
            assert_eq!(locks.lock("a").run(async |_| 42).await.unwrap(), 42);
            assert_eq!(locks.all(["a", "b"]).run(async |_| 42).await.unwrap(), 42);
            let items = locks.lock("a").run_stream(|_| stream::iter(1..=3)).await.unwrap();
            let items: Vec<_> = items.map(Result::unwrap).collect().await;
            assert_eq!(items, [1, 2, 3]);
            let error = locks.lock("a").acquire().await.unwrap().release().await.unwrap_err();
            assert!(!error.is_retryable(), "{error:?}");
        }
    }
}
