//! Lease rows on a server.

use crate::{
    Claim, Duration, Grant, Kind, LONG, RELEASED, Table, busy,
    case::cases,
    claim,
    format::{rows_are_written_as_the_page_says, rows_of_the_page_are_read},
    granted,
    lease_rows::{
        Rows, batch_is_renewed_and_each_is_answered, clients_with_a_queue_and_without_exclude_each_other,
        idle_rows_swept_tokens_kept, mark_of_a_waiter_keeps_readers_out_until_it_ends,
        row_that_cannot_be_renewed_costs_no_other_its_lease, row_that_is_not_ours_says_so_and_lets_nobody_in,
        token_follows_the_last_where_the_clock_is_behind,
    },
    reader, soon,
    store::Store,
    until,
};
use futures_util::{FutureExt, future::join_all};
use std::{pin::pin, slice, sync::Arc};
use tenure_core::{AttemptAll, Backend, Renewal};
use tokio::task::JoinHandle;

cases!("leases":
    rows_are_written_as_the_page_says.of_lease_rows(), rows_of_the_page_are_read.of_lease_rows(),
    token_follows_the_last_where_the_clock_is_behind.of_lease_rows(),
    batch_is_renewed_and_each_is_answered.on(ALL).of_lease_rows(),
    mark_of_a_waiter_keeps_readers_out_until_it_ends.of_lease_rows(),
    idle_rows_swept_tokens_kept.of_lease_rows(),
    row_that_is_not_ours_says_so_and_lets_nobody_in.of_lease_rows(),
    row_that_cannot_be_renewed_costs_no_other_its_lease.on(ALL).of_lease_rows(),
    queue_is_served_in_order_in_every_mode.on(&[Kind::Pgbouncer, Kind::Mysql]).of_lease_rows(),
    clients_with_a_queue_and_without_exclude_each_other.of_lease_rows(),
    claims_dropped_on_their_way_are_withdrawn_behind_their_grants.of_lease_rows(),
    a_dropped_table_is_made_anew,
    one_who_comes_and_goes_leaves_others_a_moment.of_lease_rows().alone(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];

/// The server carries a statement out though its caller stopped waiting: here it waits for a row's lock when its future
/// is dropped, and gets it after the withdrawal was asked for. PostgreSQL also has one statement for several names, whose
/// claims are withdrawn one by one, over all connections.
async fn claims_dropped_on_their_way_are_withdrawn_behind_their_grants(table: &Table) {
    // The server waits for the row until it has been looked at.
    let store = table.options().response_timeout(LONG).open().await.unwrap();
    let alone = table.either("INSERT INTO {q}{t}{q} AS held", "UPDATE {q}{t}{q} AS held SET%GREATEST");
    let together = ("WITH asked AS (%{q}{t}{q} AS held", &["a", "b", "c", "d", "e", "f"][..]);
    let rounds = table.either(vec![(alone, &["a"][..]), together], vec![(alone, &["a"][..])]);
    for (asks, names) in rounds {
        let mut last = 0;
        for name in names {
            let earlier = granted(&store, &claim(name)).await;
            assert_eq!(store.release(&earlier).await.unwrap(), RELEASED);
            last = last.max(earlier.token.as_i64());
        }
        let mut blocker = table.raw().await;
        blocker.execute("BEGIN").await;
        blocker.execute(&table.sql("UPDATE {t} SET host = 'x'")).await;
        let dropped: Vec<Claim> = names.iter().map(|name| claim(name)).collect();
        {
            let mut asking = pin!(async {
                match &dropped[..] {
                    [alone] => store.try_acquire(alone).await.map(drop),
                    all => store.try_acquire_all(all).await.map(drop),
                }
            });
            assert!(asking.as_mut().now_or_never().is_none());
            // Not the sweep, which inserts too.
            table.until_asked(&table.sql(asks)).await;
        }
        let mut withdrawing = pin!(join_all(dropped.iter().map(|claim| store.withdraw(claim))));
        assert!(withdrawing.as_mut().now_or_never().is_none());
        blocker.execute("COMMIT").await;
        assert!(soon(withdrawing).await.iter().all(Result::is_ok));
        let least = table.number("SELECT MIN(token) FROM {t} WHERE name <> ''").await;
        assert!(least > last, "the dropped request was never carried out: this shows nothing");
        assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await, 0);
    }
    if table.is_postgres() {
        a_set_of_which_a_part_is_taken_meanwhile_is_not_granted(table, &store).await;
    }
}

