//! Fair mode: the queue in a name's row.

use super::*;
use std::{num::NonZeroU32, sync::Mutex, time::Instant};
use tenure_core::{Conversion, Guard, Locks, Release};
use tokio::task::JoinHandle;

const RELEASED: Release = Release::Released { awaited: false };
/// As long as a dead waiter keeps its place.
const LIVES: Duration = Duration::from_secs(3);
/// What an idle machine may take beside.
const SLACK: Duration = Duration::from_millis(700);
/// How many stand in the queue.
const STANDING: &str = "SELECT count(*) FROM tenure_locks, json_each(record, '$.queue')";
/// How many of them were heard of in time.
const ALIVE: &str = "SELECT count(*) FROM tenure_locks, json_each(record, '$.queue') \
                     WHERE json_extract(value, '$.until') > unixepoch('subsec') * 1000000";

async fn fair(file: &File) -> SqliteBackend {
    SqliteBackend::open(file.options().fair(true)).await.unwrap()
}

fn waiting(text: &str) -> Claim {
    Claim { waits: true, ..claim(text) }
}

fn reader(text: &str) -> Claim {
    Claim { mode: Mode::Shared, ..waiting(text) }
}

fn permits(text: &str, take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..waiting(text) }
}

/// Waits in a client of its own, and stands in the queue when this returns.
async fn waiter(file: &File, claim: Claim) -> JoinHandle<(SqliteBackend, Grant, Instant)> {
    let (before, backend) = (file.number(STANDING).await, fair(file).await);
    let task = tokio::spawn(async move {
        let grant = backend.acquire(&claim).await.unwrap();
        (backend, grant, Instant::now())
    });
    until(async || file.number(STANDING).await == before + 1).await;
    task
}

/// Stands in the queue, and is never heard of again: nothing above the store withdraws it.
async fn dead(file: &File, claim: &Claim) {
    let backend = fair(file).await;
    let before = file.number(STANDING).await;
    let acquiring = tokio::spawn({
        let claim = claim.clone();
        async move { backend.acquire(&claim).await.map(drop) }
    });
    until(async || file.number(STANDING).await == before + 1).await;
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
}

/// From now on, those in the queue keep their places without being heard of. Otherwise a machine that stalls for a second
/// while they are served costs one of them its place.
async fn keep_places(file: &File) {
    file.execute(
        "UPDATE tenure_locks SET version = version + 1, record = json_set(record, '$.queue', json((
         SELECT json_group_array(json(json_set(value, '$.until', CAST((unixepoch('subsec') + 300) * 1000000 AS INTEGER))))
         FROM json_each(record, '$.queue')))) WHERE record IS NOT NULL",
    )
    .await;
}

#[tokio::test]
async fn first_come_first_served() {
    let file = File::new();
    let ours = fair(&file).await;
    assert!(ours.capabilities().fair);
    let held = granted(&ours, &Claim { lease: Duration::from_mins(5), ..claim("a") }).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (task, served) = (waiter(&file, waiting("a")).await, Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let (backend, grant, _) = task.await.unwrap();
            served.lock().unwrap().push((number, grant.token));
            assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
        }));
    }
    // All of them keep their places for longer than one that is not heard of.
    tokio::time::sleep(LIVES * 2).await;
    until(async || file.number(ALIVE).await == 6).await;
    keep_places(&file).await;
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
    for task in tasks {
        task.await.unwrap();
    }
    let served = served.lock().unwrap().clone();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(served.is_sorted_by(|(_, one), (_, next)| one < next), "{served:?}");
    assert_eq!(file.number("SELECT record IS NULL FROM tenure_locks").await, 1);
}

/// However many they are.
#[tokio::test]
async fn dead_waiters_delay_the_others_for_a_moment() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = granted(&ours, &claim("a")).await;
    for _ in 0..3 {
        dead(&file, &waiting("a")).await;
    }
    let task = waiter(&file, waiting("a")).await;
    let released = Instant::now();
    ours.release(&held).await.unwrap();
    let left = busy(&ours, &claim("a")).await.unwrap();
    // On a busy machine the dead may be gone by now, and the waiter has it.
    let is_held = !ours.holders(&held.name).await.unwrap().is_empty();
    assert!(left <= LIVES || is_held, "a try is told when that may change: {left:?}");
    let (theirs, next, when) = task.await.unwrap();
    let waited = when - released;
    assert!(waited < LIVES * 3, "{waited:?}");
    assert_eq!(file.number(STANDING).await, 0, "the dead are still in the queue");
    theirs.release(&next).await.unwrap();
}

/// After an outage, for instance: nobody was served meanwhile, so the order stands.
#[tokio::test]
async fn whoever_is_late_has_its_place_back_if_nobody_was_served() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = granted(&ours, &claim("a")).await;
    let (first, second) = (waiting("a"), waiting("a"));
    for claim in [&first, &second] {
        dead(&file, claim).await;
    }
    tokio::time::sleep(LIVES + SLACK).await;
    let [theirs, others] = [fair(&file).await, fair(&file).await];
    assert_eq!(file.number(ALIVE).await, 0);
    let late = tokio::spawn(async move { others.acquire(&second).await.unwrap() });
    until(async || file.number(ALIVE).await == 1).await;
    let task = tokio::spawn(async move {
        let grant = theirs.acquire(&first).await.unwrap();
        (theirs, grant)
    });
    until(async || file.number(ALIVE).await == 2).await;
    keep_places(&file).await;
    ours.release(&held).await.unwrap();
    let (theirs, next) = task.await.unwrap();
    assert!(!late.is_finished());
    theirs.release(&next).await.unwrap();
    assert!(late.await.unwrap().token > next.token);
}

