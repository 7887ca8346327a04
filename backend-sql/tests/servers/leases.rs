//! Lease rows: acquiring, releasing, withdrawing, renewing.

use crate::{
    Duration, Kind, LEASE, LONG, LossCause, RELEASED, Release, Store, Table, busy, case::cases, claim,
    granted,
};
use futures_util::FutureExt;
use std::pin::pin;
use tenure_core::Renewal;

cases!("leases":
    tokens_rise_and_claims_are_idempotent.of_lease_rows(), a_batch_is_renewed_and_each_is_answered.of_lease_rows(),
    a_claim_dropped_on_its_way_is_withdrawn_behind_its_grant.of_lease_rows(), a_pool_lends_its_settings.of_lease_rows(),
    an_idle_connection_that_was_ended_is_opened_anew.of_lease_rows(), a_dropped_table_is_made_anew,
);

async fn tokens_rise_and_claims_are_idempotent(table: &Table) {
    tokens_rise(table, &table.open().await, &table.open().await).await;
}

pub(crate) async fn tokens_rise(table: &Table, ours: &Store, theirs: &Store) {
    let mine = claim("a");
    let first = granted(ours, &mine).await;
    assert_eq!(granted(ours, &mine).await.token, first.token);
    let left = busy(theirs, &claim("a")).await.unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
    assert_eq!(ours.release(&first).await.unwrap(), Release::Lost(LossCause::Expired));
    let second = granted(theirs, &claim("a")).await;
    assert!(second.token > first.token);
    assert_eq!(ours.release(&first).await.unwrap(), Release::Lost(LossCause::TakenOver));
    table.execute("UPDATE {t} SET token = token + 3600000000").await;
    table.execute("UPDATE {t} SET expires_at = {now} - {second}").await;
    let third = granted(ours, &claim("a")).await;
    assert_eq!(third.token.get(), second.token.get() + 3_600_000_001, "the clock was behind the token");
    assert_eq!(ours.release(&third).await.unwrap(), RELEASED);
}

async fn a_batch_is_renewed_and_each_is_answered(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for number in 0..50 {
        grants.push(granted(&store, &claim(&format!("ü{number}"))).await);
    }
    assert_eq!(store.renew(&grants).await.unwrap(), [Renewal::Renewed; 50]);
    table.execute("UPDATE {t} SET expires_at = {now} - {second} WHERE name = 'ü7'").await;
    table.execute("DELETE FROM {t} WHERE name = 'ü8'").await;
    assert_eq!(store.force_release(&grants[9].name).await.unwrap().len(), 1);
    for (number, answer) in store.renew(&grants).await.unwrap().into_iter().enumerate() {
        let expected = match number {
            7 => Renewal::Lost(LossCause::Expired),
            8 => Renewal::Lost(LossCause::Forgotten),
            9 => Renewal::Lost(LossCause::Forced),
            _ => Renewal::Renewed,
        };
        assert_eq!(answer, expected, "{number}");
    }
}

/// The server carries a statement out although nobody waits for it any more: here it waits for a row's lock when its future
/// is dropped, and gets it after the withdrawal was asked for.
async fn a_claim_dropped_on_its_way_is_withdrawn_behind_its_grant(table: &Table) {
    // The server waits for the row until it has been looked at.
    let store = table.options().response_timeout(LONG).open().await.unwrap();
    let earlier = granted(&store, &claim("a")).await;
    store.release(&earlier).await.unwrap();
    let mut blocker = table.raw().await;
    blocker.execute("BEGIN").await;
    blocker.execute(&table.sql("UPDATE {t} SET host = 'x'")).await;
    let dropped = claim("a");
    {
        let mut asking = pin!(store.try_acquire(&dropped));
        assert!(asking.as_mut().now_or_never().is_none());
        // Not the sweep, which inserts too.
        let asks = table.either("INSERT INTO {q}{t}{q} AS held", "UPDATE {q}{t}{q} AS held SET%GREATEST");
        table.until_asked(&table.sql(asks)).await;
    }
    let mut withdrawing = pin!(store.withdraw(&dropped));
    assert!(withdrawing.as_mut().now_or_never().is_none());
    blocker.execute("COMMIT").await;
    withdrawing.await.unwrap();
    let token = table.number("SELECT token FROM {t} WHERE name = 'a'").await;
    assert!(token > earlier.token.as_i64(), "the dropped request was never carried out: this shows nothing");
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
    granted(&table.open().await, &claim("a")).await;
}

/// The application may have all of its pool in use: the connections are tenure's own.
async fn a_pool_lends_its_settings(table: &Table) {
    let (setting, value) = table.either(("application_name", "of-a-pool"), ("max_execution_time", "0"));
    let setting = if table.server.kind() == Kind::Mariadb { "max_statement_time" } else { setting };
    let store = table.options().open_with(setting, value).await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

/// The server ends what has been idle for long, and says so in different ways.
async fn an_idle_connection_that_was_ended_is_opened_anew(table: &Table) {
    let (setting, value) = table.either(("idle_session_timeout", "3000"), ("wait_timeout", "3"));
    let store = table.options().open_with(setting, value).await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    busy(&store, &claim("a")).await;
    assert_eq!(store.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
}

async fn a_dropped_table_is_made_anew(table: &Table) {
    let store = table.open_with_row("a").await;
    let before = granted(&store, &claim("b")).await;
    store.release(&before).await.unwrap();
    table.execute("DROP TABLE {t}").await;
    // The other row lock's connection is opened now.
    let (again, other) = (claim("b"), claim("c"));
    let (after, other) = tokio::join!(granted(&store, &again), granted(&store, &other));
    assert!(after.token > before.token);
    for grant in [&after, &other] {
        assert_eq!(store.release(grant).await.unwrap(), RELEASED);
    }
}
