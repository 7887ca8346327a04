//! Behind a real PgBouncer in transaction mode.

use crate::{Duration, Kind, LONG, RELEASED, Table, busy, case::cases, claim, granted, soon, until, waiting};
use tenure_core::Renewal;
use tenure_sql::Strategy;
use tokio::task::JoinSet;

cases!("faults": pooler_in_transaction_mode.on(&[Kind::Pgbouncer]), clients_take_turns.on(&[Kind::Pgbouncer]));

async fn pooler_in_transaction_mode(table: &Table) {
    match table.strategy {
        Strategy::LeaseRow => lease_rows(table).await,
        _ => row_locks(table).await,
    }
    table.until_nothing_is_locked().await;
}

async fn lease_rows(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let grant = granted(&ours, &claim("a")).await;
    busy(&theirs, &claim("a")).await;
    assert_eq!(ours.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    let waiter = theirs.clone();
    let acquiring = tokio::spawn(async move { waiter.acquire(&waiting("a")).await });
    until(async || table.number("SELECT count(*) FROM {t} WHERE awaited_until > {now}").await == 1).await;
    ours.release(&grant).await.unwrap();
    let next = soon(acquiring).await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

async fn row_locks(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
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
    let next = soon(acquiring).await.unwrap().unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.force_release(&held.name).await.unwrap().len(), 1);
    let after = ours.acquire(&waiting("a")).await.unwrap();
    assert!(after.token > next.token);
    assert_eq!(ours.release(&after).await.unwrap(), RELEASED);
}

async fn clients_take_turns(table: &Table) {
    let mut turns = JoinSet::new();
    for _ in 0..4 {
        let locks = table.locks().await;
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
    table.until_nothing_is_locked().await;
}
