//! Futures that are dropped while SQLite works for them.

use super::*;
use futures_util::{FutureExt, future::join};
use std::pin::pin;
use tenure_core::Renewal;

/// By then a request has reached SQLite, on a busy machine too.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// The driver's thread carries out a statement even after its caller stopped waiting: here it waits for the write lock
/// when its future is dropped, and gets it after the withdrawal was sent. SQLite asks for the write lock less and less
/// often, so a withdrawal on another connection would come first. Closing does not wait for long for what is under way,
/// and what is asked after it still comes behind that.
#[tokio::test]
async fn claim_dropped_on_its_way_is_withdrawn_behind_its_grant() {
    join(withdrawn_behind_its_grant(false), withdrawn_behind_its_grant(true)).await;
}

async fn withdrawn_behind_its_grant(another_client_closes: bool) {
    let file = File::new();
    let backend = file.open().await;
    let earlier = granted(&backend, &claim("a")).await;
    backend.release(&earlier).await.unwrap();
    let mut blocker = file.blocker().await;
    let dropped = claim("a");
    // Before its turn it would not be carried out at all.
    let asked = tokio::time::timeout(ON_ITS_WAY, backend.try_acquire(&dropped)).await;
    assert!(asked.is_err(), "the write lock was not in the way");
    if another_client_closes {
        backend.close().await;
    }
    let mut withdrawing = pin!(backend.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    sqlx::query("COMMIT").execute(&mut blocker).await.unwrap();
    withdrawing.await.unwrap();
    let token = file.number("SELECT token FROM {t} WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(file.number("SELECT count(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
}

#[tokio::test]
async fn busy_file_is_unavailable_and_serves_afterwards() {
    let file = File::new();
    let backend = SqliteBackend::open(file.options().busy_timeout(Duration::from_millis(200))).await.unwrap();
    let grant = granted(&backend, &claim("held")).await;
    let mut blocker = file.blocker().await;
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("200ms") && error.to_string().contains("locks.db"), "{error}");
    assert!(backend.renew(std::slice::from_ref(&grant)).await.unwrap_err().is_unavailable());
    // Those who look are not held up by those who write.
    assert_eq!(backend.list("").await.unwrap().len(), 1);
    sqlx::query("COMMIT").execute(&mut blocker).await.unwrap();
    granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    busy(&backend, &claim("a")).await;
    // No statement keeps a lock of the file.
    let mut beside = file.raw().await;
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut beside).await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut beside).await.unwrap();
}
