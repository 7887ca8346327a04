//! Chains of holds with one grant: their length, their members, and their ends.

use crate::{
    api::{Lock, Locks},
    async_trait,
    contract::{Capability, Claim, ClaimId, Error, Grant, LossCause, Moment, Name, Owner, StoreError},
    forward_backend,
    memory::Memory,
    policy::guard::Guard,
    store::{Attempt, Backend, Release, Renewal, hung::Hung},
};
use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    task::{JoinHandle, yield_now},
    time::{sleep, timeout},
};

const LEASE: Duration = Duration::from_secs(9);
const SOON: Duration = Duration::from_secs(1);

/// Memory that takes its time, with awaits before and after each request, and counts grants and releases.
#[derive(Clone, Default)]
struct Counted {
    memory: Memory,
    grants: Arc<AtomicUsize>,
    releases: Arc<AtomicUsize>,
}

async fn slowly<T>(answer: impl Future<Output = T>) -> T {
    yield_now().await;
    let answer = answer.await;
    yield_now().await;
    answer
}

#[async_trait]
impl Backend for Counted {
    forward_backend!(self => self.memory, except try_acquire, acquire, release);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.grants.fetch_add(1, Relaxed);
        slowly(self.memory.try_acquire(claim)).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.grants.fetch_add(1, Relaxed);
        slowly(self.memory.acquire(claim)).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.releases.fetch_add(1, Relaxed);
        slowly(self.memory.release(grant)).await
    }
}

impl Counted {
    fn with_successors(&self, successors: u32) -> Locks {
        Locks::with_lease(self.clone(), LEASE).unwrap().with_succession(successors).unwrap()
    }

    fn requests(&self) -> (usize, usize) {
        (self.grants.load(Relaxed), self.releases.load(Relaxed))
    }

