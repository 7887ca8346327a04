//! Releases that are asked for twice, or too soon, and stores whose answers do not come.

use super::*;
use crate::{
    api::{Lock, Locks},
    async_trait,
    contract::{Capabilities, Capability, Claim, Holder, Name, Session, Wakeup},
    forward_backend,
    memory::Memory,
    store::{Backend, Conversion},
};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::{Instant, sleep, timeout};

const HOUR: Duration = Duration::from_hours(1);

/// A store without a queue, in which another client always waits.
#[derive(Clone)]
struct Awaited {
    memory: Memory,
    wakeup: Wakeup,
    closed: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
}

impl Awaited {
    fn new(wakeup: Wakeup) -> Self {
        Self { memory: Memory::new(), wakeup, closed: Arc::default(), looks: Arc::default() }
    }
}

#[async_trait]
impl Backend for Awaited {
    forward_backend!(self => self.memory, except capabilities, acquire, release, holders, close);

    fn capabilities(&self) -> Capabilities {
        let (wakeup, ask_again) = (self.wakeup, HOUR);
        Capabilities { wakeup, ask_again, shared: true, permits: true, listing: true, ..Capabilities::POLLED }
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.memory.holders(name).await
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
async fn relock_lets_other_clients_in_for_one_round() {
    assert_eq!(kept_out(Wakeup::Poll, |locks| locks.lock("a")).await, HOUR);
    assert_eq!(kept_out(Wakeup::Push, |locks| locks.lock("a")).await, Duration::from_millis(20));
    assert_eq!(kept_out(Wakeup::Poll, |locks| locks.semaphore("a", 2).permits(2)).await, HOUR);
}

#[tokio::test(start_paused = true)]
async fn relock_contends_again_once_another_client_got_in() {
    let (store, minute) = (Awaited::new(Wakeup::Poll), Duration::from_mins(1));
    let (locks, other) = (Locks::new(store.clone()), Locks::new(store.memory.clone()));
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let released = Instant::now();
    let lock = locks.lock("a");
    let relocked = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_millis(5)).await;
    let got_in = other.lock("a").acquire().await.unwrap();
    sleep(minute).await;
    got_in.release().await.unwrap();
    assert!(relocked.await.unwrap().unwrap().is_held());
    assert!(released.elapsed() < minute * 2, "it was kept out for {:?}", released.elapsed());
}

/// A reader that was there before is no sign that the writer has got in.
#[tokio::test(start_paused = true)]
async fn relocking_reader_gives_way_beside_another_reader() {
    let store = Awaited::new(Wakeup::Poll);
    let (locks, other) = (Locks::new(store.clone()), Locks::new(store.memory.clone()));
    let _reads = other.rw("a").read().acquire().await.unwrap();
    sleep(HOUR).await;
    locks.rw("a").read().acquire().await.unwrap().release().await.unwrap();
    let released = Instant::now();
    drop(locks.rw("a").read().acquire().await.unwrap());
    assert_eq!(released.elapsed(), HOUR);
}

#[tokio::test(start_paused = true)]
async fn release_without_relock_sends_no_requests() {
    let store = Awaited::new(Wakeup::Poll);
    let locks = Locks::new(store.clone());
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    sleep(HOUR * 2).await;
    assert_eq!(store.looks.load(Ordering::SeqCst), 0);
    assert_eq!(locks.names_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn try_is_busy_while_its_client_gives_way() {
    let locks = Locks::new(Awaited::new(Wakeup::Push));
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the other was not let in first");
    sleep(Duration::from_millis(21)).await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some(), "the round is over");
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_the_round() {
    let store = Awaited::new(Wakeup::Poll);
    let locks = Locks::new(store.clone());
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the other was not let in first");
    timeout(Duration::from_secs(1), locks.close()).await.expect("close waited for the round");
    assert!(store.closed.load(Ordering::SeqCst), "the store was not closed");
}

/// A store whose first answer to a release is lost. `after` is its content from then on: it may have restarted.
struct Interrupted {
    before: Memory,
    after: Memory,
    lists: bool,
    asked: AtomicBool,
}

#[async_trait]
impl Backend for Interrupted {
    forward_backend!(self => self.before, except release, holders);

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        if self.asked.swap(true, Ordering::SeqCst) {
            return self.after.release(grant).await;
        }
        self.before.release(grant).await?;
        Err(StoreError::unavailable("the answer was lost"))
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        if self.lists {
            self.after.holders(name).await
        } else {
            Err(StoreError::unsupported(Capability::Listing))
        }
    }
}

fn interrupted(before: &Memory, after: &Memory, lists: bool) -> Locks {
    let (before, after) = (before.clone(), after.clone());
    Locks::new(Interrupted { before, after, lists, asked: AtomicBool::new(false) })
}

/// The connection broke when the server restarted empty, so the release was sent twice.
#[tokio::test(start_paused = true)]
async fn release_of_a_forgotten_grant_is_lost() {
    let (memory, empty, second) = (Memory::new(), Memory::new(), Duration::from_secs(1));
    let guard = interrupted(&memory, &empty, true).lock("a").acquire().await.unwrap();
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forgotten, .. })), "{released:?}");

    let guard = interrupted(&memory, &empty, true).lock("a").acquire().await.unwrap();
    tokio::time::sleep(second).await;
    let other = Locks::new(empty).lock("a").acquire().await.unwrap();
    assert!(other.token() > guard.token());
    tokio::time::sleep(second).await;
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { cause: LossCause::TakenOver, .. })), "{released:?}");
    assert!(other.is_held());
}

