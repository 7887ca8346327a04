//! Rows that are locked.

use super::*;
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::{Locks, LossCause, Standing};
use tenure_sql::Strategy;

fn options(table: &Table) -> PostgresOptions {
    table.options().strategy(Strategy::RowLock)
}

async fn open(table: &Table) -> PostgresBackend {
    PostgresBackend::connect(options(table)).await.unwrap()
}

/// How many connections show the claim.
async fn shown(table: &Table, claim: &Claim) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure {c}'";
    table.number(&count.replace("{c}", &claim.id.to_string())).await
}

/// Ends the connection of the claim's transaction.
async fn terminate(table: &Table, claim: &Claim) {
    let end =
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'tenure {c}'";
    table.execute(&end.replace("{c}", &claim.id.to_string())).await;
}

async fn lost(grant: &Grant) -> LossCause {
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    tokio::time::timeout(LONG, liveness.ended()).await.expect("it was not lost")
}

#[tokio::test]
async fn tokens_rise_also_past_a_holder_that_was_rolled_back() {
    let table = Table::new().await;
    let (ours, theirs) = (open(&table).await, open(&table).await);
    let mine = claim("a");
    let first = granted(&ours, &mine).await;
    assert_eq!(granted(&ours, &mine).await.token, first.token);
    busy(&theirs, &claim("a")).await;
    table.execute("UPDATE {t} SET token = token + 3600000000 WHERE part = 1").await;
    terminate(&table, &mine).await;
    let second = granted(&theirs, &claim("a")).await;
    assert_eq!(second.token.get(), first.token.get() + 3_600_000_001, "the clock was behind the token");
    assert_eq!(theirs.release(&second).await.unwrap(), RELEASED);
    assert_eq!(theirs.release(&second).await.unwrap(), Release::NotHeld(LossCause::SessionEnded));
}

#[tokio::test]
async fn a_holder_is_shown_by_its_connection() {
    let table = Table::new().await;
    let backend = open(&table).await;
    let held = claim("a");
    let grant = granted(&backend, &held).await;
    assert_eq!(shown(&table, &held).await, 1);
    backend.release(&grant).await.unwrap();
    assert_eq!(shown(&table, &held).await, 0);
    assert!(backend.holders(&held.name).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cancelled_wait_leaves_the_queue_and_a_clean_connection() {
    let table = Table::new().await;
    let (ours, theirs) = (open(&table).await, open(&table).await);
    let grant = granted(&ours, &claim("a")).await;
    let waits = waiting("a");
    {
        let mut acquiring = pin!(theirs.acquire(&waits));
        assert!(acquiring.as_mut().now_or_never().is_none());
        let queued = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'tenure {}'",
            waits.id
        );
        until(async || table.number(&queued).await == 1).await;
    }
    theirs.withdraw(&waits).await.unwrap();
    assert_eq!(shown(&table, &waits).await, 0, "it still waits");
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let next = granted(&theirs, &claim("a")).await;
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    let open = "SELECT count(*) FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE relname = '{t}'";
    assert_eq!(table.number(open).await, 0, "a transaction was left open");
}

/// The client is there, and its connection too, but nothing comes over it any more.
#[tokio::test]
async fn the_server_ends_a_holder_of_whom_it_hears_nothing() {
    let table = Table::new().await;
    let lease = Duration::from_secs(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (options, held) = (options(&table), Claim { lease, ..claim("a") });
    let frozen = tokio::task::spawn_blocking(move || {
        let grant = runtime.block_on(async {
            let backend = PostgresBackend::connect(options).await.unwrap();
            granted(&backend, &held).await
        });
        // From now on nobody runs it, as when its process is stopped.
        (runtime, grant)
    });
    let (runtime, grant) = frozen.await.unwrap();
    let granted_at = std::time::Instant::now();
    let next = tokio::time::timeout(LONG, async { open(&table).await.acquire(&waiting("a")).await });
    let next = next.await.expect("the dead holder was not ended").unwrap();
    assert!(granted_at.elapsed() < lease + Duration::from_secs(2), "{:?}", granted_at.elapsed());
    assert!(next.token > grant.token);
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    assert_eq!(liveness.loss(), Some(LossCause::SessionEnded), "two believe");
    tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
}

#[tokio::test]
async fn a_holder_learns_why_it_was_put_out() {
    let table = Table::new().await;
    let (ours, theirs) = (open(&table).await, open(&table).await);
    let held = Claim { lease: Duration::from_secs(2), ..claim("a") };
    let grant = granted(&ours, &held).await;
    assert_eq!(theirs.force_release(&held.name).await.unwrap().len(), 1);
    assert_eq!(lost(&grant).await, LossCause::Forced);
    let next = Claim { id: ClaimId::new(), ..held };
    let grant = granted(&ours, &next).await;
    terminate(&table, &next).await;
    assert_eq!(lost(&grant).await, LossCause::SessionEnded);
}

#[tokio::test]
async fn one_connection_too_many_is_refused_and_says_so() {
    let table = Table::new().await;
    let backend = PostgresBackend::connect(options(&table).connections(2)).await.unwrap();
    let grants = [granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await];
    let error = backend.try_acquire(&claim("c")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("connections"), "{error}");
    for grant in &grants {
        assert_eq!(backend.release(grant).await.unwrap(), RELEASED);
    }
    granted(&backend, &claim("c")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_cancelled_acquisitions_leave_nothing() {
    let table = Table::new().await;
    let (ours, theirs) = (Locks::new(open(&table).await), Locks::new(open(&table).await));
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
    assert!(theirs.list("").await.unwrap().is_empty(), "a claim was left");
}

#[tokio::test]
async fn only_what_a_pooler_keeps_together_is_used() {
    let table = Table::new().await;
    let backend = PostgresBackend::connect(options(&table).pooler(true)).await.unwrap();
    let (held, next) = (claim("a"), waiting("a"));
    let grant = granted(&backend, &held).await;
    let other = PostgresBackend::connect(options(&table).pooler(true)).await.unwrap();
    let acquiring = tokio::spawn(async move { other.acquire(&next).await.map(|grant| (other, grant)) });
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    let (other, grant) = acquiring.await.unwrap().unwrap();
    assert_eq!(other.release(&grant).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn a_missing_table() {
    let table = Table::new().await;
    let error = PostgresBackend::connect(options(&table).create_table(false)).await.unwrap_err();
    assert!(chain(&error).contains(&table.name), "{}", chain(&error));
    table.execute(&tenure_sql::postgres_row_schema(&table.name).unwrap()).await;
    let backend = PostgresBackend::connect(options(&table).create_table(false)).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    backend.release(&grant).await.unwrap();
    // It is made anew, and tokens rise on.
    drop(backend);
    let backend = open(&table).await;
    table.execute("DROP TABLE {t}").await;
    assert!(granted(&backend, &claim("a")).await.token > grant.token);
}