    /// Stops the test unless "a" is free and not awaited once the client has closed.
    async fn is_left_free(&self, locks: &Locks, what: &str) {
        timeout(SOON, locks.close()).await.unwrap_or_else(|_| panic!("{what}: closing takes too long"));
        assert_eq!(locks.names_in_use(), 0, "{what}");
        let left = self.memory.holders(&Name::new("a").unwrap()).await.unwrap();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
}

/// A task that waits for the lock, in the queue by the time this returns.
async fn waiter(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    let waiting = tokio::spawn(async move { lock.acquire().await });
    yield_now().await;
    waiting
}

async fn acquired(waiter: JoinHandle<Result<Guard, Error>>) -> Guard {
    timeout(LEASE * 2, waiter).await.expect("it gets in").unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn successors_are_limited_by_the_stores_reserve() {
    let store = Counted::default();
    let most = store.capabilities().succession;
    assert!(most < *Claim::RESERVE_RANGE.end());
    let locks = store.with_successors(*Claim::RESERVE_RANGE.end());
    let mut waiters = Vec::new();
    for _ in 0..most + 2 {
        waiters.push(waiter(locks.lock("a")).await);
    }
    let mut claims = Vec::new();
    for waiter in waiters {
        let guard = acquired(waiter).await;
        claims.push(guard.claim());
        guard.release().await.unwrap();
    }
    let chains: Vec<usize> = claims.chunk_by(|one, next| one == next).map(<[ClaimId]>::len).collect();
    assert_eq!(chains, [usize::try_from(most).unwrap() + 1, 1]);
    store.is_left_free(&locks, "after two chains").await;
}

#[tokio::test(start_paused = true)]
async fn chain_ends_after_a_third_of_the_lease() {
    let moment = Duration::from_millis(50);
    for (held, goes_on) in [((LEASE / 3).saturating_sub(moment), true), (LEASE / 3 + moment, false)] {
        let locks = Counted::default().with_successors(9);
        let first = locks.lock("a").acquire().await.unwrap();
        let second = waiter(locks.lock("a")).await;
        let (claim, deadline) = (first.claim(), first.deadline());
        sleep(held).await;
        first.release().await.unwrap();
        let second = acquired(second).await;
        assert_eq!(second.claim() == claim, goes_on, "after {held:?}");
        if goes_on {
            assert_eq!(second.deadline(), deadline, "the lease counts from the request for the grant");
        }
        let (claim, third) = (second.claim(), waiter(locks.lock("a")).await);
        sleep(LEASE * 2).await;
        assert!(second.is_held(), "{:?}", second.loss());
        second.release().await.unwrap();
        assert_ne!(acquired(third).await.claim(), claim);
    }
}

#[tokio::test(start_paused = true)]
async fn late_successor_asks_the_store() {
    let store = Counted::default();
    let locks = store.with_successors(9);
    let first = locks.lock("a").acquire().await.unwrap();
    let lock = locks.lock("a");
    let mut second = pin!(lock.acquire());
    assert!(futures_util::poll!(&mut second).is_pending());
    let claim = first.claim();
    first.release().await.unwrap();
    assert_eq!(store.requests(), (1, 0), "it was handed on");
    // Its runtime does not poll it meanwhile.
    sleep(LEASE / 3 + Duration::from_millis(50)).await;
    let second = timeout(SOON, second).await.expect("it gets in").unwrap();
    assert!(second.claim() != claim && second.is_held());
    second.release().await.unwrap();
    assert_eq!(store.requests(), (2, 2));
    store.is_left_free(&locks, "late").await;
}

#[tokio::test(start_paused = true)]
async fn grant_is_not_handed_on_to_other_terms() {
    type Other = fn(Lock) -> Lock;
    let others: [(&str, Other); 5] = [
        ("lease", |lock| lock.lease(LEASE / 2)),
        ("label", |lock| lock.label("backup")),
        ("renew", |lock| lock.renew(false)),
        ("max_hold", |lock| lock.max_hold(LEASE)),
        ("hold_at_least", |lock| lock.hold_at_least(Duration::from_millis(100))),
    ];
    for (what, other) in others {
        for is_first in [true, false] {
            let store = Counted::default();
            let locks = store.with_successors(9);
            let [one, next] = [is_first, !is_first].map(|differs| {
                let lock = locks.lock("a");
                if differs { other(lock) } else { lock }
            });
            let first = one.acquire().await.unwrap();
            let second = waiter(next).await;
            let claim = first.claim();
            first.release().await.unwrap();
            let second = acquired(second).await;
            assert!(second.claim() != claim && second.is_held(), "{what}, first: {is_first}");
        }
    }
    let locks = Counted::default().with_successors(9);
    let writer = locks.rw("a").write().acquire().await.unwrap();
    let reader = waiter(locks.rw("a").read()).await;
    let claim = writer.claim();
    writer.release().await.unwrap();
    assert_ne!(acquired(reader).await.claim(), claim);
}

#[tokio::test(start_paused = true)]
async fn extended_or_converted_grant_is_not_handed_on() {
    for extends in [true, false] {
        let locks = Counted::default().with_successors(9);
        let mut first = locks.rw("a").write().acquire().await.unwrap();
        if extends {
            first.extend(LEASE * 2).await.unwrap();
        } else {
            first.downgrade().await.unwrap();
        }
        let second = waiter(locks.rw("a").write()).await;
        let claim = first.claim();
        first.release().await.unwrap();
        assert_ne!(acquired(second).await.claim(), claim, "extended: {extends}");
    }
}

/// A store that answers no renewal.
struct Mute(Counted);

#[async_trait]
impl Backend for Mute {
    forward_backend!(self => self.0, except renew);

    async fn renew(&self, _: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        pending().await
    }
}

/// For the same lease, so that nothing else tells.
#[tokio::test(start_paused = true)]
async fn grant_is_not_handed_on_during_an_extension() {
    let store = Mute(Counted::default());
    let locks = Locks::with_lease(store, LEASE).unwrap().with_succession(9).unwrap();
    let first = locks.lock("a").acquire().await.unwrap();
    let hold = first.hold();
    let extending = tokio::spawn(async move { hold.extend(LEASE).await });
    let second = waiter(locks.lock("a")).await;
    let claim = first.claim();
    first.release().await.unwrap();
    assert_ne!(acquired(second).await.claim(), claim);
    extending.abort();
}

/// It may have looked just before the release, in another thread.
#[tokio::test(start_paused = true)]
async fn view_of_an_ended_hold_does_not_shorten_its_successors_lease() {
    let locks = Counted::default().with_successors(9);
    let first = locks.lock("a").acquire().await.unwrap();
    let (second, hold) = (waiter(locks.lock("a")).await, first.hold());
    first.release().await.unwrap();
    let second = acquired(second).await;
    assert_eq!(second.claim(), hold.claim(), "it was not handed on");
    assert!(hold.holding.start_extension(LEASE / 9, Moment::now()).is_none());
    let outcome = hold.extend(LEASE / 9).await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn owner_hands_on_with_its_last_guard() {
    let store = Counted::default();
    let locks = store.with_successors(9);
    let [me, you] = [Owner::new(), Owner::new()].map(|owner| locks.lock("a").owner(&owner));
    let (outer, inner) = (me.acquire().await.unwrap(), me.acquire().await.unwrap());
    let second = waiter(you.clone()).await;
    let (claim, token) = (outer.claim(), outer.token());
    outer.release().await.unwrap();
    yield_now().await;
    assert!(!second.is_finished() && inner.is_held(), "handed on under a guard that is alive");
    inner.release().await.unwrap();
    let second = acquired(second).await;
    assert!(second.claim() == claim && second.token() > token);
    let again = you.acquire().await.unwrap();
    assert_eq!((again.claim(), again.token()), (claim, second.token()));
    assert!(me.try_acquire().await.unwrap().is_none(), "an owner that has handed on does not re-enter");
    assert_eq!(store.requests(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn renewal_tells_successor_of_a_forced_release() {
    let store = Counted::default();
    let locks = store.with_successors(9);
    let first = locks.lock("a").acquire().await.unwrap();
    let second = waiter(locks.lock("a")).await;
    assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
    let other = Locks::new(store.memory.clone()).lock("a").acquire().await.unwrap();
    first.release().await.unwrap();
    let second = acquired(second).await;
    assert!(second.is_held() && second.token() < other.token());
    let lost = timeout(LEASE / 2, second.lost()).await.expect("its renewal tells it");
    assert_eq!(lost, LossCause::Forced);
    drop(second);
    locks.close().await;
    let holders = store.memory.holders(other.name()).await.unwrap();
    assert_eq!(holders.iter().map(|holder| holder.claim).collect::<Vec<_>>(), [Some(other.claim())]);
}

#[tokio::test(start_paused = true)]
async fn successor_dropped_before_it_runs_leaves_the_grant_to_the_next() {
    for (other_waits, same_terms) in [(true, true), (true, false), (false, true)] {
        let store = Counted::default();
        let locks = store.with_successors(9);
        let first = locks.lock("a").acquire().await.unwrap();
        let goes = waiter(locks.lock("a")).await;
        let other = if same_terms { locks.lock("a") } else { locks.lock("a").label("other") };
        let other = if other_waits { Some(waiter(other).await) } else { None };
        let (claim, token) = (first.claim(), first.token());
        first.release().await.unwrap();
        // It has not run since.
        goes.abort();
        assert!(goes.await.unwrap_err().is_cancelled());
        if let Some(other) = other {
            let other = acquired(other).await;
            assert!(other.token() > token && other.is_held());
            assert_eq!(other.claim() == claim, same_terms);
            other.release().await.unwrap();
        }
        store.is_left_free(&locks, &format!("{other_waits} {same_terms}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unsupported_succession_is_refused() {
    let refused = Locks::new(Hung).with_succession(1);
    assert!(
        matches!(&refused, Err(Error::Unsupported { capability: Capability::Succession, .. })),
        "{refused:?}"
    );
    assert!(Locks::new(Hung).with_succession(0).is_ok());
    let most = *Claim::RESERVE_RANGE.end();
    let refused = Locks::new(Memory::new()).with_succession(most + 1);
    assert!(matches!(&refused, Err(Error::InvalidOption { option: "succession", .. })), "{refused:?}");
    let locks = Locks::new(Memory::new()).with_succession(most).unwrap();
    assert!(!locks.capabilities().fair, "waiters of other processes are passed over");
}

#[tokio::test(start_paused = true)]
async fn waiter_that_is_not_joined_leaves_nothing_held() {
    let store = Counted::default();
    let locks = store.with_successors(2);
    let first = locks.lock("a").acquire().await.unwrap();
    drop(waiter(locks.lock("a")).await);
    drop(first);
    store.is_left_free(&locks, "a waiter that is not joined").await;
}
