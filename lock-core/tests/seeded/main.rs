//! Seeded runs under paused time: many clients of one memory store, whose requests and replies are delayed, lost and
//! carried out late, and whose futures are dropped anywhere. After every step a judge looks for a broken clause.
//!
//! `TENURE_SEEDS=200..400` runs other seeds; a failure names its seed.

mod flaky;
mod judge;

use flaky::Flaky;
use judge::Judge;
use std::{ops::Range, sync::Arc, time::Duration};
use tenure_core::{Error, Locks, Memory, Owner};
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(1);
const NAMES: [&str; 2] = ["a", "b"];

#[test]
fn no_seed_breaks_the_contract() {
    let mut handed_on = 0;
    for seed in seeds() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        fastrand::seed(seed);
        runtime.block_on(async {
            let hours = Duration::from_hours(3);
            let run = timeout(hours, run(seed)).await;
            handed_on += run.unwrap_or_else(|_| panic!("seed {seed}: a task hangs"));
        });
    }
    assert!(handed_on > 0 || seeds().count() < 20, "no grant was handed on");
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("TENURE_SEEDS") else { return 0..150 };
    let (from, to) = range.split_once("..").expect("TENURE_SEEDS is a range such as 0..100");
    from.parse().unwrap()..to.parse().unwrap()
}

async fn run(seed: u64) -> usize {
    let memory = Memory::new();
    // In every other run, releases hand grants on inside their client.
    let successors = if seed % 2 == 1 { 3 } else { 0 };
    let judge = Arc::new(Judge::new(seed, successors > 0));
    let client = |_| Locks::with_lease(Flaky::new(memory.clone(), LEASE), LEASE).unwrap();
    let clients: Vec<Locks> =
        (0..3).map(client).map(|locks| locks.with_succession(successors).unwrap()).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for locks in &clients {
        let owner = Owner::new();
        for _ in 0..3 {
            tasks.spawn(work(locks.clone(), owner.clone(), Arc::clone(&judge)));
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    for locks in &clients {
        for name in NAMES {
            let again = locks.lock(name).wait(LEASE * 100).acquire().await;
            drop(again.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
        locks.close().await;
        assert_eq!(locks.names_in_use(), 0, "seed {seed}: a queue outlives its users");
    }
    // A request that was carried out after its withdrawal may keep the lock for one lease, and no longer.
    sleep(LEASE * 4).await;
    let left = Locks::new(memory).list("").await.unwrap();
    assert!(left.is_empty(), "seed {seed}: left behind: {left:?}");
    judge.summary()
}

async fn work(locks: Locks, owner: Owner, judge: Arc<Judge>) {
    for _ in 0..12 {
        let name = NAMES[fastrand::usize(..NAMES.len())];
        let mut lock = locks.lock(name).wait(millis(1..6000));
        if fastrand::u8(..3) == 0 {
            lock = lock.owner(&owner);
        }
        if fastrand::u8(..4) == 0 {
            lock = lock.renew(false);
        }
        let outcome = match fastrand::u8(..4) {
            0 => lock.try_acquire().await,
            // Dropped somewhere on its way.
            1 => match timeout(millis(0..800), lock.acquire()).await {
                Ok(outcome) => outcome.map(Some),
                Err(_) => continue,
            },
            _ => lock.acquire().await.map(Some),
        };
        let guard = match outcome {
            Ok(Some(guard)) => guard,
            Ok(None) | Err(Error::Timeout { .. } | Error::Unavailable { .. } | Error::Lost { .. }) => {
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let entry = judge.granted(&guard);
        for _ in 0..fastrand::u8(..5) {
            sleep(millis(0..700)).await;
            judge.look(&guard);
        }
        judge.leaving(entry);
        if fastrand::bool() {
            let overtaken = judge.overtaken(&guard);
            let outcome = guard.release().await;
            assert!(!(overtaken && outcome.is_ok()), "a lost lock was released without a word");
        } else {
            drop(guard);
        }
    }
}

fn millis(range: Range<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(range))
}