#[tokio::test]
async fn whoever_gives_up_leaves_at_once() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = granted(&ours, &claim("a")).await;
    let locks = Locks::new(fair(&file).await);
    let lock = locks.lock("a");
    let task = tokio::spawn(async move { lock.acquire().await.map(drop) });
    until(async || file.number(STANDING).await == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    locks.close().await;
    assert_eq!(file.number(STANDING).await, 0);
    ours.release(&held).await.unwrap();
    granted(&ours, &claim("a")).await;
}

#[tokio::test]
async fn a_try_neither_overtakes_nor_joins() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = granted(&ours, &claim("a")).await;
    for claim in [claim("a"), waiting("a")] {
        busy(&ours, &claim).await;
    }
    assert_eq!(file.number(STANDING).await, 0, "a try joined");
    dead(&file, &waiting("a")).await;
    // For as long as a busy machine may take for the tries.
    file.execute(
        "UPDATE tenure_locks SET version = version + 1,
         record = json_set(record, '$.queue[0].until', CAST((unixepoch('subsec') + 60) * 1000000 AS INTEGER))",
    )
    .await;
    ours.release(&held).await.unwrap();
    for claim in [claim("a"), Claim { waits: false, ..reader("a") }, permits("a", 1, 5)] {
        let left = busy(&ours, &claim).await.unwrap();
        assert!(left > LIVES && left <= Duration::from_mins(1), "{} overtook: {left:?}", claim.mode);
    }
    file.execute(
        "UPDATE tenure_locks SET version = version + 1, record = json_set(record, '$.queue[0].until', 1)",
    )
    .await;
    until(async || matches!(ours.try_acquire(&claim("a")).await.unwrap(), Attempt::Granted(_))).await;
}

/// Those who share come in together, up to the first who waits to be alone; nobody who comes later does.
#[tokio::test]
async fn every_mode_stands_in_one_line() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = granted(&ours, &claim("a")).await;
    let readers = [waiter(&file, reader("a")).await, waiter(&file, reader("a")).await];
    let writer = waiter(&file, waiting("a")).await;
    let late = waiter(&file, reader("a")).await;
    keep_places(&file).await;
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
    assert_eq!(file.number(STANDING).await, 0);
    for (backend, grant) in [(theirs, writing), (others, reading)] {
        assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    }
}

#[tokio::test]
async fn nobody_overtakes_who_waits_for_many_permits() {
    let file = File::new();
    let ours = fair(&file).await;
    let held = [granted(&ours, &permits("a", 2, 4)).await, granted(&ours, &permits("a", 1, 4)).await];
    let many = waiter(&file, permits("a", 3, 4)).await;
    let few = waiter(&file, permits("a", 2, 4)).await;
    keep_places(&file).await;
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

#[tokio::test]
async fn a_claim_asked_for_again_is_the_same() {
    let file = File::new();
    let ours = fair(&file).await;
    for mine in [waiting("a"), reader("a")] {
        let first = granted(&ours, &mine).await;
        dead(&file, &waiting("a")).await;
        assert_eq!(granted(&ours, &mine).await.token, first.token, "{}", mine.mode);
        assert_eq!(ours.acquire(&mine).await.unwrap().token, first.token, "{}", mine.mode);
        assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
        tokio::time::sleep(LIVES + SLACK).await;
    }
}

/// A write for each acquire and release, as without a queue; and few while one waits.
#[tokio::test]
async fn it_writes_rarely() {
    let file = File::new();
    let (ours, theirs) = (fair(&file).await, fair(&file).await);
    let held = ours.acquire(&waiting("a")).await.unwrap();
    ours.release(&held).await.unwrap();
    file.execute("CREATE TABLE writes (n)").await;
    file.execute(
        "CREATE TRIGGER count_writes AFTER UPDATE ON tenure_locks BEGIN INSERT INTO writes VALUES (1); END",
    )
    .await;
    let writes = async || file.number("SELECT count(*) FROM writes").await;
    for round in 1..=3 {
        for claim in [waiting("a"), reader("a"), permits("a", 1, 2)] {
            let grant = ours.acquire(&claim).await.unwrap();
            ours.release(&grant).await.unwrap();
        }
        assert_eq!(writes().await, round * 6);
    }
    let held = granted(&ours, &claim("a")).await;
    let (before, begun) = (writes().await, Instant::now());
    let waits = waiting("a");
    let watching = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        // On a busy machine it takes longer, and must not be more often.
        until(async || writes().await >= before + 2).await;
    };
    tokio::select! {
        granted = theirs.acquire(&waits) => panic!("it was had: {granted:?}"),
        () = watching => {}
    }
    let (wrote, passed) = (writes().await - before, begun.elapsed());
    assert!(wrote <= 3 * i64::try_from(passed.as_secs()).unwrap(), "{wrote} writes in {passed:?}");
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn those_with_a_queue_and_those_without_exclude_each_other() {
    let file = File::new();
    let (with, without) = (Locks::new(fair(&file).await), Locks::new(file.open().await));
    for (one, other) in [(&with, &without), (&without, &with)] {
        let guard = one.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_none());
        let lock = other.lock("a").wait(Duration::from_secs(10));
        let task: JoinHandle<Result<Guard, _>> = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(SHORT).await;
        assert!(!task.is_finished());
        guard.release().await.unwrap();
        task.await.unwrap().unwrap().release().await.unwrap();
    }
}