#[tokio::test(start_paused = true)]
async fn release_succeeds_if_the_next_waiter_is_granted_before_the_retry() {
    for lists in [true, false] {
        let memory = Memory::new();
        let guard = interrupted(&memory, &memory, lists).lock("a").acquire().await.unwrap();
        let next = Locks::new(memory.clone()).lock("a");
        let next = tokio::spawn(async move { next.acquire().await });
        // Until it waits.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let name = guard.name().clone();
        guard.release().await.unwrap();
        let [holder] = &memory.holders(&name).await.unwrap()[..] else { panic!("the next holds it") };
        let age = holder.age.unwrap();
        assert!(age > Duration::from_millis(10), "it came only after the second request: {age:?}");
        assert!(next.await.unwrap().unwrap().is_held());
    }
}

/// Another reader becomes a writer between the two requests. It was there before, and no grant was lost.
#[tokio::test(start_paused = true)]
async fn release_succeeds_if_another_reader_upgrades_before_the_retry() {
    let memory = Memory::new();
    let guard = interrupted(&memory, &memory, true).rw("a").read().acquire().await.unwrap();
    let mut other = Locks::new(memory.clone()).rw("a").read().acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let upgrading = tokio::spawn(async move {
        while !other.try_upgrade().await.unwrap() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        other
    });
    guard.release().await.unwrap();
    assert!(upgrading.is_finished(), "it became a writer after the second request");
    assert!(upgrading.await.unwrap().is_held());
}

/// A store whose first answer to a release is lost; its session may end before the request arrives.
struct Silent {
    memory: Memory,
    session: Session,
    arrives: bool,
    asked: AtomicBool,
}

#[async_trait]
impl Backend for Silent {
    forward_backend!(self => self.memory, except acquire, release);

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let grant = self.memory.acquire(claim).await?;
        Ok(Grant::in_session(claim, grant.token, self.session.liveness()))
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        if self.asked.swap(true, Ordering::SeqCst) {
            return Ok(Release::Lost(LossCause::Forgotten));
        }
        if !self.arrives {
            self.session.end(LossCause::SessionEnded);
        }
        self.memory.release(grant).await?;
        Err(StoreError::unavailable("the answer was lost"))
    }
}

