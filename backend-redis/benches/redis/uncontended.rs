//! Locks that are free, beside `SET NX PX` and a script that compares and deletes.

use crate::{
    bare::Bare,
    server::Server,
    support::{Way, report},
};
use tenure_core::{ClaimId, Locks};
use tokio::task::JoinSet;

const ROUNDS: u32 = 60;
const CYCLES: u32 = 200;
const TASKS: usize = 64;

/// One task, one name.
pub(crate) async fn one(server: &Server) {
    let (commands, locks) = (Bare::new(server.connection().await), server.locks().await);
    let (mut bare, mut ours) = (Way::new("two bare commands"), Way::new("tenure"));
    for _ in 0..ROUNDS {
        bare.round(CYCLES, async || bare_cycle(&commands, "bare").await).await;
        ours.round(CYCLES, async || cycle(&locks, "a").await).await;
    }
    report("redis: uncontended acquire + release", &bare, &ours);
}

/// Many tasks, each with a name of its own, on one connection.
pub(crate) async fn many(server: &Server) {
    let (commands, locks) = (Bare::new(server.connection().await), server.locks().await);
    let (mut bare, mut ours) = (Way::new("two bare commands"), Way::new("tenure"));
    for _ in 0..ROUNDS {
        bare.round(1, async || {
            let mut tasks = JoinSet::new();
            for number in 0..TASKS {
                let commands = commands.clone();
                tasks.spawn(async move {
                    let name = format!("bare {number}");
                    for _ in 0..CYCLES / 10 {
                        bare_cycle(&commands, &name).await;
                    }
                });
            }
            tasks.join_all().await;
        })
        .await;
        ours.round(1, async || {
            let mut tasks = JoinSet::new();
            for number in 0..TASKS {
                let locks = locks.clone();
                tasks.spawn(async move {
                    let name = format!("name {number}");
                    for _ in 0..CYCLES / 10 {
                        cycle(&locks, &name).await;
                    }
                });
            }
            tasks.join_all().await;
        })
        .await;
    }
    report(&format!("redis: {TASKS} tasks on {TASKS} names, {} cycles each", CYCLES / 10), &bare, &ours);
}

/// A reader, beside the holder of a lock.
pub(crate) async fn reader(server: &Server) {
    let locks = server.locks().await;
    let (mut alone, mut reads) = (Way::new("a lock"), Way::new("a reader"));
    for _ in 0..ROUNDS {
        alone.round(CYCLES, async || cycle(&locks, "a").await).await;
        reads
            .round(CYCLES, async || {
                let guard = locks.rw("b").read().acquire().await.expect("nobody writes");
                guard.release().await.expect("it was held");
            })
            .await;
    }
    report("redis: read() + release, where the lock is what is bare (asked for: 0.83)", &alone, &reads);
}

async fn bare_cycle(commands: &Bare, key: &str) {
    commands.cycle(key, &ClaimId::new().to_string()).await;
}

async fn cycle(locks: &Locks, name: &str) {
    let guard = locks.lock(name).acquire().await.expect("it is free");
    guard.release().await.expect("it was held");
}
