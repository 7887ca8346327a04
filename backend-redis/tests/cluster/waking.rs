//! The wake-up in a Cluster.

use crate::{HANG, backend, claim, granted, in_time, master_of, tell, until};
use tenure_core::{Backend, Claim};
use tenure_testbed::{Kind, Member, Server};

/// How many clients listen to a lock's channel at a node.
pub(crate) async fn listeners(member: &Member, name: &str) -> u64 {
    let (_, count): (String, u64) = tell(member, &["PUBSUB", "SHARDNUMSUB", &format!("tenure:{name}")]).await;
    count
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

/// `wait_for_release` asks nothing, so a push alone ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_is_pushed_in_its_shard_only() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let (one, other) = (backend(&server).await, backend(&server).await);
    for name in ["a", "b", "c", "{x}d"] {
        let master = &members[master_of(&server, name).await];
        let (held, waits) = (granted(&one, name).await, Claim { lease: HANG, ..claim(name) });
        let waiter = tokio::spawn({
            let other = other.clone();
            async move { other.wait_for_release(&waits, HANG * 2).await }
        });
        until("it listens", async || listeners(master, name).await == 1).await;
        one.release(&held).await.unwrap();
        in_time("the news", waiter).await.unwrap().unwrap();
    }
    assert_eq!(broadcasts(&server).await, 0);
    tell::<u64>(&members[0], &["PUBLISH", "tenure:a", ""]).await;
    assert!(broadcasts(&server).await > 0, "that is what would be counted");
    server.stop().await.unwrap();
}
