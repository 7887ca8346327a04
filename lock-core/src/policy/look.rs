//! The holders that keep a waiter waiting: looked up once the wait has become long, and shortly before it ends.

use super::store::Store;
use crate::contract::{Claim, Holder, Moment, StoreError};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// A wait that lasts longer is worth a line in the log.
const LONG: Duration = Duration::from_secs(30);
/// How long the answer for that line may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long before the end of a wait the store is asked who holds the lock: the error names them, and the wait is no longer
/// for it. Of a short wait it is the second half.
const BEFORE_THE_END: Duration = Duration::from_millis(500);

/// When a wait began and when it is over, and the holders found meanwhile.
pub(super) struct Look {
    began: Instant,
    pub(super) end: Option<Instant>,
    /// Since when it contends.
    since: Option<Instant>,
    told: bool,
    /// When the store was last asked who holds the lock, and whether it has answered.
    asked: Option<(Moment, bool)>,
    /// The holders of the lock shortly before the end.
    pub(super) holders: Vec<Holder>,
}

impl Look {
    pub(super) fn new(wait: Option<Duration>) -> Self {
        let began = Instant::now();
        let end = wait.map(|wait| began + wait);
        Self { began, end, since: None, told: false, asked: None, holders: Vec::new() }
    }

    /// Whether the store's failure at that moment, rather than a holder, explains why this wait ended without the lock.
    ///
    /// A store that names no holder and grants nothing may answer reads only (a full disk, a file locked for writing), so
    /// its answer does not excuse a failure younger than `lasts`.
    pub(super) fn is_explained_by(&self, failure: Moment, lasts: Duration) -> bool {
        match self.asked {
            Some((when, answered)) if failure < when && !answered => true,
            Some((when, _)) if failure < when && !self.holders.is_empty() => false,
            _ => Moment::now().since(failure) < lasts,
        }
    }

