//! A future is dropped at any await: no grant, queue or gauge stays behind.

use crate::record::{SECOND, recorded};
use futures_util::{future::LocalBoxFuture, poll};
use std::future::Future;
use tenure_core::{
    Attempt, AttemptAll, Backend, Claim, Conversion, Grant, Lock, Locks, Memory, Mode, Owner, Release,
    Renewal, StoreError, async_trait, forward_backend,
};
use tokio::task::yield_now;

/// A store that takes its time: there are awaits before and after each request.
#[derive(Clone, Default)]
struct Slow(Memory);

async fn slowly<T>(answer: impl Future<Output = T>) -> T {
    yield_now().await;
    let answer = answer.await;
    yield_now().await;
    answer
}

#[async_trait]
impl Backend for Slow {
    forward_backend!(self => self.0, except try_acquire, try_acquire_all, acquire, release, renew, convert, withdraw);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        slowly(self.0.try_acquire(claim)).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        slowly(self.0.try_acquire_all(claims)).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        slowly(self.0.acquire(claim)).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        slowly(self.0.release(grant)).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        slowly(self.0.renew(grants)).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        slowly(self.0.convert(grant, to)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        slowly(self.0.withdraw(claim)).await
    }
}

type Work = fn(Locks) -> LocalBoxFuture<'static, ()>;

/// Uses of locks: each is dropped at every await.
const DONE: [(&str, Work); 8] = [
    ("a try", |locks| Box::pin(async move { drop(locks.lock("a").try_acquire().await.unwrap()) })),
    ("a wait", |locks| {
        Box::pin(async move {
            let other = locks.lock("a").acquire().await.unwrap();
            let lock = locks.lock("a");
            let (waited, ()) = tokio::join!(lock.acquire(), async {
                yield_now().await;
                other.release().await.unwrap();
            });
            waited.unwrap().release().await.unwrap();
        })
    }),
    ("a succession", |locks| {
        Box::pin(async move {
            let locks = locks.with_succession(2).unwrap();
            let first = locks.lock("a").acquire().await.unwrap();
            let (lock, held) = (locks.lock("a"), async |lock: &Lock| {
                lock.acquire().await.unwrap().release().await.unwrap();
            });
            tokio::join!(held(&lock), held(&lock), held(&lock), async {
                yield_now().await;
                first.release().await.unwrap();
            });
        })
    }),
    ("a run", |locks| Box::pin(async move { locks.lock("a").run(|_| yield_now()).await.unwrap() })),
    ("several names", |locks| {
        Box::pin(async move {
            let other = locks.lock("b").acquire().await.unwrap();
            let all = locks.all(["a", "b", "c"]);
            let (all, ()) = tokio::join!(all.acquire(), async {
                yield_now().await;
                other.release().await.unwrap();
            });
            all.unwrap().release().await.unwrap();
        })
    }),
    ("conversions", |locks| {
        Box::pin(async move {
            let mut guard = locks.rw("a").write().acquire().await.unwrap();
            guard.downgrade().await.unwrap();
            assert!(guard.try_upgrade().await.unwrap());
            guard.release().await.unwrap();
        })
    }),
    ("an owner", |locks| {
        Box::pin(async move {
            let lock = locks.lock("a").owner(&Owner::new());
            let (one, other) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
            one.release().await.unwrap();
            other.release().await.unwrap();
        })
    }),
    ("a permit that is extended", |locks| {
        Box::pin(async move {
            let guard = locks.semaphore("a", 2).permits(2).acquire().await.unwrap();
            guard.extend(SECOND).await.unwrap();
            guard.release().await.unwrap();
        })
    }),
];

#[test]
fn future_leaves_nothing_behind_when_dropped_at_any_await() {
    for (what, done) in DONE {
        let mut polls = 0;
        while !recorded(true, async |mut record| {
            let store = Slow::default();
            let locks = Locks::new(store.clone());
            let mut work = done(locks.clone());
            let mut is_done = false;
            for _ in 0..polls {
                is_done = poll!(&mut work).is_ready();
                if is_done {
                    break;
                }
                yield_now().await;
            }
            drop(work);
            locks.close().await;
            let when = format!("{what}, dropped after {polls} polls");
            record.nothing_is_left(&when);
            let held = store.0.list("").await.unwrap();
            assert!(held.is_empty(), "{when}: {held:?}");
            assert_eq!(locks.names_in_use(), 0, "{when}");
            is_done
        }) {
            polls += 1;
        }
        assert!(polls >= 3, "{what}: only {polls} polls");
    }
}
