//! Lease rows in fair mode: the queue in a name's row.

use crate::{
    Claim, Duration, Grant, Kind, Mode, RELEASED, Store, Table, busy, case::cases, claim, granted, soon,
    until, waiting,
};
use sqlx::postgres::PgListener;
use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::{Instant, SystemTime},
};
use tenure_core::{Attempt, Conversion, Guard};
use tokio::task::JoinHandle;

cases!("fair":
    first_come_first_served.on(EVERYWHERE).of_lease_rows(), dead_waiters_delay_the_others_for_a_moment.of_lease_rows(),
    whoever_gives_up_leaves_at_once.of_lease_rows(), a_try_neither_overtakes_nor_joins.of_lease_rows(),
    every_mode_stands_in_one_line.on(EVERYWHERE).of_lease_rows(),
    nobody_overtakes_who_waits_for_many_permits.on(EVERYWHERE).of_lease_rows(),
    a_claim_asked_for_again_is_the_same.of_lease_rows(), those_with_a_queue_and_those_without_exclude_each_other.of_lease_rows(),
    force_lets_the_next_in.of_lease_rows(), the_next_is_told_and_nobody_else.on(&[Kind::Postgres]).of_lease_rows(),
);

/// Behind a pooler too, which knows neither prepared statements nor notifications.
const EVERYWHERE: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];

/// As long as a dead waiter keeps its place.
const LIVES: Duration = Duration::from_secs(3);
/// As long as one keeps it that is not to lose it during a case.
const KEPT: Duration = Duration::from_mins(5);
/// What an idle machine may take beside.
const SLACK: Duration = Duration::from_millis(700);

async fn fair(table: &Table) -> Store {
    table.options().fair().open().await.unwrap()
}

/// How many stand in the queue.
async fn standing(table: &Table) -> usize {
    let record = table.record("a").await;
    record.and_then(|record| record["queue"].as_array().map(Vec::len)).unwrap_or(0)
}

fn reader(text: &str) -> Claim {
    Claim { mode: Mode::Shared, ..waiting(text) }
}

fn permits(text: &str, take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..waiting(text) }
}

/// Waits in a client of its own, and stands in the queue when this returns.
async fn waiter(table: &Table, claim: Claim) -> JoinHandle<(Store, Grant, Instant)> {
    let (before, backend) = (standing(table).await, fair(table).await);
    let task = tokio::spawn(async move {
        let grant = backend.acquire(&claim).await.unwrap();
        (backend, grant, Instant::now())
    });
    until(async || standing(table).await == before + 1).await;
    task
}

/// Stands in the queue, and is never heard of again: nothing above the store withdraws it.
async fn dead(table: &Table, claim: &Claim) {
    let backend = fair(table).await;
    let before = standing(table).await;
    let acquiring = tokio::spawn({
        let claim = claim.clone();
        async move { backend.acquire(&claim).await.map(drop) }
    });
    until(async || standing(table).await == before + 1).await;
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
}

/// A moment from now, as the record has it.
fn in_micros(from_now: Duration) -> u64 {
    let moment = (SystemTime::now() + from_now).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(moment.as_micros()).unwrap()
}

/// How many of those in the queue were heard of in time.
async fn alive(table: &Table) -> usize {
    let (record, now) = (table.record("a").await.unwrap(), in_micros(Duration::ZERO));
    let queue = record["queue"].as_array().into_iter().flatten();
    queue.filter(|place| place["until"].as_u64().is_some_and(|until| until > now)).count()
}

/// From now on, those in the queue keep their places for so long without being heard of. Otherwise a machine that stalls for
/// a second while they are served costs one of them its place.
async fn keep_places(table: &Table, places: Duration) {
    let until = in_micros(places);
    let mut record = table.record("a").await.unwrap();
    for place in record["queue"].as_array_mut().unwrap() {
        place["until"] = until.into();
    }
    table.set_record("a", &record).await;
}

