//! Nodes of a Cluster that are too old for messages of a shard.

use crate::{
    NO_POLL,
    server::{Server, free_port},
    typical, until,
};
use std::time::{Duration, Instant};
use tenure_core::Locks;
use tenure_redis::{RedisBackend, RedisOptions};

/// A Cluster of one node that lacks these commands.
async fn cluster_without(commands: &[&str]) -> Server {
    let bus = free_port().to_string();
    let mut arguments = vec!["--cluster-enabled", "yes", "--cluster-port", &bus];
    for command in commands {
        arguments.extend(["--rename-command", command, ""]);
    }
    let server = Server::with(&arguments);
    server.tell::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    until("the cluster is whole", || {
        server.tell::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    })
    .await;
    server
}

async fn locks(server: &Server) -> Locks {
    let url = server.tcp_url().replace("redis:", "redis+cluster:");
    Locks::new(RedisBackend::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap())
}

#[tokio::test]
async fn nodes_that_know_no_shards_tell_everybody() {
    // Redis 6 speaks RESP3, which Redis 5 does not.
    let (six, five) = (["SSUBSCRIBE", "SPUBLISH"].as_slice(), ["SSUBSCRIBE", "SPUBLISH", "HELLO"].as_slice());
    for (lacks, channels) in [(&[][..], "SHARDNUMSUB"), (six, "NUMSUB"), (five, "NUMSUB")] {
        let server = cluster_without(lacks).await;
        let (one, other) = (locks(&server).await, locks(&server).await);
        let listeners = || server.tell::<(String, u64)>(&["PUBSUB", channels, "tenure:a"]).1;
        let mut delays = Vec::new();
        for _ in 0..3 {
            let guard = one.lock("a").acquire().await.unwrap();
            let waiter = tokio::spawn({
                let lock = other.lock("a");
                async move { lock.acquire().await.map(|guard| (guard, Instant::now())) }
            });
            until("the waiter listens", || listeners() == 1).await;
            // It asks once more before it waits.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let released = Instant::now();
            guard.release().await.unwrap();
            let (guard, when) = waiter.await.unwrap().unwrap();
            delays.push(when.duration_since(released));
            guard.release().await.unwrap();
            until("the channel is left", || listeners() == 0).await;
        }
        assert!(typical(delays) < NO_POLL, "without {lacks:?}");
    }
}
