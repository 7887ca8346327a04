//! How waiters in a Cluster learn of releases.

use crate::{begin_to_move, end_move, locks, master_of, move_keys, tell};
use std::time::{Duration, Instant};
use tenure_testbed::{Kind, Member, Server};

/// A waiter that is told nothing asks again after 1.2 s at the soonest.
const NO_POLL: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 4;

/// How many clients listen to a lock's channel at a node.
async fn listeners(member: &Member, name: &str) -> u64 {
    let (_, count): (String, u64) = tell(member, &["PUBSUB", "SHARDNUMSUB", &format!("tenure:{name}")]).await;
    count
}

async fn until_one_listens(member: &Member, name: &str) {
    let begin = Instant::now();
    while listeners(member, name).await != 1 {
        assert!(begin.elapsed() < Duration::from_secs(15), "nobody listens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The median, because a machine may stall now and then; whoever is told nothing is late every time.
fn typical(mut delays: Vec<Duration>) -> Duration {
    delays.sort_unstable();
    println!("woken after {delays:?}");
    delays[delays.len() / 2]
}

/// How many messages the nodes told each other of, one by one.
async fn broadcasts(server: &Server) -> u64 {
    let mut sent = 0;
    for member in &server.members() {
        let info: String = tell(member, &["CLUSTER", "INFO"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("cluster_stats_messages_publish_sent:"));
        sent += line.map_or(0, |count| count.parse().unwrap());
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_its_slot_and_is_woken_there() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let (mut at, mut following, mut delays) = (master_of(&server, "{x}").await, Duration::ZERO, Vec::new());
    for _ in 0..ROUNDS {
        let (from, to) = (&members[at], &members[(at + 1) % 3]);
        let guard = one.lock("{x}a").acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = other.lock("{x}a");
            async move { lock.acquire().await.map(|guard| (guard, Instant::now())) }
        });
        until_one_listens(from, "{x}a").await;
        begin_to_move("{x}", from, to).await;
        move_keys("{x}", from, to).await;
        end_move("{x}", from, to).await;
        let moved = Instant::now();
        until_one_listens(to, "{x}a").await;
        following += moved.elapsed();
        assert_eq!(listeners(from, "{x}a").await, 0);
        let released = Instant::now();
        guard.release().await.unwrap();
        let (guard, when) = waiter.await.unwrap().unwrap();
        delays.push(when.duration_since(released));
        guard.release().await.unwrap();
        at = (at + 1) % 3;
    }
    // By asking again alone, each would take its second.
    assert!(following < NO_POLL * (ROUNDS - 1), "{following:?}");
    assert!(typical(delays) < NO_POLL);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_told_in_its_shard_only() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let mut delays = Vec::new();
    for name in ["a", "b", "c", "{x}d"] {
        let master = &members[master_of(&server, name).await];
        let guard = one.lock(name).acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = other.lock(name);
            async move { lock.acquire().await.map(|guard| (guard, Instant::now())) }
        });
        until_one_listens(master, name).await;
        // It asks once more before it waits.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (guard, when) = waiter.await.unwrap().unwrap();
        delays.push(when.duration_since(released));
        guard.release().await.unwrap();
    }
    assert!(typical(delays) < NO_POLL);
    assert_eq!(broadcasts(&server).await, 0);
    tell::<u64>(&members[0], &["PUBLISH", "tenure:a", ""]).await;
    assert!(broadcasts(&server).await > 0, "that is what would be counted");
    server.stop().await.unwrap();
}
