//! Many tasks, each with a name of its own, beside bare statements through a large pool.

use crate::{
    place::{Place, Way as Lock},
    pool::Pool,
    support::{Way, report},
};
use tenure_core::{ClaimId, Locks};
use tokio::task::JoinSet;

const TASKS: u32 = 64;
/// How many connections the bare statements have.
const CONNECTIONS: u32 = 16;
const ROUNDS: u32 = 20;
/// How many cycles each task does in a round.
const CYCLES: u32 = 10;

pub(crate) async fn measure(place: &Place) {
    for way in Lock::all(place.kind) {
        match way {
            Lock::LeaseRow | Lock::Advisory => beside_bare(place, way, false, &place.locks(way).await).await,
            Lock::LeaseRowRelaxed => beside_bare(place, way, true, &place.locks(way).await).await,
            // Each has a connection of its own.
            Lock::RowLock | Lock::RowLockRelaxed => {}
        }
    }
    let locks = place.lease_rows_over(CONNECTIONS as usize).await;
    beside(place, "lease row, as many connections", (false, false), &locks).await;
}

async fn beside_bare(place: &Place, way: Lock, relaxed: bool, locks: &Locks) {
    beside(place, way.name(), (relaxed, matches!(way, Lock::Advisory)), locks).await;
}

/// Beside bare statements, or the server's own locks.
async fn beside(place: &Place, way: &str, (relaxed, own): (bool, bool), locks: &Locks) {
    let pool = Pool::connect(&place.url(), relaxed, CONNECTIONS).await;
    let (mut bare, mut ours) = (Way::new("64 bare cycles"), Way::new("64 of tenure's"));
    // Rows, prepared statements.
    bare_cycles(&pool, own).await;
    cycles(locks).await;
    for _ in 0..ROUNDS {
        bare.round(1, async || bare_cycles(&pool, own).await).await;
        ours.round(1, async || cycles(locks).await).await;
    }
    let title = format!("{TASKS} tasks on {TASKS} names, {CYCLES} cycles each, {way}");
    report(&format!("{}: {title}, beside {CONNECTIONS} connections", place.kind), &bare, &ours);
    locks.close().await;
}

async fn bare_cycles(pool: &Pool, own: bool) {
    let tasks: JoinSet<()> = (0..TASKS)
        .map(|task| {
            let pool = pool.clone();
            async move {
                let name = format!("many {task}");
                for _ in 0..CYCLES {
                    if own {
                        pool.own_cycle(&name).await;
                    } else {
                        pool.cycle(&name, &ClaimId::new().to_string()).await;
                    }
                }
            }
        })
        .collect();
    tasks.join_all().await;
}

async fn cycles(locks: &Locks) {
    let tasks: JoinSet<()> = (0..TASKS)
        .map(|task| {
            let lock = locks.lock(format!("many {task}"));
            async move {
                for _ in 0..CYCLES {
                    let guard = lock.acquire().await.expect("it is free");
                    guard.release().await.expect("it was held");
                }
            }
        })
        .collect();
    tasks.join_all().await;
}
