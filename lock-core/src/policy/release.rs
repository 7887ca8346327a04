//! Giving a grant back, and taking a claim back that was given up.

use super::{chore, holding::Holding, pauses::Pauses, queue::Place, shared::Shared};
use crate::{Capabilities, Claim, Doing, Error, LossCause, Moment, Release, StoreError, Wakeup, lease};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Handle;

/// How long a client takes to ask again when the store tells it of a release: one hop there, one back.
const TOLD_AND_ASKED: Duration = Duration::from_millis(20);

/// A release on its way. Whatever is not finished when it is dropped goes on in the background.
pub(crate) struct Releasing(Option<Arc<Unfinished>>);

struct Unfinished {
    hold: Arc<Holding>,
    /// Passes to the next local waiter when the store has answered.
    place: Mutex<Option<Place>>,
    /// Until when the lease runs at least.
    until: Moment,
    /// Whether an earlier request may have been carried out although its reply was lost.
    asked_before: AtomicBool,
}

impl Releasing {
    pub(crate) fn new(hold: Arc<Holding>, place: Option<Place>, until: Moment) -> Self {
        let (place, asked_before) = (Mutex::new(place), AtomicBool::new(false));
        Self(Some(Arc::new(Unfinished { hold, place, until, asked_before })))
    }

    /// Tells the store, and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the release goes on in the background.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        let Some(unfinished) = &self.0 else { return Ok(()) };
        let outcome = unfinished.tell_store().await;
        self.0 = None;
        outcome
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(unfinished) = self.0.take() {
            let hold = Arc::clone(&unfinished.hold);
            let patience = lease::renewal_patience(hold.grant.lease);
            chore::leave(&hold.shared, &hold.callers, patience, move || {
                let unfinished = Arc::clone(&unfinished);
                async move {
                    if let Err(error) = unfinished.tell_store().await {
                        let name = &unfinished.hold.grant.name;
                        tracing::debug!(lock.name = %name, %error, "a release in the background did not succeed");
                    }
                    drop(unfinished.take_place());
                }
            });
        }
    }
}

impl Unfinished {
    fn take_place(&self) -> Option<Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn tell_store(&self) -> Result<(), Error> {
        let (shared, grant) = (&self.hold.shared, self.hold.grant_now());
        let mut pauses = Pauses::new();
        loop {
            let request = shared.backend.release(&grant);
            let again = self.asked_before.swap(true, Ordering::Relaxed);
            let error = match tokio::time::timeout(lease::renewal_patience(grant.lease), request).await {
                Ok(Ok(Release::Released { awaited })) => {
                    tracing::debug!(lock.name = %grant.name, token = %grant.token, lock.store = %shared.store, "lock released");
                    if awaited {
                        self.let_others_in();
                    }
                    return Ok(());
                }
                // The reply to the first request may have been lost: then this is what it looks like. A forced release is
                // certain, since the store remembers it only of those whom it put out.
                Ok(Ok(Release::NotHeld(cause)))
                    if again && cause != LossCause::Forced && !self.until.has_passed() =>
                {
                    return Ok(());
                }
                Ok(Ok(Release::NotHeld(cause))) => return Err(shared.lost(&grant.name, cause)),
                Ok(Err(error)) => error,
                Err(_) => StoreError::unavailable("no answer to the release"),
            };
            if !error.is_unavailable() || self.until.has_passed() {
                return Err(Error::from_store(&shared.store, Doing::Releasing(grant.name.clone()), error));
            }
            tracing::warn!(lock.name = %grant.name, lock.store = %shared.store, %error, "a release is tried again");
            pauses.pause().await;
        }
    }

    /// Another client waits and must ask again to get in: this process lets one round of asking pass before it contends
    /// for the name again, or a loop that relocks would keep the other out for ever.
    fn let_others_in(&self) {
        // Where another of this process contends already, it asks in rounds like everybody.
        let Some(turn) = self.take_place().and_then(Place::turn) else { return };
        let Capabilities { wakeup, ask_again, .. } = self.hold.shared.backend.capabilities();
        let one_round = if wakeup == Wakeup::Poll { ask_again } else { ask_again.min(TOLD_AND_ASKED) };
        let (hold, closing) = (Arc::clone(&self.hold), self.hold.shared.closing.clone());
        self.hold.shared.tasks.spawn_on(
            async move {
                tokio::select! {
                    () = tokio::time::sleep(one_round) => {}
                    () = closing.cancelled() => {}
                }
                drop(turn);
                drop(hold);
            },
            &self.hold.background,
        );
    }
}

/// A claim that the store may know of. Unless it is [settled](Self::settle), dropping it withdraws it in the background.
pub(crate) struct OpenClaim {
    shared: Arc<Shared>,
    callers: Handle,
    claim: Claim,
    open: bool,
    /// Whether the caller was told that the store refuses what it is asked.
    refused: bool,
}

