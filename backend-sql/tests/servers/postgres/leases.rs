//! Acquiring, releasing, withdrawing, renewing, sweeping.

use super::*;
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::{Locks, LossCause, Renewal};
use tenure_sql::Durability;

#[tokio::test]
async fn tokens_rise_and_claims_are_idempotent() {
    let table = Table::new().await;
    let (ours, theirs) = (table.open().await, table.open().await);
    let mine = claim("a");
    let first = granted(&ours, &mine).await;
    assert_eq!(granted(&ours, &mine).await.token, first.token);
    let left = busy(&theirs, &claim("a")).await.unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
    assert_eq!(ours.release(&first).await.unwrap(), Release::NotHeld(LossCause::Expired));
    let second = granted(&theirs, &claim("a")).await;
    assert!(second.token > first.token);
    assert_eq!(ours.release(&first).await.unwrap(), Release::NotHeld(LossCause::TakenOver));
    table.execute("UPDATE {t} SET token = token + 3600000000").await;
    table.execute("UPDATE {t} SET expires_at = now() - interval '1 ms'").await;
    let third = granted(&ours, &claim("a")).await;
    assert_eq!(third.token.get(), second.token.get() + 3_600_000_001, "the clock was behind the token");
}

#[tokio::test]
async fn a_batch_is_renewed_by_one_statement_and_each_is_answered() {
    let table = Table::new().await;
    let backend = table.open().await;
    let mut grants = Vec::new();
    for number in 0..50 {
        grants.push(granted(&backend, &claim(&format!("n{number}"))).await);
    }
    table.execute("UPDATE {t} SET expires_at = now() - interval '1 ms' WHERE name = 'n7'").await;
    table.execute("DELETE FROM {t} WHERE name = 'n8'").await;
    backend.force_release(&grants[9].name).await.unwrap();
    let before = table.number("SELECT max(xmin::text::bigint) FROM {t}").await;
    let answers = backend.renew(&grants).await.unwrap();
    let written = format!("SELECT count(DISTINCT xmin::text) FROM {{t}} WHERE xmin::text::bigint > {before}");
    assert_eq!(table.number(&written).await, 1, "transactions that renewed");
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = match number {
            7 => Renewal::Lost(LossCause::Expired),
            8 => Renewal::Lost(LossCause::Forgotten),
            9 => Renewal::Lost(LossCause::Forced),
            _ => Renewal::Renewed,
        };
        assert_eq!(answer, expected, "{number}");
    }
}

/// The server carries a statement out although nobody waits for it any more: here it waits for a row lock when its future
/// is dropped, and gets it after the withdrawal was asked for.
#[tokio::test]
async fn a_claim_dropped_on_its_way_is_withdrawn_behind_its_grant() {
    let table = Table::new().await;
    let backend = table.open().await;
    let earlier = granted(&backend, &claim("a")).await;
    backend.release(&earlier).await.unwrap();
    let mut other = table.raw().await;
    let mut blocker = other.begin().await.unwrap();
    blocker.execute(table.sql("UPDATE {t} SET host = host")).await.unwrap();
    let dropped = claim("a");
    {
        let mut asking = pin!(backend.try_acquire(&dropped));
        assert!(asking.as_mut().now_or_never().is_none());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO \"{t}\"%'";
        until(async || table.number(waits).await == 1).await;
    }
    let mut withdrawing = pin!(backend.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    blocker.commit().await.unwrap();
    withdrawing.await.unwrap();
    let token = table.number("SELECT token FROM {t} WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(table.number("SELECT count(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
    granted(&table.open().await, &claim("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_cancelled_acquisitions_leave_nothing() {
    let table = Table::new().await;
    let (ours, theirs) = (Locks::new(table.open().await), Locks::new(table.open().await));
    for round in 0..100_u32 {
        let lock = ours.lock("a");
        {
            let mut acquiring = pin!(lock.acquire());
            for _ in 0..=round % 5 {
                if acquiring.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(100 * u64::from(round % 7))).await;
            }
        }
        let guard = theirs.lock("a").wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    ours.close().await;
    assert_eq!(table.number("SELECT count(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
}

/// A deadlock with a transaction of the application's: the server undoes one of the two, and that is no answer.
#[tokio::test]
async fn a_deadlock_is_no_answer() {
    let table = Table::new().await;
    let backend = table.open().await;
    let (a, b) = (granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await);
    let mut other = table.raw().await;
    // This one is never chosen: it does not look for deadlocks.
    other.execute("SET deadlock_timeout = '1h'").await.unwrap();
    let mut blocker = other.begin().await.unwrap();
    blocker.execute(table.sql("UPDATE {t} SET host = host WHERE name = 'b'")).await.unwrap();
    let renewing = tokio::spawn(async move { backend.renew(&[a, b]).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE \"{t}\" AS held%'";
    until(async || table.number(waits).await == 1).await;
    blocker.execute(table.sql("UPDATE {t} SET host = host WHERE name = 'a'")).await.unwrap();
    blocker.commit().await.unwrap();
    assert_eq!(renewing.await.unwrap().unwrap(), [Renewal::Renewed, Renewal::Renewed]);
}

#[tokio::test]
async fn idle_rows_go_and_tokens_rise_though_the_clock_went_back() {
    let table = Table::new().await;
    let backend = table.open().await;
    for text in ["old", "older", "used"] {
        let grant = granted(&backend, &claim(text)).await;
        backend.release(&grant).await.unwrap();
    }
    table.execute("UPDATE {t} SET expires_at = expires_at - interval '2 days' WHERE name LIKE 'old%'").await;
    table.execute("UPDATE {t} SET token = token + 3600000000").await;
    let greatest = table.number("SELECT max(token) FROM {t} WHERE name LIKE 'old%'").await;
    // The first release sweeps too, in the background, and may have found them first.
    assert!(backend.sweep().await.unwrap() <= 2);
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE name LIKE 'old%'").await == 0).await;
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE name = 'used'").await, 1);
    assert_eq!(backend.sweep().await.unwrap(), 0);
    let grant = granted(&backend, &claim("old")).await;
    assert!(grant.token.as_i64() > greatest, "{} is not above {greatest}", grant.token);
    assert_eq!(backend.list("").await.unwrap().len(), 1, "the floor was listed as a lock");
}

#[tokio::test]
async fn a_pool_lends_its_settings() {
    let table = Table::new().await;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&table.url).await.unwrap();
    // The application has the whole pool in use.
    let _transaction = pool.begin().await.unwrap();
    let options = PostgresOptions::default().table(&table.name).durability(Durability::Relaxed);
    let backend = PostgresBackend::from_pool(&pool, options).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn nothing_of_a_session_is_used_behind_a_pooler() {
    let table = Table::new().await;
    let backend = PostgresBackend::connect(table.options().pooler(true)).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    busy(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    granted(&backend, &claim("a")).await;
    // Idle rows may be swept in the background just now, also in transactions that end.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND query LIKE '%{t}%'";
    until(async || table.number(open).await == 0).await;
}
