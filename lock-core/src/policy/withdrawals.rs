//! Withdrawals: asked once where the claim was dropped, and repeated by one task for all of a client's claims.

use super::{pauses::Pauses, store::Store};
use crate::contract::{Claim, Moment, StoreError, lease};
use futures_util::future::join_all;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Semaphore, task::AbortHandle, time::timeout};
use tokio_util::task::TaskTracker;

/// How long one request may take, however long the lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the others wait for one that is slow to answer. Then it goes on beside them.
///
/// There is no longer pause, even if it fails in the end: until then it is unknown whether the store is down or hangs
/// for this name alone, and the others must not wait for that. So a store that is slow to fail is asked three times a
/// second.
const SLOW: Duration = Duration::from_millis(300);
/// How many are on their way at a time. While the store does not answer, each goes alone until it is slow.
///
/// One that hangs is given up after a sixth of its lease, or a second if that is longer. About three a second get their
/// turn, so with leases of 30 s the others do in time behind some 80 that hang, and with shorter ones behind fewer.
/// Behind more, some may end only with their leases (clause W3).
const AT_ONCE: usize = 16;

/// A claim to withdraw.
#[derive(Clone)]
pub(super) struct Withdrawal {
    claim: Claim,
    /// Whether the caller got an error that the store refuses requests.
    refused: bool,
    /// When the claim's lease has expired.
    end: Moment,
}

/// The outcome of one request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The store has answered.
    Answered,
    /// It has not, and is to be asked again.
    Again,
    /// It has not, and the claim's lease has expired.
    TooLate,
}

impl Withdrawal {
    pub(super) fn of(claim: Claim, refused: bool) -> Self {
        let end = Moment::now() + claim.lease;
        Self { claim, refused, end }
    }

    pub(super) async fn ask(&self, store: &Store) -> Asked {
        let patience = lease::farewell_patience(self.claim.lease, self.end).min(PATIENCE);
        let error = match timeout(patience, store.withdraw(&self.claim)).await {
            Ok(Ok(())) => return Asked::Answered,
            Ok(Err(error)) => error,
            Err(_) => StoreError::unavailable("no answer to the withdrawal"),
        };
        if error.is_unavailable() && !self.end.has_passed() {
            return Asked::Again;
        }
        let (name, id, store) = (&self.claim.name, self.claim.id, &store.name);
        if self.refused && !error.is_unavailable() {
            tracing::debug!(lock.name = %name, claim = %id, lock.store = %store, %error, "could not withdraw a refused claim");
        } else {
            tracing::warn!(lock.name = %name, claim = %id, lock.store = %store, %error, "could not withdraw a claim; it ends when its lease expires");
        }
        if error.is_unavailable() { Asked::TooLate } else { Asked::Answered }
    }
}

/// The withdrawals that failed. In an outage every try leaves one behind, and a store that comes back is not to be met
/// by all of them at once.
pub(crate) struct Withdrawals {
    store: Arc<Store>,
    failed: Mutex<Failed>,
    /// Each request has one until it ends, so that an outage leaves no crowd behind.
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct Failed {
    claims: VecDeque<Withdrawal>,
    /// Whether the store answers: the request that ended last did not fail.
    answers: bool,
    /// The task that repeats them, until it finds none.
    task: Option<AbortHandle>,
}

impl Withdrawals {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, failed: Mutex::default(), slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats this one in a background task, among `tasks`, until it succeeds or the claim's lease has expired.
    pub(super) fn repeat(self: &Arc<Self>, withdrawal: Withdrawal, tasks: &TaskTracker) {
        let background = self.store.background.handle();
        let mut failed = self.failed();
        failed.claims.push_back(withdrawal);
        failed.answers = false;
        // Its runtime may have gone away.
        if failed.task.as_ref().is_none_or(AbortHandle::is_finished) {
            let (all, among) = (Arc::clone(self), tasks.clone());
            let task = tasks.spawn_on(async move { all.run(&among).await }, &background);
            failed.task = Some(task.abort_handle());
        }
    }

    /// Asks about one after another, and about several at a time while the store answers.
    async fn run(self: &Arc<Self>, tasks: &TaskTracker) {
        let mut pauses = Pauses::new();
        while let Some(some) = self.take() {
            let asked = join_all(some.into_iter().map(|one| self.ask(one, tasks))).await;
            if asked.contains(&Some(Asked::Again)) {
                pauses.pause().await;
            } else if asked.contains(&Some(Asked::Answered)) {
                pauses = Pauses::new();
            }
        }
    }

    /// Asks about this one, and again later if that fails. Returns `None` if it is slow to answer, and then goes on:
    /// one that hangs for its name alone does not keep the others waiting.
    async fn ask(self: &Arc<Self>, one: Withdrawal, tasks: &TaskTracker) -> Option<Asked> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let (all, among) = (Arc::clone(self), tasks.clone());
        let asked = tasks.spawn(async move {
            let _slot = slot;
            let asked = one.ask(&all.store).await;
            match asked {
                Asked::Answered => all.failed().answers = true,
                Asked::Again => all.repeat(one, &among),
                Asked::TooLate => {}
            }
            asked
        });
        timeout(SLOW, asked).await.ok()?.ok()
    }

