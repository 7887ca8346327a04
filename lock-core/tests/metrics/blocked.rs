//! A recorder that blocks: no loss and no release waits for it (clause F8).

use crate::record::SECOND;
use futures_util::poll;
use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};
use tenure_core::{
    Backend, Grant, Locks, LossCause, Memory, Release, StoreError, async_trait, forward_backend,
};
use tokio::runtime::Builder;

/// Whether the store has been asked to release anything.
#[derive(Default)]
struct Asked {
    yes: Mutex<bool>,
    told: Condvar,
    /// Whether the recorder waited for that in vain.
    never: AtomicBool,
}

/// The number of grants that are held.
impl GaugeFn for Asked {
    fn increment(&self, _: f64) {}

    /// Blocks until the store has been asked.
    fn decrement(&self, _: f64) {
        let asked = self.yes.lock().unwrap();
        let (_asked, waited) = self.told.wait_timeout_while(asked, SECOND * 20, |asked| !*asked).unwrap();
        self.never.fetch_or(waited.timed_out(), Ordering::SeqCst);
    }

    fn set(&self, _: f64) {}
}

struct Blocking(Arc<Asked>);

impl Recorder for Blocking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "tenure_held" { Gauge::from_arc(Arc::clone(&self.0)) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct Tells {
    memory: Memory,
    asked: Arc<Asked>,
}

#[async_trait]
impl Backend for Tells {
    forward_backend!(self => self.memory, except release);

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        *self.asked.yes.lock().unwrap() = true;
        self.asked.told.notify_all();
        self.memory.release(grant).await
    }
}

/// Stops the test if a loss, a release or a hand-over waits for the recorder.
fn goes_on(what: &str, work: impl AsyncFnOnce(&Locks)) {
    let asked = Arc::<Asked>::default();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    metrics::with_local_recorder(&Blocking(Arc::clone(&asked)), || {
        runtime.block_on(async {
            let store = Tells { memory: Memory::new(), asked: Arc::clone(&asked) };
            let locks = Locks::new(store).with_succession(1).unwrap();
            work(&locks).await;
            locks.close().await;
        });
    });
    assert!(*asked.yes.lock().unwrap(), "{what}: nothing was released");
    assert!(!asked.never.load(Ordering::SeqCst), "{what}: it waits for the recorder");
}

#[test]
fn no_release_waits_for_a_recorder() {
    goes_on("a release", async |locks| {
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    });
    goes_on("a release in the background", async |locks| {
        drop(locks.lock("a").acquire().await.unwrap());
    });
    goes_on("a hand-over", async |locks| {
        let first = locks.lock("a").acquire().await.unwrap();
        let lock = locks.lock("a");
        let mut second = Box::pin(async move { lock.acquire().await.unwrap().release().await.unwrap() });
        assert!(poll!(&mut second).is_pending());
        let second = tokio::spawn(second);
        first.release().await.unwrap();
        second.await.unwrap();
    });
}

/// The thread that renews notices one loss, and is blocked. The task that waits for the other notices that one.
#[test]
fn no_loss_waits_for_a_recorder() {
    goes_on("a loss", async |locks| {
        let lock = |name: &str| locks.lock(name).lease(SECOND * 2).renew(false);
        let (one, other) = (lock("a").acquire().await.unwrap(), lock("b").acquire().await.unwrap());
        for guard in [&one, &other] {
            assert_eq!(guard.lost().await, LossCause::Expired);
            assert!(!guard.is_held());
        }
    });
}