    /// Looks both times, and never ends.
    ///
    /// Only a contender looks, and before the end only one that has contended for at least half of its wait. So tasks of one
    /// client that wait behind each other do not all ask when they get their turn, or when their waits end together.
    pub(super) async fn go_on(&mut self, store: &Store, claim: &Claim) -> Infallible {
        if !store.capabilities().listing {
            return pending().await;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let end = self.end.filter(|end| *end - since >= since - self.began);
        let last = end.map(|end| end - BEFORE_THE_END.min((end - since) / 2));
        let long = since + LONG;
        if !self.told && last.is_none_or(|last| long < last) {
            sleep_until(long).await;
            self.told = true;
            tell(store, claim, self.began.elapsed()).await;
        }
        let Some(last) = last else { return pending().await };
        sleep_until(last).await;
        let sent = Moment::now();
        self.asked = Some((sent, false));
        // The request for the lock finds out why the store fails. A refusal is an answer too.
        let found = store.holders(&claim.name).await;
        if !found.as_ref().is_err_and(StoreError::is_unavailable) {
            self.asked = Some((sent, true));
        }
        if let Ok(found) = found {
            self.holders = found.into_iter().filter(|holder| holder.claim != Some(claim.id)).collect();
        }
        pending().await
    }
}

/// No warning: a candidate waits for as long as the leader lives, and all is well.
async fn tell(store: &Store, claim: &Claim, waited: Duration) {
    let found = timeout(PATIENCE, store.holders(&claim.name)).await;
    let holder = found.into_iter().flatten().flatten().next().map(|holder| holder.to_string());
    let (name, store) = (&claim.name, &store.name);
    tracing::info!(lock.name = %name, lock.store = %store, ?waited, holder, "still waiting for the lock");
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Claim, Error, Grant, Holder, Name, StoreError},
        forward_backend,
        memory::Memory,
        store::Backend,
    };
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        time::Duration,
    };
    use tokio::time::Instant;

    /// A store that counts requests for holders, and may never answer them.
    struct Asked {
        memory: Memory,
        times: Arc<AtomicUsize>,
        answers: bool,
    }

    #[async_trait]
    impl Backend for Asked {
        forward_backend!(self => self.memory, except holders);

        async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
            self.times.fetch_add(1, Ordering::SeqCst);
            if self.answers { self.memory.holders(name).await } else { pending().await }
        }
    }

    /// A client that holds "a", another one, and how often the other asked for holders.
    fn clients(answers: bool) -> (Locks, Locks, Arc<AtomicUsize>) {
        let (memory, times) = (Memory::new(), Arc::<AtomicUsize>::default());
        let asked = Asked { memory: memory.clone(), times: Arc::clone(&times), answers };
        (Locks::new(memory), Locks::new(asked), times)
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_names_the_holder() {
        let (one, other, times) = clients(true);
        let guard = one.lock("a").label("backup").acquire().await.unwrap();
        for (wait, asked) in [(1, 1), (100, 1), (10_000, 1), (100_000, 2)] {
            let (wait, began) = (Duration::from_millis(wait), Instant::now());
            let error = other.lock("a").wait(wait).acquire().await.unwrap_err();
            assert_eq!(began.elapsed(), wait);
            assert_eq!(times.swap(0, Ordering::SeqCst), asked, "after {wait:?}");
            assert!(error.to_string().contains("held by backup ("), "{error}");
            let Error::Timeout { holders, .. } = error else { panic!("{error}") };
            assert_eq!(holders[0].claim, Some(guard.claim()));
        }
    }

    /// Its tasks wait behind it, and never get to ask the store.
    #[tokio::test(start_paused = true)]
    async fn timeout_names_a_holder_of_the_same_client() {
        let (one, other, times) = clients(true);
        let guard = other.lock("a").label("backup").acquire().await.unwrap();
        tokio::time::sleep(Duration::from_secs(7)).await;
        for wait in [Duration::ZERO, Duration::from_millis(100)] {
            let error = other.lock("a").wait(wait).acquire().await.unwrap_err();
            assert!(
                error.to_string().contains("held by backup (") && error.to_string().ends_with(" for 7s"),
                "{error}"
            );
            let Error::Timeout { holders, .. } = error else { panic!("{error}") };
            assert_eq!((holders[0].claim, holders[0].token), (Some(guard.claim()), Some(guard.token())));
        }
        assert_eq!(times.load(Ordering::SeqCst), 0, "the store was asked");
        guard.release().await.unwrap();
        let _next = one.lock("a").label("restore").acquire().await.unwrap();
        let error = other.lock("a").wait(Duration::from_secs(1)).acquire().await.unwrap_err();
        assert!(error.to_string().contains("held by restore ("), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_behind_a_contender_send_no_requests() {
        let (one, other, times) = clients(true);
        let _guard = one.lock("a").acquire().await.unwrap();
        let waits = (0..100).map(|_| {
            let lock = other.lock("a").wait(Duration::from_secs(40));
            tokio::spawn(async move { lock.acquire().await })
        });
        for wait in waits.collect::<Vec<_>>() {
            assert!(matches!(wait.await.unwrap(), Err(Error::Timeout { .. })));
        }
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_look_delays_neither_timeout_nor_grant() {
        let (one, other, times) = clients(false);
        let guard = one.lock("a").acquire().await.unwrap();
        let (wait, began) = (Duration::from_secs(1), Instant::now());
        let error = other.lock("a").wait(wait).acquire().await.unwrap_err();
        assert_eq!(began.elapsed(), wait);
        assert!(matches!(&error, Error::Timeout { holders, .. } if holders.is_empty()), "{error:?}");
        let lock = other.lock("a").wait(wait);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(wait * 3 / 4).await;
        assert_eq!(times.load(Ordering::SeqCst), 2, "it is being asked");
        guard.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_held());
    }

    /// A store whose first request for a lock fails. Its later answers depend on the kind of outage.
    struct Failing {
        memory: Memory,
        began: AtomicBool,
        then: Then,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Then {
        Hangs,
        ReadsOnly,
        Recovers,
    }

    #[async_trait]
    impl Backend for Failing {
        forward_backend!(self => self.memory, except acquire, holders);

        async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
            if !self.began.swap(true, Ordering::SeqCst) {
                return Err(StoreError::unavailable("the connection broke"));
            }
            if self.then == Then::Recovers { self.memory.acquire(claim).await } else { pending().await }
        }

        async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
            if self.then == Then::Hangs { pending().await } else { self.memory.holders(name).await }
        }
    }

    /// How a wait for "a" ends whose first request failed.
    async fn end_of_a_wait(wait: Duration, then: Then, held: bool) -> Error {
        let memory = Memory::new();
        let holder = Locks::new(memory.clone()).lock("a");
        let _held = if held { Some(holder.acquire().await.unwrap()) } else { None };
        let locks = Locks::new(Failing { memory, began: AtomicBool::new(false), then });
        locks.lock("a").wait(wait).acquire().await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn wait_that_ends_in_an_outage_is_unavailable() {
        for (seconds, then, held) in
            [(2, Then::Hangs, true), (30, Then::Hangs, true), (2, Then::ReadsOnly, false)]
        {
            let error = end_of_a_wait(Duration::from_secs(seconds), then, held).await;
            assert!(matches!(error, Error::Unavailable { .. }), "{then:?}, {seconds} s: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_that_ends_after_an_outage_is_a_timeout() {
        for seconds in [2, 30] {
            let error = end_of_a_wait(Duration::from_secs(seconds), Then::Recovers, true).await;
            let told = matches!(&error, Error::Timeout { holders, .. } if holders.len() == 1);
            assert!(told, "{seconds} s: {error}");
        }
    }
}