    /// Takes as many as may be sent at a time, the oldest first, without those whose leases have expired. Returns
    /// `None` if none is left, and then the task ends.
    fn take(&self) -> Option<Vec<Withdrawal>> {
        let (now, mut some, mut expired) = (Moment::now(), Vec::new(), 0_usize);
        {
            let mut failed = self.failed();
            let at_most = if failed.answers { AT_ONCE } else { 1 };
            while some.len() < at_most
                && let Some(one) = failed.claims.pop_front()
            {
                if now < one.end {
                    some.push(one);
                } else {
                    expired += 1;
                }
            }
            if some.is_empty() {
                failed.task = None;
            }
        }
        if expired > 0 {
            tracing::warn!(lock.store = %self.store.name, count = expired, "some abandoned acquisitions could not be withdrawn before their leases expired");
        }
        (!some.is_empty()).then_some(some)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Claim, Name, StoreError},
        forward_backend,
        store::{Attempt, Backend, hung::Hung},
    };
    use std::{
        collections::HashSet,
        future::pending,
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        time::Duration,
    };
    use tokio::{
        runtime::Handle,
        time::{Instant, sleep},
    };

    const MINUTE: Duration = Duration::from_mins(1);
    const TRIES: usize = 10_000;

    /// A store that is down for a while. When it is back, another program has locked the rows of some names.
    #[derive(Clone, Default)]
    struct Down(Arc<Seen>);

    #[derive(Default)]
    struct Seen {
        is_back: AtomicBool,
        asked: AtomicUsize,
        at_once: AtomicUsize,
        most: AtomicUsize,
        withdrawn: Mutex<HashSet<Name>>,
        /// Nothing is heard of the names with smaller numbers.
        hanging: AtomicUsize,
        /// Each request that hangs has one.
        hangs: Arc<()>,
        most_hang: AtomicUsize,
    }

    #[async_trait]
    impl Backend for Down {
        forward_backend!(self => Hung, except try_acquire, withdraw);

        async fn try_acquire(&self, _: &Claim) -> Result<Attempt, StoreError> {
            Err(StoreError::unavailable("connection refused"))
        }

        /// Of the name `0` it always says that it is busy.
        async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
            let Seen { is_back, asked, at_once, most, withdrawn, hanging, hangs, most_hang } = &*self.0;
            asked.fetch_add(1, Ordering::Relaxed);
            if !is_back.load(Ordering::Relaxed) || claim.name.as_str() == "0" {
                return Err(StoreError::unavailable("no answer"));
            }
            if claim.name.parse::<usize>().unwrap() < hanging.load(Ordering::Relaxed) {
                let _hangs = Arc::clone(hangs);
                most_hang.fetch_max(Arc::strong_count(hangs) - 1, Ordering::Relaxed);
                return pending().await;
            }
            most.fetch_max(at_once.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            sleep(Duration::from_millis(1)).await;
            at_once.fetch_sub(1, Ordering::Relaxed);
            withdrawn.lock().unwrap().insert(claim.name.clone());
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn withdrawals_after_an_outage_are_sent_a_few_at_a_time() {
        let store = Down::default();
        let (locks, seen) = (Locks::new(store.clone()), &store.0);
        for number in 0..TRIES {
            assert!(locks.lock(number.to_string()).lease(MINUTE).try_acquire().await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        let tasks = Handle::current().metrics().num_alive_tasks();
        assert!(tasks < 10, "{tasks} tasks");
        let before = seen.asked.load(Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        let asked = seen.asked.load(Ordering::Relaxed) - before;
        assert!((1..20).contains(&asked), "asked {asked} times in 10 s");
        seen.is_back.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(seen.withdrawn.lock().unwrap().len(), TRIES - 1);
        let most = seen.most.load(Ordering::Relaxed);
        assert!((2..=super::AT_ONCE).contains(&most), "{most} at a time");
        let began = Instant::now();
        locks.close().await;
        let took = began.elapsed();
        assert!(took > MINUTE / 3 && took < MINUTE, "it was not asked for until its lease expired: {took:?}");
    }

    /// Many more than are on their way at a time, and all of them ahead of the others.
    #[tokio::test(start_paused = true)]
    async fn hanging_withdrawals_delay_others_little() {
        let (hanging, others) = (super::AT_ONCE * 3, 100);
        let store = Down::default();
        let (locks, seen) = (Locks::new(store.clone()), &store.0);
        seen.hanging.store(hanging, Ordering::Relaxed);
        for number in 0..hanging + others {
            assert!(locks.lock(number.to_string()).lease(MINUTE).try_acquire().await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        seen.is_back.store(true, Ordering::Relaxed);
        sleep(MINUTE / 2).await;
        assert_eq!(seen.withdrawn.lock().unwrap().len(), others);
        let most = seen.most_hang.load(Ordering::Relaxed);
        assert_eq!(most, super::AT_ONCE, "so many hung at a time");
        let began = Instant::now();
        locks.close().await;
        assert!(began.elapsed() < MINUTE, "closing took {:?}", began.elapsed());
    }
}