async fn first_come_first_served(table: &Table) {
    let ours = fair(table).await;
    assert!(ours.capabilities().fair);
    let held = granted(&ours, &Claim { lease: Duration::from_mins(5), ..claim("a") }).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (task, served) = (waiter(table, waiting("a")).await, Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let (backend, grant, _) = task.await.unwrap();
            served.lock().unwrap().push((number, grant.token));
            assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
        }));
    }
    // All of them keep their places for longer than one that is not heard of.
    tokio::time::sleep(LIVES * 2).await;
    until(async || alive(table).await == 6).await;
    keep_places(table, KEPT).await;
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
    for task in tasks {
        task.await.unwrap();
    }
    let served = served.lock().unwrap().clone();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(served.is_sorted_by(|(_, one), (_, next)| one < next), "{served:?}");
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE name = 'a' AND record IS NULL").await, 1);
}

/// However many they are.
async fn dead_waiters_delay_the_others_for_a_moment(table: &Table) {
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    for _ in 0..3 {
        dead(table, &waiting("a")).await;
    }
    let task = waiter(table, waiting("a")).await;
    let released = Instant::now();
    ours.release(&held).await.unwrap();
    let left = busy(&ours, &claim("a")).await.unwrap();
    // On a busy machine the dead may be gone by now, and the waiter has it.
    let is_held = !ours.holders(&held.name).await.unwrap().is_empty();
    assert!(left <= LIVES || is_held, "a try is told when that may change: {left:?}");
    let (theirs, next, when) = task.await.unwrap();
    let waited = when - released;
    assert!(waited < LIVES * 3, "{waited:?}");
    assert_eq!(standing(table).await, 0, "the dead are still in the queue");
    theirs.release(&next).await.unwrap();
}

