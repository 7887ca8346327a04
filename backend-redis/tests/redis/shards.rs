//! The channels of a shard: nodes that are too old for them, and users who may not listen to all of them.

use crate::{
    NO_POLL, claim, grant,
    server::{Server, free_port},
    typical, until,
};
use std::time::{Duration, Instant};
use tenure_core::{Backend, Locks, Release};
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

async fn backend(server: &Server) -> RedisBackend {
    let url = server.tcp_url().replace("redis:", "redis+cluster:");
    RedisBackend::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap()
}

async fn locks(server: &Server) -> Locks {
    Locks::new(backend(server).await)
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

/// With `fair=true`, the channel of "a" is the client's own.
#[tokio::test]
async fn waiter_is_woken_although_its_client_is_refused_another_channel() {
    const LEASE: Duration = Duration::from_mins(1);
    let inboxes = "tenure:\u{1f}*";
    for (in_shards, fair) in [(false, false), (true, false), (false, true), (true, true)] {
        let server = if in_shards { cluster_without(&[]).await } else { Server::start() };
        let connect = async || {
            let url = server.tcp_url().replace("redis:", if in_shards { "redis+cluster:" } else { "redis:" });
            RedisBackend::connect(RedisOptions::from_url(&url).unwrap().fair(fair)).await.unwrap()
        };
        let (holder, other) = (connect().await, connect().await);
        let heard = format!("&{}", if fair { inboxes } else { "tenure:a" });
        server.tell::<()>(&["ACL", "SETUSER", "default", "resetchannels", &heard]);
        let held = grant(&holder, &claim("a", LEASE)).await;
        grant(&holder, &claim("b", LEASE)).await;
        let refused = tokio::spawn({
            let other = other.clone();
            async move { other.wait_for_release(&claim("b", LEASE), LEASE).await }
        });
        let subscribe = if in_shards { "ssubscribe" } else { "subscribe" };
        until("it is refused", || server.rejected(subscribe) > 0).await;
        let waits = claim("a", LEASE);
        let waiter = tokio::spawn(async move { other.acquire(&waits).await });
        until("the other listens", || match fair {
            false if in_shards => server.tell::<(String, u64)>(&["PUBSUB", "SHARDNUMSUB", "tenure:a"]).1 == 1,
            false => server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", "tenure:a"]).1 == 1,
            true => server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", inboxes]).len() == 1,
        })
        .await;
        let released = holder.release(&held).await.unwrap();
        assert!(matches!(released, Release::Released { awaited: true }) || fair, "{released:?}");
        waiter.await.unwrap().unwrap();
        refused.abort();
    }
}
