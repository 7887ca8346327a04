//! Contenders that ask again and again.

use super::*;
use std::time::Instant;
use tenure_core::{AttemptAll, Locks, Release};

#[tokio::test]
async fn a_waiter_is_served_within_the_poll_bound() {
    let mut served = Vec::new();
    // Of several, because a full journal or a busy machine may hold one up.
    for _ in 0..3 {
        let file = File::new();
        let (ours, theirs) = (file.open().await, file.open().await);
        let grant = granted(&ours, &claim("a")).await;
        let waiting = tokio::spawn(async move {
            let grant = theirs.acquire(&Claim { waits: true, ..claim("a") }).await.unwrap();
            (grant, Instant::now())
        });
        let marked = "SELECT awaited_until FROM tenure_locks WHERE name = 'a'";
        until(async || file.number(marked).await > 0).await;
        let released = Instant::now();
        assert_eq!(ours.release(&grant).await.unwrap(), Release::Released { awaited: true });
        let (next, when) = waiting.await.unwrap();
        served.push(when - released);
        assert!(next.token > grant.token);
        // The mark was the waiter's, and it waits no more.
        assert_eq!(ours.release(&next).await.unwrap(), Release::Released { awaited: false });
    }
    assert!(served.iter().min() < Some(&Duration::from_secs(1)), "{served:?}");
}

#[tokio::test]
async fn one_who_does_not_wait_leaves_no_mark() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    busy(&backend, &claim("a")).await;
    let _ = tokio::time::timeout(SHORT, backend.acquire(&claim("a"))).await.unwrap_err();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released { awaited: false });
}

/// Polls are reads: they go on while somebody else has the write lock, and the mark is written rarely.
#[tokio::test]
async fn waiting_writes_rarely() {
    let file = File::new();
    let (ours, theirs) = (file.open().await, file.open().await);
    let grant = granted(&ours, &claim("a")).await;
    file.execute("CREATE TABLE writes (n)").await;
    file.execute(
        "CREATE TRIGGER count_writes AFTER UPDATE ON tenure_locks BEGIN INSERT INTO writes VALUES (1); END",
    )
    .await;
    let waiting = Claim { waits: true, ..claim("a") };
    let _ = tokio::time::timeout(Duration::from_secs(3), theirs.acquire(&waiting)).await.unwrap_err();
    let writes = file.number("SELECT count(*) FROM writes").await;
    assert!((1..=5).contains(&writes), "{writes} writes in 3 s");
    assert_eq!(ours.release(&grant).await.unwrap(), Release::Released { awaited: true });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_relocks_starves_nobody() {
    let file = File::new();
    let (greedy, patient) = (Locks::new(file.open().await), Locks::new(file.open().await));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let looping = {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let guard = greedy.lock("a").acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.release().await.unwrap();
            }
        })
    };
    for _ in 0..10 {
        let guard = patient.lock("a").wait(Duration::from_secs(20)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    looping.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_comes_out_exact() {
    let file = File::new();
    let counter = file.directory.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (locks, counter) = (Locks::new(file.open().await), counter.clone());
        clients.push(tokio::spawn(async move {
            let mut last = None;
            for _ in 0..25 {
                let guard = locks.lock("counter").acquire().await.unwrap();
                assert!(last < Some(guard.token()));
                last = Some(guard.token());
                let number: u32 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&counter, (number + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
            locks.close().await;
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "100");
}

/// Another program's transaction has the lock of the file.
#[tokio::test]
async fn refused_attempt_waits_for_no_writer() {
    let file = File::new();
    let (holder, other) = (file.open().await, file.options().busy_timeout(SHORT));
    let other = SqliteBackend::open(other).await.unwrap();
    let reader = |text| Claim { mode: Mode::Shared, ..claim(text) };
    granted(&holder, &claim("a")).await;
    granted(&holder, &reader("b")).await;
    granted(&holder, &reader("b")).await;
    let mut writer = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    for refused in [claim("a"), reader("a"), claim("b")] {
        busy(&other, &refused).await;
    }
    let set = other.try_acquire_all(&["a", "c"].map(claim)).await.unwrap();
    assert!(matches!(set, AttemptAll::Busy), "{set:?}");
    sqlx::query("ROLLBACK").execute(&mut writer).await.unwrap();
}