#[tokio::test(start_paused = true)]
async fn release_is_lost_if_its_session_ended_before_the_retry() {
    for arrives in [true, false] {
        let session = Session::new(Duration::from_secs(30), Moment::now());
        let store = Silent { memory: Memory::new(), session, arrives, asked: AtomicBool::new(false) };
        let released = Locks::new(store).lock("a").acquire().await.unwrap().release().await;
        let lost = matches!(released, Err(Error::Lost { cause: LossCause::SessionEnded, .. }));
        assert!(if arrives { released.is_ok() } else { lost }, "{arrives}: {released:?}");
    }
}

/// A store whose first answers to renewals are lost, before or after the request was carried out.
struct Mute {
    memory: Memory,
    lost: Mutex<Vec<bool>>,
}

#[async_trait]
impl Backend for Mute {
    forward_backend!(self => self.memory, except renew);

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let lost = self.lost.lock().unwrap().pop();
        if lost != Some(false) {
            let answers = self.memory.renew(grants).await?;
            if lost.is_none() {
                return Ok(answers);
            }
        }
        Err(StoreError::unavailable("the answer was lost"))
    }
}

/// How long a lock that must stay held for an hour keeps others out, if it is released after `held`.
async fn stays_held(store: Mute, held: Duration) -> (Duration, Result<(), Error>) {
    let (locks, began) = (Locks::new(store), Instant::now());
    let guard = locks.lock("a").lease(HOUR / 10).hold_at_least(HOUR).acquire().await.unwrap();
    tokio::time::sleep(held).await;
    let released = guard.release().await;
    assert!(began.elapsed() < held + Duration::from_mins(1), "the release waited for {:?}", began.elapsed());
    drop(locks.lock("a").acquire().await.unwrap());
    (began.elapsed(), released)
}

#[tokio::test(start_paused = true)]
async fn hold_at_least_outlasts_a_release() {
    let second = Duration::from_secs(1);
    for lost in [vec![], vec![false], vec![true], vec![true, false, true]] {
        let store = |lost| Mute { memory: Memory::new(), lost: Mutex::new(lost) };
        let (stayed, released) = stays_held(store(lost.clone()), second).await;
        assert!(released.is_ok(), "{lost:?}: {released:?}");
        assert!(stayed >= HOUR && stayed < HOUR + second, "{lost:?}: it stayed held for {stayed:?}");
        let (stayed, released) = stays_held(store(lost.clone()), HOUR * 2).await;
        assert!(released.is_ok(), "{lost:?}: {released:?}");
        assert!(stayed < HOUR * 2 + second, "{lost:?}: it stayed held for {stayed:?}");
    }
}

/// A store to which the first renewal takes so long.
struct Slow {
    memory: Memory,
    way: Mutex<Option<Duration>>,
}

#[async_trait]
impl Backend for Slow {
    forward_backend!(self => self.memory, except renew);

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let way = self.way.lock().unwrap().take();
        tokio::time::sleep(way.unwrap_or_default()).await;
        self.memory.renew(grants).await
    }
}

/// A store that answers no release.
struct Deaf(Memory);

#[async_trait]
impl Backend for Deaf {
    forward_backend!(self => self.0, except release);

    async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_release_ends_with_the_lease() {
    let guard = Locks::new(Deaf(Memory::new())).lock("a").lease(HOUR).acquire().await.unwrap();
    let left = guard.deadline().unwrap().left();
    let began = Instant::now();
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Unavailable { .. })), "{released:?}");
    let took = began.elapsed();
    let in_time = left.as_secs()..=left.as_secs() + 5;
    assert!(in_time.contains(&took.as_secs()), "{took:?}, and {left:?} were left");
}

/// A store that is far away: releases and conversions take so long. Its grants may be kept by a session.
struct Distant {
    memory: Memory,
    way: Duration,
    session: Option<Session>,
}

impl Distant {
    fn locks(way: Duration, session: Option<Session>) -> Locks {
        Locks::new(Self { memory: Memory::new(), way, session })
    }
}