/// The set looks free when it is asked for, and one of its names is not when its row's turn comes.
async fn a_set_of_which_a_part_is_taken_meanwhile_is_not_granted(table: &Table, store: &Store) {
    let mut other = table.raw().await;
    other.execute("BEGIN").await;
    let take = "claim = gen_random_uuid(), expires_at = {now} + 3600 * {second} WHERE name = 'b'";
    other.execute(&table.sql(&format!("UPDATE {{t}} SET version = version + 1, {take}"))).await;
    let asks = store.clone();
    let asking = tokio::spawn(async move { asks.try_acquire_all(&["a", "b"].map(claim)).await });
    table.until_asked(&table.sql("WITH asked AS (%{q}{t}{q} AS held")).await;
    other.execute("COMMIT").await;
    let answer = soon(asking).await.unwrap().unwrap();
    assert!(matches!(answer, AttemptAll::Busy), "{answer:?}");
    granted(store, &claim("a")).await;
}

/// Until when those in the queue of "a" keep their places, in microseconds.
async fn places(table: &Table) -> Vec<u64> {
    let record = table.record("a").await;
    let queue = record.as_ref().and_then(|record| record["queue"].as_array()).into_iter().flatten();
    queue.map(|place| place["until"].as_u64().unwrap()).collect()
}

/// From now on, those in the queue keep their places for so long without being heard of.
pub(crate) async fn keep_places(table: &Table, places: Duration) {
    let now = u64::try_from(table.number("SELECT {now}").await).unwrap() * 1000;
    let until = now + u64::try_from(places.as_micros()).unwrap();
    let mut record = table.record("a").await.unwrap();
    for place in record["queue"].as_array_mut().unwrap() {
        place["until"] = until.into();
    }
    table.set_record("a", &record).await;
}

/// Waits in a client of its own, and stands in the queue when this returns.
pub(crate) async fn waiter(table: &Table, claim: Claim) -> JoinHandle<(Arc<dyn Backend>, Grant)> {
    let (before, store) = (places(table).await.len(), table.client(true).await);
    let task = tokio::spawn(async move {
        let grant = store.acquire(&Claim { waits: true, ..claim }).await.unwrap();
        (store, grant)
    });
    until(async || places(table).await.len() == before + 1).await;
    task
}

/// Those who share come in together, up to the first who waits to be alone. The suite plays random histories with a
/// queue in the other databases.
async fn queue_is_served_in_order_in_every_mode(table: &Table) {
    let ours = table.client(true).await;
    assert!(ours.capabilities().fair);
    let held = granted(&ours, &claim("a")).await;
    let readers = [waiter(table, reader("a")).await, waiter(table, reader("a")).await];
    let writer = waiter(table, claim("a")).await;
    let late = waiter(table, reader("a")).await;
    // Each keeps its place longer than one that is not heard of.
    let first = places(table).await;
    until(async || places(table).await.iter().zip(&first).all(|(now, first)| now - first > 3_000_000)).await;
    // Otherwise a machine that stalls while they are served costs one of them its place.
    keep_places(table, Duration::from_mins(5)).await;
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
    let (mut last, mut reading) = (held.token, Vec::new());
    for task in readers {
        reading.push(soon(task).await.unwrap());
    }
    busy(&ours, &reader("a")).await;
    assert!(!writer.is_finished() && !late.is_finished(), "a reader overtook");
    for (theirs, grant) in reading {
        assert_eq!(theirs.release(&grant).await.unwrap(), RELEASED);
        last = last.max(grant.token);
    }
    let (theirs, writing) = soon(writer).await.unwrap();
    assert!(!late.is_finished(), "a reader beside a writer");
    assert_eq!(theirs.release(&writing).await.unwrap(), RELEASED);
    let (theirs, reading) = soon(late).await.unwrap();
    assert_eq!(theirs.release(&reading).await.unwrap(), RELEASED);
    assert!(last < writing.token && writing.token < reading.token);
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE name = 'a' AND record IS NULL").await, 1);
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

/// A reader beside one that relocks without a pause gets its lease renewed, and a third is let in.
async fn one_who_comes_and_goes_leaves_others_a_moment(table: &Table) {
    let (ours, theirs, third) = (table.open().await, table.open().await, table.open().await);
    let held = granted(&theirs, &reader("a")).await;
    let comes_and_goes = async {
        loop {
            let beside = granted(&ours, &reader("a")).await;
            assert_eq!(ours.release(&beside).await.unwrap(), RELEASED);
        }
    };
    let others = async {
        for _ in 0..20 {
            let renewal =
                async { while theirs.renew(slice::from_ref(&held)).await.unwrap() != [Renewal::Renewed] {} };
            soon(renewal).await;
            let beside = soon(granted(&third, &reader("a"))).await;
            assert_eq!(soon(third.release(&beside)).await.unwrap(), RELEASED);
        }
    };
    tokio::select! {
        () = comes_and_goes => {}
        () = others => {}
    }
    assert_eq!(theirs.release(&held).await.unwrap(), RELEASED);
}
