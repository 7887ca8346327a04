//! Locks that are free, beside `SET NX PX` and a script that compares and deletes.

use crate::{
    bare::Bare,
    server::{Server, locks},
    support::{Way, report},
};
use tenure_core::{ClaimId, Locks};
use tokio::task::JoinSet;

const ROUNDS: u32 = 60;
const CYCLES: u32 = 200;
const TASKS: usize = 64;

/// One task, one name.
pub(crate) async fn one(server: &Server) {
    let commands = Bare::new(server.connection().await);
    let mut bare = Way::new("two bare commands");
    let mut ours = [false, true].map(|fair| (fair, Way::new("tenure")));
    let locks = [locks(&server.url(), false).await, locks(&server.url(), true).await];
    for _ in 0..ROUNDS {
        bare.round(CYCLES, async || bare_cycle(&commands, "bare").await).await;
        for ((fair, ours), locks) in ours.iter_mut().zip(&locks) {
            ours.round(CYCLES, async || cycle(locks, &format!("fair={fair}")).await).await;
        }
    }
    for (fair, ours) in &ours {
        report(&format!("redis: uncontended acquire + release{}", order(*fair)), &bare, ours);
    }
}

/// Many tasks, each with a name of its own, on one connection.
pub(crate) async fn many(server: &Server) {
    let commands = Bare::new(server.connection().await);
    let mut bare = Way::new("two bare commands");
    let mut ours = [false, true].map(|fair| (fair, Way::new("tenure")));
    let locks = [locks(&server.url(), false).await, locks(&server.url(), true).await];
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
        for ((fair, ours), locks) in ours.iter_mut().zip(&locks) {
            ours.round(1, async || {
                let mut tasks = JoinSet::new();
                for number in 0..TASKS {
                    let (locks, name) = (locks.clone(), format!("fair={fair} {number}"));
                    tasks.spawn(async move {
                        for _ in 0..CYCLES / 10 {
                            cycle(&locks, &name).await;
                        }
                    });
                }
                tasks.join_all().await;
            })
            .await;
        }
    }
    for (fair, ours) in &ours {
        let what =
            format!("redis: {TASKS} tasks on {TASKS} names, {} cycles each{}", CYCLES / 10, order(*fair));
        report(&what, &bare, ours);
    }
}

fn order(fair: bool) -> &'static str {
    if fair { ", fair=true" } else { "" }
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