#[async_trait]
impl Backend for Distant {
    forward_backend!(self => self.memory, except acquire, release, convert);

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let Some(session) = &self.session else { return self.memory.acquire(claim).await };
        let grant = self.memory.acquire(&Claim { lease: HOUR, ..claim.clone() }).await?;
        Ok(Grant::in_session(claim, grant.token, session.liveness()))
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        sleep(self.way).await;
        self.memory.release(grant).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        sleep(self.way).await;
        self.memory.convert(grant, to).await
    }
}

#[tokio::test(start_paused = true)]
async fn release_of_a_short_lease_reaches_a_distant_store() {
    let (way, began) = (Duration::from_millis(400), Instant::now());
    let locks = Distant::locks(way, None);
    let mut guard = locks.rw("a").write().lease(Duration::from_secs(1)).acquire().await.unwrap();
    timeout(HOUR, guard.downgrade()).await.expect("its requests are not cut off").unwrap();
    guard.release().await.unwrap();
    assert_eq!(began.elapsed(), way * 2);
}

#[tokio::test(start_paused = true)]
async fn release_in_a_session_may_take_a_sixth_of_the_time_left() {
    let (way, began, half) = (Duration::from_secs(8), Instant::now(), Duration::from_secs(30));
    let locks = Distant::locks(way, Some(Session::new(half * 2, Moment::now())));
    let mut guard = locks.rw("a").write().lease(Duration::from_millis(100)).acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(began.elapsed(), way * 2);
}

/// A renewal that comes after the last lease would hold the name without a holder.
#[tokio::test(start_paused = true)]
async fn hold_at_least_is_not_extended_by_a_late_renewal() {
    let (memory, way, second) = (Memory::new(), Duration::from_mins(5), Duration::from_secs(1));
    let locks = Locks::new(Slow { memory: memory.clone(), way: Mutex::new(Some(way)) });
    let began = Instant::now();
    let guard = locks.lock("a").lease(HOUR).hold_at_least(HOUR).acquire().await.unwrap();
    // A renewal is under way.
    tokio::time::sleep(HOUR / 3 + way / 2).await;
    guard.release().await.unwrap();
    drop(Locks::new(memory).lock("a").acquire().await.unwrap());
    let stayed = began.elapsed();
    assert!(stayed >= HOUR && stayed < HOUR + second, "it stayed held for {stayed:?}");
}

#[tokio::test(start_paused = true)]
async fn forced_release_ends_hold_at_least() {
    let (memory, second) = (Memory::new(), Duration::from_secs(1));
    let locks = Locks::new(memory.clone());
    let lock = locks.lock("a").hold_at_least(HOUR);
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
    let guard = timeout(second, lock.acquire()).await.expect("it is free").unwrap();
    memory.force_release(guard.name()).await.unwrap();
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
}

#[tokio::test(start_paused = true)]
async fn hold_at_least_delays_no_news_of_a_loss() {
    let (memory, lease) = (Memory::new(), Duration::from_secs(30));
    let guard =
        Locks::new(memory.clone()).lock("a").lease(lease).hold_at_least(HOUR).acquire().await.unwrap();
    // Renewals keep the pace of the lease, and each asks for an hour.
    tokio::time::sleep(lease * 3).await;
    let left = guard.deadline().expect("a lease").left();
    assert!(left > HOUR * 9 / 10, "{left:?} are left");
    let forced = Instant::now();
    memory.force_release(guard.name()).await.unwrap();
    assert_eq!(guard.lost().await, LossCause::Forced);
    assert!(forced.elapsed() <= lease / 3, "noticed after {:?}", forced.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hold_at_least_above_max_hold_is_refused() {
    let locks = Locks::new(Memory::new());
    let refused = locks.lock("a").hold_at_least(HOUR).max_hold(HOUR / 2).acquire().await;
    assert!(matches!(refused, Err(Error::InvalidOption { option: "hold_at_least", .. })), "{refused:?}");
    assert!(locks.lock("a").hold_at_least(HOUR).max_hold(HOUR).acquire().await.is_ok());
}
