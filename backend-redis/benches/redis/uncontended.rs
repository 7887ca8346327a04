//! Locks that are free, beside `SET NX PX` and a script that compares and deletes.

use crate::{
    server::Server,
    support::{Way, report},
};
use redis::{Script, aio::MultiplexedConnection};
use tenure_core::{ClaimId, Locks};
use tokio::task::JoinSet;

const ROUNDS: u32 = 60;
const CYCLES: u32 = 200;
const TASKS: usize = 64;
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// One task, one name.
pub(crate) async fn one(server: &Server) {
    let (connection, script) = (server.connection().await, Script::new(COMPARE_AND_DELETE));
    let locks = server.locks().await;
    let (mut bare, mut ours) = (Way::new("two bare commands"), Way::new("tenure"));
    for _ in 0..ROUNDS {
        bare.round(CYCLES, async || bare_cycle(connection.clone(), &script, "bare").await).await;
        ours.round(CYCLES, async || cycle(&locks, "a").await).await;
    }
    report("redis: uncontended acquire + release", &bare, &ours);
}

/// Many tasks, each with a name of its own, on one connection.
pub(crate) async fn many(server: &Server) {
    let (connection, script) = (server.connection().await, Script::new(COMPARE_AND_DELETE));
    let locks = server.locks().await;
    let (mut bare, mut ours) = (Way::new("two bare commands"), Way::new("tenure"));
    for _ in 0..ROUNDS {
        bare.round(1, async || {
            let mut tasks = JoinSet::new();
            for number in 0..TASKS {
                let (connection, script) = (connection.clone(), script.clone());
                tasks.spawn(async move {
                    let name = format!("bare {number}");
                    for _ in 0..CYCLES / 10 {
                        bare_cycle(connection.clone(), &script, &name).await;
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

async fn bare_cycle(mut connection: MultiplexedConnection, script: &Script, key: &str) {
    let claim = ClaimId::new().to_string();
    let mut set = redis::cmd("SET");
    set.arg(key).arg(&claim).arg("NX").arg("PX").arg(30_000);
    let () = set.query_async(&mut connection).await.expect("it is free");
    let deleted: u32 = script.key(key).arg(&claim).invoke_async(&mut connection).await.expect("an answer");
    assert_eq!(deleted, 1);
}

async fn cycle(locks: &Locks, name: &str) {
    let guard = locks.lock(name).acquire().await.expect("it is free");
    guard.release().await.expect("it was held");
}
