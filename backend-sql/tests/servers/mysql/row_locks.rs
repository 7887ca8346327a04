//! Rows that are locked.

use super::*;
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::{LossCause, Standing};
use tenure_sql::Strategy;

fn options(table: &Table) -> MySqlOptions {
    table.options().strategy(Strategy::RowLock)
}

async fn open(table: &Table) -> MySqlBackend {
    MySqlBackend::connect(options(table)).await.unwrap()
}

/// The connection of the claim's transaction; 0 when there is none.
async fn connection(table: &Table, claim: &Claim) -> i64 {
    let used = "SELECT CAST(COALESCE(IS_USED_LOCK('tenure/{c}'), 0) AS SIGNED)";
    table.number(&used.replace("{c}", &claim.id.to_string())).await
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
    // By the whole key: a search for it would wait for the row that is locked.
    let ahead = "UPDATE {t} SET token = token + 3600000000 WHERE prefix = '' AND name = 'a' AND part = 1";
    table.execute(ahead).await;
    table.execute(&format!("KILL {}", connection(&table, &mine).await)).await;
    let second = theirs.acquire(&waiting("a")).await.unwrap();
    assert_eq!(second.token.get(), first.token.get() + 3_600_000_001, "the clock was behind the token");
    assert_eq!(theirs.release(&second).await.unwrap(), RELEASED);
    assert_eq!(theirs.release(&second).await.unwrap(), Release::NotHeld(LossCause::SessionEnded));
}

#[tokio::test]
async fn a_cancelled_wait_leaves_the_queue() {
    let table = Table::new().await;
    let (ours, theirs) = (open(&table).await, open(&table).await);
    let grant = granted(&ours, &claim("a")).await;
    let waits = waiting("a");
    {
        let mut acquiring = pin!(theirs.acquire(&waits));
        assert!(acquiring.as_mut().now_or_never().is_none());
        let queued = "SELECT COUNT(*) FROM information_schema.processlist \
                      WHERE info LIKE '%FROM `{t}`%FOR UPDATE' AND id <> CONNECTION_ID()";
        until(async || table.number(queued).await == 1).await;
    }
    theirs.withdraw(&waits).await.unwrap();
    until(async || connection(&table, &waits).await == 0).await;
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let next = granted(&theirs, &claim("a")).await;
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

/// The client is there, and its connection too, but nothing comes over it any more.
#[tokio::test]
async fn the_server_ends_a_holder_of_whom_it_hears_nothing() {
    let table = Table::new().await;
    let lease = Duration::from_secs(1);
    let (options, held) = (options(&table), Claim { lease, ..claim("a") });
    let frozen = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let grant = runtime.block_on(async {
            let backend = MySqlBackend::connect(options).await.unwrap();
            granted(&backend, &held).await
        });
        // From now on nobody runs it, as when its process is stopped.
        (runtime, grant)
    });
    let (runtime, grant) = frozen.await.unwrap();
    let granted_at = std::time::Instant::now();
    let next = tokio::time::timeout(LONG, async { open(&table).await.acquire(&waiting("a")).await });
    let next = next.await.expect("the dead holder was not ended").unwrap();
    assert!(granted_at.elapsed() < lease + Duration::from_secs(3), "{:?}", granted_at.elapsed());
    assert!(next.token > grant.token);
    assert_eq!(lost(&grant).await, LossCause::SessionEnded);
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
    let grant = ours.acquire(&next).await.unwrap();
    table.execute(&format!("KILL {}", connection(&table, &next).await)).await;
    assert_eq!(lost(&grant).await, LossCause::SessionEnded);
}

#[tokio::test]
async fn one_connection_too_many_is_refused_and_says_so() {
    let table = Table::new().await;
    let backend = MySqlBackend::connect(options(&table).connections(2)).await.unwrap();
    let grants = [granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await];
    let error = backend.try_acquire(&claim("c")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("connections"), "{error}");
    for grant in &grants {
        assert_eq!(backend.release(grant).await.unwrap(), RELEASED);
    }
    granted(&backend, &claim("c")).await;
}

#[tokio::test]
async fn a_missing_table() {
    let table = Table::new().await;
    let error = MySqlBackend::connect(options(&table).create_table(false)).await.unwrap_err();
    assert!(chain(&error).contains(&table.name), "{}", chain(&error));
    table.execute(&tenure_sql::mysql_row_schema(&table.name).unwrap()).await;
    let backend = MySqlBackend::connect(options(&table).create_table(false)).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    backend.release(&grant).await.unwrap();
    // It is made anew, and tokens rise on.
    drop(backend);
    let backend = open(&table).await;
    table.execute("DROP TABLE {t}").await;
    assert!(granted(&backend, &claim("a")).await.token > grant.token);
}
