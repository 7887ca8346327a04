//! Grants that do not stand for their whole lease when they come, handed over or late, and holds that end before it.

use crate::{
    api::Locks,
    contract::{Claim, Error, Grant, Moment, Session, StoreError},
    forward_backend,
    memory::Memory,
    store::{Attempt, AttemptAll, Backend, Renewal},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const STANDS: Duration = Duration::from_millis(900);
const LEASE: Duration = Duration::from_secs(30);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Carries out each attempt at once, and answers late. It may hand locks over: then each grant stands for a moment only,
/// until it is renewed.
#[derive(Clone)]
struct Late {
    memory: Memory,
    stands: Duration,
    /// How long after each attempt it answers; the later ones at once.
    grants: Arc<Mutex<VecDeque<Duration>>>,
    /// How long a renewal's answer takes; `None`: it does nothing.
    renewal: Option<Duration>,
    renewals: Arc<AtomicUsize>,
}

impl Late {
    fn new(grants: &[Duration], renewal: Option<Duration>) -> Self {
        let grants = Arc::new(Mutex::new(grants.iter().copied().collect()));
        Self { memory: Memory::new(), stands: Duration::MAX, grants, renewal, renewals: Arc::default() }
    }

    fn handing_over(renewal: Option<Duration>) -> Self {
        Self { stands: STANDS, ..Self::new(&[], renewal) }
    }

    async fn pause(&self) {
        let pause = self.grants.lock().unwrap().pop_front().unwrap_or_default();
        tokio::time::sleep(pause).await;
    }
}

#[async_trait::async_trait]
impl Backend for Late {
    forward_backend!(self => self.memory, except try_acquire, try_acquire_all, acquire, renew);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let sent = Moment::now();
        let provisional = Claim { lease: claim.lease.min(self.stands), ..claim.clone() };
        let attempt = self.memory.try_acquire(&provisional).await?;
        self.pause().await;
        Ok(match attempt {
            Attempt::Granted(grant) => {
                Attempt::Granted(Grant::handed_over(claim, grant.token, sent, self.stands))
            }
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let attempt = self.memory.try_acquire_all(claims).await;
        self.pause().await;
        attempt
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.renewals.fetch_add(1, Relaxed);
        let Some(way) = self.renewal else { return std::future::pending().await };
        let renewed = self.memory.renew(grants).await;
        tokio::time::sleep(way).await;
        renewed
    }
}

#[tokio::test(start_paused = true)]
async fn handed_over_grant_is_renewed_soon_then_as_usual() {
    for (renews, usual) in [(true, 3), (false, 0)] {
        let store = Late::handing_over(AT_ONCE);
        let locks = Locks::new(store.clone());
        let guard = locks.lock("a").lease(LEASE).renew(renews).acquire().await.unwrap();
        assert!(guard.deadline().unwrap().left() < STANDS);
        tokio::time::sleep(STANDS / 2).await;
        assert_eq!(store.renewals.load(Relaxed), 1);
        assert!(guard.deadline().unwrap().left() > LEASE * 9 / 10);
        tokio::time::sleep(LEASE / 2).await;
        assert!(guard.is_held());
        tokio::time::sleep(LEASE / 2).await;
        assert_eq!((guard.is_held(), store.renewals.load(Relaxed)), (renews, 1 + usual));
    }
}

#[tokio::test(start_paused = true)]
async fn handed_over_grant_is_lost_soon_if_the_store_is_silent() {
    let store = Late::handing_over(None);
    let locks = Locks::new(store.clone());
    let guard = locks.lock("a").lease(LEASE).renew(false).acquire().await.unwrap();
    let begin = Moment::now();
    guard.lost().await;
    assert!(Moment::now().since(begin) < STANDS);
    assert!(store.renewals.load(Relaxed) > 1, "asked once more before it was too late");
}

/// As far as another continent.
#[tokio::test(start_paused = true)]
async fn handed_over_grant_of_a_distant_store_is_renewed() {
    let store = Late::handing_over(Some(Duration::from_millis(250)));
    let locks = Locks::new(store.clone());
    let guard = locks.lock("a").lease(LEASE).acquire().await.unwrap();
    tokio::time::sleep(STANDS).await;
    assert_eq!((guard.loss(), store.renewals.load(Relaxed)), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn late_grant_is_renewed_before_it_is_returned() {
    for (renews, usual) in [(true, 3), (false, 0)] {
        for waits in [true, false] {
            let store = Late::new(&[LEASE / 2], AT_ONCE);
            let lock = Locks::new(store.clone()).lock("a").lease(LEASE).renew(renews);
            let guard = if waits {
                lock.acquire().await.unwrap()
            } else {
                lock.try_acquire().await.unwrap().expect("it was free")
            };
            assert!(guard.deadline().unwrap().left() > LEASE * 9 / 10, "{guard:?}");
            assert_eq!(store.renewals.load(Relaxed), 1);
            tokio::time::sleep(LEASE * 99 / 100).await;
            tokio::time::sleep(LEASE / 50).await;
            assert_eq!((guard.is_held(), store.renewals.load(Relaxed)), (renews, 1 + usual));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn late_lock_set_is_renewed_before_it_is_returned() {
    let store = Late::new(&[LEASE / 2], AT_ONCE);
    let locks = Locks::new(store.clone());
    let all = locks.all(["a", "b"]).with(|lock| lock.lease(LEASE));
    let guard = all.try_acquire().await.unwrap().expect("both were free");
    for one in guard.holds() {
        assert!(one.deadline().unwrap().left() > LEASE * 9 / 10, "{one:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn timely_grant_costs_no_renewal() {
    let store = Late::new(&[LEASE / 4], AT_ONCE);
    let guard = Locks::new(store.clone()).lock("a").lease(LEASE).acquire().await.unwrap();
    assert!(guard.deadline().unwrap().left() < LEASE * 3 / 4);
    assert_eq!(store.renewals.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn late_grant_lost_at_once_is_acquired_anew() {
    let store = Late::new(&[LEASE / 2, LEASE / 2], None);
    let locks = Locks::new(store.clone());
    let lock = locks.lock("a").lease(LEASE);
    let begin = Moment::now();
    let tried = lock.try_acquire().await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    assert!(Moment::now().since(begin) < LEASE);
    let guard = lock.acquire().await.unwrap();
    assert!(guard.deadline().unwrap().left() > LEASE * 9 / 10, "{guard:?}");
    assert!(Moment::now().since(begin) < LEASE * 2);
}

#[tokio::test(start_paused = true)]
async fn late_grant_is_released_after_the_wait_ended() {
    for must_stay in [false, true] {
        let store = Late::new(&[LEASE / 2], None);
        let locks = Locks::new(store.clone());
        let lock = locks.lock("a").lease(LEASE).wait(LEASE * 3 / 4);
        let lock = if must_stay { lock.hold_at_least(LEASE) } else { lock };
        let given_up = lock.acquire().await;
        assert!(matches!(given_up, Err(Error::Timeout { .. })), "{given_up:?}");
        assert!(store.renewals.load(Relaxed) > 0, "given up before it came");
        let begin = Moment::now();
        let _next = Locks::new(store.clone()).lock("a").acquire().await.unwrap();
        let waited = Moment::now().since(begin);
        assert!(waited < LEASE / 10, "held without a holder for {waited:?}; must stay: {must_stay}");
    }
}

/// Keeps its grants in a session that does not end.
struct InSession {
    memory: Memory,
    session: Session,
}

#[async_trait::async_trait]
impl Backend for InSession {
    forward_backend!(self => self.memory, except try_acquire, try_acquire_all, acquire);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        Ok(match self.memory.try_acquire(claim).await? {
            Attempt::Granted(grant) => {
                Attempt::Granted(Grant::in_session(claim, grant.token, self.session.liveness()))
            }
            busy @ Attempt::Busy { .. } => busy,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn session_watch_ends_with_its_hold() {
    let session = Session::new(LEASE * 100, Moment::now());
    let locks = Locks::new(InSession { memory: Memory::new(), session });
    let guard = locks.lock("a").max_hold(STANDS).acquire().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let while_held = tasks();
    guard.lost().await;
    // The lock itself is released when a lease would have run out.
    tokio::time::sleep(LEASE * 2).await;
    assert!(tasks() < while_held, "{} of {while_held} tasks go on", tasks());
}
