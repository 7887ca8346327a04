//! The locks without async: on plain threads, and on those of a runtime.

#![cfg(feature = "memory")]

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tenure::{
    Error, LossCause, Memory, Mode, Owner,
    blocking::{Election, Guard, Latch, Lock, LockSet, LockSetGuard, Locks, RwLock, Semaphore, connect},
};
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn locks() -> Locks {
    connect("memory:").unwrap()
}

#[test]
fn threads_exclude_each_other() {
    let (locks, inside, turns) = (locks(), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let guard = locks.lock("a").wait(PATIENCE).acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 8 * 50);
}

#[test]
fn dropped_guard_releases_before_drop_returns() {
    let locks = locks();
    for _ in 0..200 {
        drop(locks.lock("a").acquire().unwrap());
        drop(locks.lock("a").try_acquire().unwrap().expect("the drop did not wait for the release"));
        drop(locks.all(["a", "b"]).acquire().unwrap());
        drop(locks.all(["b", "c"]).try_acquire().unwrap().expect("the drop did not wait for the releases"));
    }
}

#[test]
fn panicking_work_releases_its_lock() {
    let locks = locks();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| locks.lock("a").run(|_| panic!("as this test wants it"))).join().map(drop)
    });
    assert!(outcome.is_err());
    assert!(locks.lock("a").try_acquire().unwrap().is_some());
}

#[test]
fn busy_lock_is_refused() {
    let locks = locks();
    // A renewal finds out that it was taken away.
    let lease = Duration::from_secs(5);
    let guard = locks.lock("a").label("the first").lease(lease).acquire().unwrap();
    assert!(locks.lock("a").try_acquire().unwrap().is_none());
    let error = locks.lock("a").wait(Duration::from_millis(50)).acquire().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(locks.holders("a").unwrap()[0].info.label.as_deref(), Some("the first"));
    assert_eq!(locks.list("").unwrap().len(), 1);
    assert!(locks.waiting("a").unwrap().is_empty());
    assert_eq!(locks.force_release("a").unwrap().len(), 1);
    assert_eq!(guard.lost_within(PATIENCE), Some(LossCause::Forced));
    assert!(matches!(guard.release(), Err(Error::Lost { .. })));
}

#[test]
fn unrenewed_lock_is_lost_and_work_is_told() {
    let locks = locks();
    let lock = locks.lock("a").lease(Duration::from_millis(100)).renew(false);
    let lost = lock.run(|hold| {
        let until = Instant::now() + PATIENCE;
        while hold.is_held() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(matches!(lost, Err(Error::Lost { cause: LossCause::Expired, .. })), "{lost:?}");
    let guard = locks.lock("a").renew(false).acquire().unwrap();
    guard.extend(Duration::from_mins(1)).unwrap();
    assert_eq!(guard.lost_within(Duration::from_millis(200)), None);
}

#[test]
fn blocking_client_has_every_call() {
    let locks = locks();
    #[cfg(feature = "metrics")]
    let locks = locks.without_groups();
    let config = locks.rw("config");
    let reader = config.read().acquire().unwrap();
    assert!(config.write().try_acquire().unwrap().is_none());
    drop(reader);
    let mut writer = config.write().acquire().unwrap();
    writer.downgrade().unwrap();
    assert_eq!(writer.mode(), Mode::Shared);
    assert!(writer.try_upgrade().unwrap());
    drop(writer);

    let gpu = locks.semaphore("gpu", 2);
    let both = (gpu.permit().acquire().unwrap(), gpu.permits(1).acquire().unwrap());
    assert!(gpu.permit().try_acquire().unwrap().is_none());
    drop(both);

    let owner = Owner::new();
    let again = locks.lock("again").owner(&owner).max_hold(PATIENCE);
    let (one, other) = (again.acquire().unwrap(), again.acquire().unwrap());
    assert_eq!(one.token(), other.token());

    let set = locks.all(["x", "y"]).wait(PATIENCE).with(|lock| lock.label("both")).acquire().unwrap();
    assert!(set.is_held() && set.loss().is_none() && set.token("y").is_some());
    assert_eq!(set.holds().count(), 2);
    set.release().unwrap();

    let election = locks.election("scheduler").with(|lock| lock.label("node 1"));
    let term = election.campaign().unwrap();
    assert!(election.leader().unwrap().is_some());
    drop(term);

    let latch = locks.latch("loaded", 2);
    assert_eq!(latch.count_down("m1").unwrap(), 1);
    assert!(!latch.wait_for(Duration::from_millis(50)).unwrap());
    assert_eq!((latch.count_down("m2").unwrap(), latch.missing().unwrap()), (0, 0));
    latch.wait().unwrap();
    latch.remove().unwrap();

    locks.close();
    assert!(matches!(locks.lock("a").acquire(), Err(Error::Closed { .. })));
}

fn use_and_drop() {
    let locks = Locks::new(Memory::new());
    let guard = locks.lock("a").acquire().unwrap();
    drop(locks);
    drop(guard);
}

#[test]
fn blocking_calls_in_runtime_neither_panic_nor_hang() {
    use tokio::runtime::Builder;
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async { use_and_drop() });
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(async { use_and_drop() });
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(async {
        tokio::spawn(async { use_and_drop() }).await.unwrap();
        tokio::task::spawn_blocking(use_and_drop).await.unwrap();
    });
}

#[test]
fn call_runs_in_span_of_caller() {
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    // For all threads, so the other cases write there too.
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
    lines.with_writer(|| LOG.make_writer()).init();
    let locks = locks();
    tracing::info_span!("caller").in_scope(|| locks.lock("traced").acquire().unwrap().release().unwrap());
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    for (what, spans) in [("lock acquired", " caller:lock.acquire{"), ("lock released", " caller:lock.hold{")]
    {
        let line = log.lines().find(|line| line.contains(what) && line.contains("traced")).expect(what);
        assert!(line.contains(spans), "{line}");
    }
}

#[test]
fn handles_move_between_threads() {
    fn can_go<T: Send + Sync>() {}
    can_go::<(Locks, Lock, Guard, RwLock, Semaphore, LockSet, LockSetGuard, Election, Latch)>();
}
