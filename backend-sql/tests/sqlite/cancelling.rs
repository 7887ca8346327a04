//! Futures that are dropped while SQLite works for them.

use super::*;
use futures_util::FutureExt;
use std::{pin::pin, time::Instant};
use tenure_core::{Locks, LossCause, Release, Renewal};

/// By then a request has reached SQLite, on a busy machine too.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// The driver's thread carries out a statement although nobody waits for it any more: here it waits for the write lock
/// when its future is dropped, and gets it after the withdrawal was sent.
#[tokio::test]
async fn a_claim_dropped_on_its_way_is_withdrawn_behind_its_grant() {
    let file = File::new();
    let backend = file.open().await;
    let earlier = granted(&backend, &claim("a")).await;
    backend.release(&earlier).await.unwrap();

    let mut blocker = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut blocker).await.unwrap();
    let dropped = claim("a");
    // Before its turn it would not be carried out at all. SQLite asks for the write lock less and less often, so a
    // withdrawal on another connection would come first.
    let asked = tokio::time::timeout(ON_ITS_WAY, backend.try_acquire(&dropped)).await;
    assert!(asked.is_err(), "the write lock was not in the way");
    let mut withdrawing = pin!(backend.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    sqlx::query("COMMIT").execute(&mut blocker).await.unwrap();
    withdrawing.await.unwrap();

    let token = file.number("SELECT token FROM tenure_locks WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(file.number("SELECT count(*) FROM tenure_locks WHERE claim IS NOT NULL").await, 0);
    granted(&file.open().await, &claim("a")).await;
}

#[tokio::test]
async fn a_withdrawal_of_what_was_never_granted_is_harmless() {
    let file = File::new();
    let backend = file.open().await;
    backend.withdraw(&claim("a")).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    backend.withdraw(&claim("a")).await.unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released { awaited: false });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_cancelled_acquisitions_leave_nothing() {
    let file = File::new();
    let (ours, theirs) = (Locks::new(file.open().await), Locks::new(file.open().await));
    for round in 0..100_u32 {
        let lock = ours.lock("a");
        {
            let mut acquiring = pin!(lock.acquire());
            for _ in 0..=round % 5 {
                if acquiring.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
                if round % 3 == 0 {
                    tokio::time::sleep(Duration::from_micros(50 * u64::from(round % 7))).await;
                }
            }
        }
        let guard = theirs.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    ours.close().await;
    assert_eq!(file.number("SELECT count(*) FROM tenure_locks WHERE claim IS NOT NULL").await, 0);
}

#[tokio::test]
async fn no_statement_keeps_the_write_lock() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    busy(&backend, &claim("a")).await;
    backend.renew(std::slice::from_ref(&grant)).await.unwrap();
    let mut beside = file.raw().await;
    let started = Instant::now();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut beside).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "something held the file");
}

/// Closing does not wait for long for what is under way, and what is asked after it still comes behind that. On another
/// connection it would come first, because SQLite asks for the write lock less and less often.
#[tokio::test]
async fn a_claim_is_withdrawn_behind_its_grant_though_another_client_closes() {
    let file = File::new();
    let backend = file.open().await;
    let earlier = granted(&backend, &claim("a")).await;
    backend.release(&earlier).await.unwrap();

    let mut blocker = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut blocker).await.unwrap();
    let dropped = claim("a");
    // Before its turn it would not be carried out at all.
    let asked = tokio::time::timeout(ON_ITS_WAY, backend.try_acquire(&dropped)).await;
    assert!(asked.is_err(), "the write lock was not in the way");
    backend.close().await;
    let mut withdrawing = pin!(backend.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    sqlx::query("COMMIT").execute(&mut blocker).await.unwrap();
    withdrawing.await.unwrap();

    let token = file.number("SELECT token FROM tenure_locks WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(file.number("SELECT count(*) FROM tenure_locks WHERE claim IS NOT NULL").await, 0);
    granted(&file.open().await, &claim("a")).await;
}

#[tokio::test]
async fn a_busy_file_is_unavailable_and_serves_afterwards() {
    let file = File::new();
    let patience = Duration::from_millis(200);
    let backend = SqliteBackend::open(file.options().busy_timeout(patience)).await.unwrap();
    let grant = granted(&backend, &claim("held")).await;
    let mut blocker = file.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut blocker).await.unwrap();
    let started = Instant::now();
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(started.elapsed() >= patience, "gave up early");
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("200ms") && error.to_string().contains("locks.db"), "{error}");
    assert!(backend.renew(std::slice::from_ref(&grant)).await.unwrap_err().is_unavailable());
    // Those who look are not held up by those who write.
    assert_eq!(backend.list("").await.unwrap().len(), 1);
    sqlx::query("COMMIT").execute(&mut blocker).await.unwrap();
    granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
}

/// Others would lock in the new file while we go on in the old one, which nobody else can see.
#[cfg(unix)]
#[tokio::test]
async fn a_deleted_file_is_noticed() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.path().display()));
    }
    let after = granted(&file.open().await, &claim("a")).await;
    assert!(after.token > grant.token);
    assert_eq!(
        backend.renew(std::slice::from_ref(&grant)).await.unwrap(),
        [Renewal::Lost(LossCause::TakenOver)]
    );
    busy(&backend, &claim("a")).await;
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Lost(LossCause::TakenOver));
}