async fn whoever_gives_up_leaves_at_once(table: &Table) {
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    let locks = fair(table).await.locks();
    let lock = locks.lock("a");
    let task = tokio::spawn(async move { lock.acquire().await.map(drop) });
    until(async || standing(table).await == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    locks.close().await;
    assert_eq!(standing(table).await, 0);
    ours.release(&held).await.unwrap();
    granted(&ours, &claim("a")).await;
}

async fn a_try_neither_overtakes_nor_joins(table: &Table) {
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    for claim in [claim("a"), waiting("a")] {
        busy(&ours, &claim).await;
    }
    assert_eq!(standing(table).await, 0, "a try joined");
    dead(table, &waiting("a")).await;
    // For as long as a busy machine may take for the tries.
    keep_places(table, KEPT).await;
    ours.release(&held).await.unwrap();
    for claim in [claim("a"), Claim { waits: false, ..reader("a") }, permits("a", 1, 5)] {
        let left = busy(&ours, &claim).await.unwrap();
        assert!(left > LIVES && left <= KEPT, "{} overtook: {left:?}", claim.mode);
    }
    keep_places(table, Duration::ZERO).await;
    until(async || matches!(ours.try_acquire(&claim("a")).await.unwrap(), Attempt::Granted(_))).await;
}

/// Those who share come in together, up to the first who waits to be alone; nobody who comes later does.
async fn every_mode_stands_in_one_line(table: &Table) {
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    let readers = [waiter(table, reader("a")).await, waiter(table, reader("a")).await];
    let writer = waiter(table, waiting("a")).await;
    let late = waiter(table, reader("a")).await;
    keep_places(table, KEPT).await;
    ours.release(&held).await.unwrap();
    let mut reading = Vec::new();
    for task in readers {
        reading.push(task.await.unwrap());
    }
    busy(&ours, &Claim { waits: false, ..reader("a") }).await;
    tokio::time::sleep(SLACK).await;
    assert!(!writer.is_finished() && !late.is_finished(), "somebody overtook");
    for (theirs, grant, _) in reading {
        assert_eq!(theirs.release(&grant).await.unwrap(), RELEASED);
    }
    let (theirs, mut writing, _) = writer.await.unwrap();
    assert!(!late.is_finished(), "a reader beside a writer");
    assert_eq!(theirs.convert(&writing, Mode::Shared).await.unwrap(), Conversion::Converted);
    writing.mode = Mode::Shared;
    let (others, reading, _) = late.await.unwrap();
    assert_eq!(standing(table).await, 0);
    for (backend, grant) in [(theirs, writing), (others, reading)] {
        assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    }
}

async fn nobody_overtakes_who_waits_for_many_permits(table: &Table) {
    let ours = fair(table).await;
    let held = [granted(&ours, &permits("a", 2, 4)).await, granted(&ours, &permits("a", 1, 4)).await];
    let many = waiter(table, permits("a", 3, 4)).await;
    let few = waiter(table, permits("a", 2, 4)).await;
    keep_places(table, KEPT).await;
    busy(&ours, &permits("a", 1, 4)).await;
    ours.release(&held[1]).await.unwrap();
    tokio::time::sleep(SLACK).await;
    assert!(!many.is_finished() && !few.is_finished(), "somebody overtook");
    ours.release(&held[0]).await.unwrap();
    let (theirs, many, _) = many.await.unwrap();
    assert!(!few.is_finished(), "5 of 4 permits are out");
    assert_eq!(theirs.release(&many).await.unwrap(), RELEASED);
    assert!(few.await.unwrap().1.token > many.token);
}

async fn a_claim_asked_for_again_is_the_same(table: &Table) {
    let ours = fair(table).await;
    for mine in [waiting("a"), reader("a")] {
        let first = granted(&ours, &mine).await;
        dead(table, &waiting("a")).await;
        assert_eq!(granted(&ours, &mine).await.token, first.token, "{}", mine.mode);
        assert_eq!(ours.acquire(&mine).await.unwrap().token, first.token, "{}", mine.mode);
        assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
        tokio::time::sleep(LIVES + SLACK).await;
    }
}

/// A write for each acquire and release, as without a queue; and few while one waits.
async fn those_with_a_queue_and_those_without_exclude_each_other(table: &Table) {
    let (with, without) = (fair(table).await.locks(), table.locks().await);
    for (one, other) in [(&with, &without), (&without, &with)] {
        let guard = one.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_none());
        let lock = other.lock("a").wait(Duration::from_secs(10));
        let task: JoinHandle<Result<Guard, _>> = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!task.is_finished());
        guard.release().await.unwrap();
        task.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn force_lets_the_next_in(table: &Table) {
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    let task = waiter(table, waiting("a")).await;
    assert_eq!(ours.force_release(&held.name).await.unwrap().len(), 1);
    let (theirs, next, _) = soon(task).await.unwrap();
    assert!(next.token > held.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

/// Whoever is let in beside others tells the next, if it may be let in too.
async fn the_next_is_told_and_nobody_else(table: &Table) {
    let mut listener = PgListener::connect(&table.server.url()).await.unwrap();
    listener.listen(&table.name).await.unwrap();
    let mut told = async || soon(listener.recv()).await.unwrap().payload().to_owned();
    let ours = fair(table).await;
    let held = granted(&ours, &claim("a")).await;
    let claims = [waiting("a"), reader("a"), reader("a"), waiting("a")];
    for claim in &claims {
        dead(table, claim).await;
    }
    // They ask no more by themselves, and keep their places all the same.
    keep_places(table, KEPT).await;
    let words = |claim: &Claim| format!("\na\n{}", claim.id);
    ours.release(&held).await.unwrap();
    assert_eq!(told().await, words(&claims[0]));
    let writing = granted(&ours, &claims[0]).await;
    ours.release(&writing).await.unwrap();
    let mut reading = Vec::new();
    for claim in &claims[1..3] {
        assert_eq!(told().await, words(claim));
        reading.push(granted(&ours, claim).await);
    }
    // The writer is told once both of them have gone, and not before.
    for reading in reading {
        busy(&ours, &claims[3]).await;
        ours.release(&reading).await.unwrap();
    }
    assert_eq!(told().await, words(&claims[3]));
    granted(&ours, &claims[3]).await;
    table.execute("NOTIFY {t}, 'the last'").await;
    assert_eq!(told().await, "the last");
}
