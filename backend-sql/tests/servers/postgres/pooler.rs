//! Behind a real PgBouncer in transaction mode.

use super::*;
use tenure_core::{Locks, Renewal};
use tenure_sql::Strategy;

static POOLED: OnceCell<Server> = OnceCell::const_new();

/// A table past the pooler, and the options that lead through it.
async fn pooled(strategy: Strategy) -> (Table, PostgresOptions) {
    let server = server(Kind::Pgbouncer, &POOLED).await;
    let table = Table { url: server.members()[1].url(), name: fresh_table() };
    let options = PostgresOptions::new(server.url()).table(&table.name).strategy(strategy);
    (table, options.pooler(true))
}

async fn open(options: &PostgresOptions) -> PostgresBackend {
    PostgresBackend::connect(options.clone()).await.unwrap()
}

/// Nothing is left open in the database on behalf of a client that is still there.
async fn all_is_clean(table: &Table) {
    let locked =
        "SELECT count(*) FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE relname = '{t}'";
    until(async || table.number(locked).await == 0).await;
}

#[tokio::test]
async fn lease_rows() {
    let (table, options) = pooled(Strategy::LeaseRow).await;
    let (ours, theirs) = (open(&options).await, open(&options).await);
    let grant = granted(&ours, &claim("a")).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(ours.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    let waiter = theirs.clone();
    let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
    until(async || table.number("SELECT count(*) FROM {t} WHERE awaited_until > now()").await == 1).await;
    ours.release(&grant).await.unwrap();
    let next = acquiring.await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    all_is_clean(&table).await;
}

#[tokio::test]
async fn row_locks() {
    let (table, options) = pooled(Strategy::RowLock).await;
    let (ours, theirs) = (open(&options).await, open(&options).await);
    let held = claim("a");
    let grant = granted(&ours, &held).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(theirs.holders(&held.name).await.unwrap().len(), 1);
    let waits = waiting("a");
    let gave_up = tokio::time::timeout(Duration::from_millis(300), theirs.acquire(&waits)).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    theirs.withdraw(&waits).await.unwrap();
    let waiter = theirs.clone();
    let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let next = acquiring.await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.force_release(&held.name).await.unwrap().len(), 1);
    let after = ours.acquire(&waiting("a")).await.unwrap();
    assert!(after.token > next.token);
    assert_eq!(ours.release(&after).await.unwrap(), RELEASED);
    all_is_clean(&table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_take_turns() {
    for strategy in [Strategy::LeaseRow, Strategy::RowLock] {
        let (table, options) = pooled(strategy).await;
        let mut turns = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let locks = Locks::new(open(&options).await);
            turns.spawn(async move {
                for _ in 0..5 {
                    locks.lock("a").wait(LONG).acquire().await.unwrap().release().await.unwrap();
                }
                locks.close().await;
            });
        }
        while let Some(turn) = turns.join_next().await {
            turn.unwrap();
        }
        all_is_clean(&table).await;
    }
}
