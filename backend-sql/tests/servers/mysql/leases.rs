//! Acquiring, releasing, withdrawing, renewing, sweeping.

use super::*;
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::{Locks, LossCause, Renewal};

async fn tokens_rise(table: &Table, ours: &MySqlBackend, theirs: &MySqlBackend) {
    let mine = claim("a");
    let first = granted(ours, &mine).await;
    assert_eq!(granted(ours, &mine).await.token, first.token);
    let left = busy(theirs, &claim("a")).await.unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
    assert_eq!(ours.release(&first).await.unwrap(), Release::NotHeld(LossCause::Expired));
    let second = granted(theirs, &claim("a")).await;
    assert!(second.token > first.token);
    assert_eq!(ours.release(&first).await.unwrap(), Release::NotHeld(LossCause::TakenOver));
    table.execute("UPDATE {t} SET token = token + 3600000000").await;
    table.execute("UPDATE {t} SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND").await;
    let third = granted(ours, &claim("a")).await;
    assert_eq!(third.token.get(), second.token.get() + 3_600_000_001, "the clock was behind the token");
    assert_eq!(ours.release(&third).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn tokens_rise_and_claims_are_idempotent() {
    let table = Table::new().await;
    tokens_rise(&table, &table.open().await, &table.open().await).await;
}

/// The upsert relies on assignments being made from left to right, which a mode of `MariaDB` changes.
#[tokio::test]
async fn another_mode_of_assignment_changes_nothing() {
    let table = Table::new().await;
    let connect: sqlx::mysql::MySqlConnectOptions = table.url.parse().unwrap();
    // The driver puts the time zone into the first statement of a session.
    let connect = connect.timezone(Some("+00:00', sql_mode = 'SIMULTANEOUS_ASSIGNMENT".to_owned()));
    let pool = sqlx::mysql::MySqlPoolOptions::new().connect_with(connect).await.unwrap();
    let mode: String = sqlx::query_scalar("SELECT @@sql_mode").fetch_one(&pool).await.unwrap();
    assert!(mode.contains("SIMULTANEOUS_ASSIGNMENT"), "{mode}");
    let options = || MySqlOptions::default().table(&table.name);
    let ours = MySqlBackend::from_pool(&pool, options()).await.unwrap();
    let theirs = MySqlBackend::from_pool(&pool, options()).await.unwrap();
    tokens_rise(&table, &ours, &theirs).await;
}

#[tokio::test]
async fn a_batch_is_renewed_and_each_is_answered() {
    let table = Table::new().await;
    let backend = table.open().await;
    let mut grants = Vec::new();
    for number in 0..50 {
        grants.push(granted(&backend, &claim(&format!("ü{number}"))).await);
    }
    assert_eq!(backend.renew(&grants).await.unwrap(), [Renewal::Renewed; 50]);
    table.execute("UPDATE {t} SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE name = 'ü7'").await;
    table.execute("DELETE FROM {t} WHERE name = 'ü8'").await;
    assert_eq!(backend.force_release(&grants[9].name).await.unwrap().len(), 1);
    for (number, answer) in backend.renew(&grants).await.unwrap().into_iter().enumerate() {
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
    blocker.execute(table.sql("UPDATE {t} SET host = 'x'")).await.unwrap();
    let dropped = claim("a");
    {
        let mut asking = pin!(backend.try_acquire(&dropped));
        assert!(asking.as_mut().now_or_never().is_none());
        let runs = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%INSERT INTO `{t}`%' AND id <> CONNECTION_ID()";
        until(async || table.number(runs).await == 1).await;
    }
    let mut withdrawing = pin!(backend.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    blocker.commit().await.unwrap();
    withdrawing.await.unwrap();
    let token = table.number("SELECT token FROM {t} WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
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
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
}

#[tokio::test]
async fn idle_rows_go_and_tokens_rise_though_the_clock_went_back() {
    let table = Table::new().await;
    let backend = table.open().await;
    for text in ["old", "older", "used"] {
        let grant = granted(&backend, &claim(text)).await;
        backend.release(&grant).await.unwrap();
    }
    table.execute("UPDATE {t} SET expires_at = expires_at - INTERVAL 2 DAY WHERE name LIKE 'old%'").await;
    table.execute("UPDATE {t} SET token = token + 3600000000").await;
    let greatest = table.number("SELECT MAX(token) FROM {t} WHERE name LIKE 'old%'").await;
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
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(1).connect(&table.url).await.unwrap();
    // The application has the whole pool in use.
    let _transaction = pool.begin().await.unwrap();
    let options = MySqlOptions::default().table(&table.name);
    let backend = MySqlBackend::from_pool(&pool, options).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}