impl OpenClaim {
    pub(crate) fn new(shared: &Arc<Shared>, claim: Claim) -> Self {
        Self { shared: Arc::clone(shared), callers: Handle::current(), claim, open: true, refused: false }
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The store neither grants this claim nor queues it, or its grant has found a holder.
    pub(crate) fn settle(&mut self) {
        self.open = false;
    }

    /// The caller learns of this error: a withdrawal that the store refuses as well is no news.
    pub(crate) fn failed(&mut self, error: &StoreError) {
        self.refused = !error.is_unavailable();
    }

    /// Withdraws the claim, and waits until the store has confirmed it or the claim's lease has run out.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the withdrawal goes on in the background.
    pub(crate) async fn withdraw(mut self) {
        withdraw(&self.shared, &self.claim, self.refused).await;
        self.open = false;
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        if self.open {
            let (shared, claim, refused) = (Arc::clone(&self.shared), self.claim.clone(), self.refused);
            let patience = lease::renewal_patience(claim.lease);
            chore::leave(&self.shared, &self.callers, patience, move || {
                let (shared, claim) = (Arc::clone(&shared), claim.clone());
                async move { withdraw(&shared, &claim, refused).await }
            });
        }
    }
}

async fn withdraw(shared: &Shared, claim: &Claim, refused: bool) {
    let give_up = Moment::now() + claim.lease;
    let mut pauses = Pauses::new();
    loop {
        let request = shared.backend.withdraw(claim);
        let error = match tokio::time::timeout(lease::renewal_patience(claim.lease), request).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => StoreError::unavailable("no answer to the withdrawal"),
        };
        if !error.is_unavailable() || give_up.has_passed() {
            let (name, id) = (&claim.name, claim.id);
            let store = &shared.store;
            if refused && !error.is_unavailable() {
                tracing::debug!(lock.name = %name, claim = %id, lock.store = %store, %error, "a claim that was refused could not be withdrawn");
            } else {
                tracing::warn!(lock.name = %name, claim = %id, lock.store = %store, %error, "a claim could not be withdrawn; its lease runs out by itself");
            }
            return;
        }
        pauses.pause().await;
    }
}

/// Takes back quietly what a lost hold may have left in the store.
pub(crate) fn clean_up(hold: Arc<Holding>) {
    let until = Moment::now() + hold.grant.lease;
    drop(Releasing::new(hold, None, until));
}

/// The outcome for a guard whose hold was lost before it was released.
pub(crate) fn lost(hold: &Holding, cause: LossCause) -> Error {
    hold.shared.lost(&hold.grant.name, cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, Backend, Grant, Lock, Locks, Memory, Renewal, async_trait, forward_backend};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::{Instant, timeout};
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// A store without a queue, in which another client always waits.
    #[derive(Clone)]
    struct Awaited {
        memory: Memory,
        wakeup: Wakeup,
        closed: Arc<AtomicBool>,
    }

    impl Awaited {
        fn new(wakeup: Wakeup) -> Self {
            Self { memory: Memory::new(), wakeup, closed: Arc::default() }
        }
    }

    #[async_trait]
    impl Backend for Awaited {
        forward_backend!(self => self.memory, except capabilities, acquire, release, close);

        fn capabilities(&self) -> Capabilities {
            Capabilities { wakeup: self.wakeup, ask_again: HOUR, permits: true, ..Capabilities::POLLED }
        }

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            self.memory.release(grant).await.map(|_| Release::Released { awaited: true })
        }

        async fn close(&self) {
            self.closed.store(true, Ordering::SeqCst);
        }
    }

    /// How long a client that relocks at once is kept out.
    async fn kept_out(wakeup: Wakeup, lock: impl Fn(&Locks) -> Lock) -> Duration {
        let locks = Locks::new(Awaited::new(wakeup));
        lock(&locks).acquire().await.unwrap().release().await.unwrap();
        let released = Instant::now();
        drop(lock(&locks).acquire().await.unwrap());
        released.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_relocking_client_gives_others_one_round() {
        assert_eq!(kept_out(Wakeup::Poll, |locks| locks.lock("a")).await, HOUR);
        assert_eq!(kept_out(Wakeup::Push, |locks| locks.lock("a")).await, TOLD_AND_ASKED);
        assert_eq!(kept_out(Wakeup::Poll, |locks| locks.semaphore("a", 2).permits(2)).await, HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_let_in_first_do_not_keep_the_store_open() {
        let store = Awaited::new(Wakeup::Poll);
        let locks = Locks::new(store.clone());
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the other was not let in first");
        timeout(Duration::from_secs(1), locks.close()).await.expect("close waited for the round");
        assert!(store.closed.load(Ordering::SeqCst), "the store was not closed");
    }

    /// A store that may not be written: it refuses every claim, and would refuse to take one back.
    struct ReadOnly;

    #[async_trait]
    impl Backend for ReadOnly {
        fn store(&self) -> &'static str {
            "read-only"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::POLLED
        }

        async fn try_acquire(&self, _: &Claim) -> Result<Attempt, StoreError> {
            Err(StoreError::failed("it may not be written"))
        }

        async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
            Err(StoreError::failed("it may not be written"))
        }

        async fn renew(&self, _: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            Err(StoreError::failed("it may not be written"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_caller_learns_from_the_error_is_not_told_twice() {
        let told = Arc::new(AtomicBool::new(false));
        let layer = tracing_subscriber::fmt::layer().with_writer({
            let told = Arc::clone(&told);
            move || {
                told.store(true, Ordering::SeqCst);
                std::io::sink()
            }
        });
        let warnings = tracing_subscriber::registry().with(layer).with(LevelFilter::WARN);
        let _here = tracing::subscriber::set_default(warnings);
        let locks = Locks::new(ReadOnly);
        assert!(locks.lock("a").try_acquire().await.is_err());
        assert!(locks.lock("a").acquire().await.is_err());
        locks.close().await;
        assert!(!told.load(Ordering::SeqCst));
    }

    /// A store whose first answer to a release is lost, and where the holder was put out by force before it came.
    struct PutOut {
        memory: Memory,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for PutOut {
        forward_backend!(self => self.memory, except release);

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            if self.asked.swap(true, Ordering::SeqCst) {
                return self.memory.release(grant).await;
            }
            self.memory.force_release(&grant.name).await?;
            Err(StoreError::unavailable("the answer was lost"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_forced_release_never_looks_like_ones_own() {
        let locks = Locks::new(PutOut { memory: Memory::new(), asked: AtomicBool::new(false) });
        let released = locks.lock("a").acquire().await.unwrap().release().await;
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
    }
}
