//! How the server tells waiters of a release without a queue, and what waiting costs. `wait_for_release` asks nothing, so
//! a push alone ends it.

use crate::{HANG, acquires, claim, claim_in, granted, in_time, server::Server, until, waits};
use futures_util::future::join_all;
use tenure_core::{Backend, Claim, Locks, Mode, Release, StoreError};
use tenure_redis::{RedisBackend, RedisOptions};
use tokio::task::JoinHandle;

/// A Cluster of one node that lacks these commands.
async fn cluster_without(commands: &[&str]) -> Server {
    let renamed: Vec<&str> = commands.iter().flat_map(|command| ["--rename-command", command, ""]).collect();
    Server::cluster(&renamed).await
}

/// Waits for nothing but news.
fn listen(backend: &RedisBackend, claim: Claim) -> JoinHandle<Result<(), StoreError>> {
    let backend = backend.clone();
    tokio::spawn(async move { backend.wait_for_release(&claim, HANG * 2).await })
}

async fn is_told(waiter: JoinHandle<Result<(), StoreError>>) {
    in_time("the news", waiter).await.unwrap().unwrap();
}

async fn until_listening(server: &Server, count: u64) {
    until("it listens", || server.listeners("a") == count).await;
}

/// Nodes before Redis 7 know no channels of a shard; those before Redis 6 speak no RESP3.
#[tokio::test]
async fn release_is_pushed_by_every_kind_of_server() {
    let (six, five) = (["SSUBSCRIBE", "SPUBLISH"].as_slice(), ["SSUBSCRIBE", "SPUBLISH", "HELLO"].as_slice());
    for (lacks, channels) in
        [(None, "NUMSUB"), (Some(&[][..]), "SHARDNUMSUB"), (Some(six), "NUMSUB"), (Some(five), "NUMSUB")]
    {
        let (server, scheme) = match lacks {
            Some(lacks) => (cluster_without(lacks).await, "redis+cluster:"),
            None => (Server::start(), "redis:"),
        };
        let connect = async || {
            let url = server.tcp_url().replace("redis:", scheme);
            RedisBackend::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap()
        };
        let (one, other) = (connect().await, connect().await);
        let listeners =
            |name: &str| server.tell::<(String, u64)>(&["PUBSUB", channels, &format!("tenure:{name}")]).1;
        let held = granted(&one, &claim("a")).await;
        let waiter = listen(&other, claim("a"));
        until("the waiter listens", || listeners("a") == 1).await;
        assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: true }, "{lacks:?}");
        is_told(waiter).await;
        until("the channel is left", || listeners("a") == 0).await;
        let names = ["a", "b", "c"];
        let waiters = names.map(|name| listen(&other, claim(name)));
        until("all listen", || names.iter().all(|name| listeners(name) == 1)).await;
        waiters.iter().for_each(JoinHandle::abort);
        until("they give up", || names.iter().all(|name| listeners(name) == 0)).await;
        let held = granted(&one, &claim("a")).await;
        assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: false }, "{lacks:?}");
    }
}

/// With `fair=true`, the channel of "a" is the client's own.
#[tokio::test]
async fn refused_channel_costs_only_its_own_waiters() {
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
        let held = granted(&holder, &claim("a")).await;
        granted(&holder, &claim("b")).await;
        let refused = listen(&other, claim("b"));
        let subscribe = if in_shards { "ssubscribe" } else { "subscribe" };
        until("it is refused", || server.rejected(subscribe) > 0).await;
        let waits = claim("a");
        let waiter = if fair {
            tokio::spawn(async move { other.acquire(&waits).await.map(drop) })
        } else {
            listen(&other, waits)
        };
        until("the other listens", || match fair {
            false if in_shards => server.tell::<(String, u64)>(&["PUBSUB", "SHARDNUMSUB", "tenure:a"]).1 == 1,
            false => server.listeners("a") == 1,
            true => server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", inboxes]).len() == 1,
        })
        .await;
        let released = holder.release(&held).await.unwrap();
        assert!(matches!(released, Release::Released { awaited: true }) || fair, "{released:?}");
        is_told(waiter).await;
        refused.abort();
    }
}

/// They share its subscriptions. When the server closes the connection, each may have missed something.
#[tokio::test]
async fn waiters_of_one_client_share_a_connection() {
    let server = Server::start();
    let (holder, shared) = (server.backend().await, server.backend().await);
    granted(&holder, &claim("a")).await;
    granted(&holder, &claim("b")).await;
    let also = listen(&shared, claim("b"));
    let subscribers = || server.tell::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let waiter = listen(&shared, claim("a"));
    until_listening(&server, 1).await;
    until("both listen", || server.listeners("b") == 1).await;
    // The client asks for the next channel once it knows that it listens to the others.
    let last = listen(&shared, claim("c"));
    until("the last one listens", || server.listeners("c") == 1).await;
    assert_eq!(subscribers().lines().count(), 1, "{}", subscribers());
    assert_eq!(server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    is_told(waiter).await;
    is_told(also).await;
    last.abort();
    shared.close().await;
    until("the connection is closed", || subscribers().is_empty()).await;
}

/// Without the right to the channels it is told nothing, and only asks: more than once, though no subscription is confirmed.
#[tokio::test]
async fn waiter_that_cannot_listen_goes_on_asking() {
    let server = Server::start();
    server.tell::<()>(&["ACL", "SETUSER", "default", "resetchannels"]);
    let (holder, other) = (server.backend().await, server.backend().await);
    let held = granted(&holder, &claim("a")).await;
    let waiter = tokio::spawn(async move { other.acquire(&claim("a")).await });
    let before = server.scripts_called();
    until("it asks again", || server.scripts_called() >= before + 3).await;
    holder.release(&held).await.unwrap();
    in_time("the grant", waiter).await.unwrap().unwrap();
}

/// One contender for all of them asks every 1.2 s, or shows up in the queue every second. A machine that stalls makes it
/// ask less often.
#[tokio::test(flavor = "multi_thread")]
async fn hundred_waiting_tasks_ask_once_a_second_at_most() {
    let asks = [false, true].map(async |fair| {
        let server = Server::start();
        let client = async || RedisBackend::connect(server.options().fair(fair)).await.unwrap();
        let (holder, locks) = (client().await, Locks::new(client().await));
        granted(&holder, &claim("a")).await;
        for _ in 0..100 {
            drop(waits(locks.lock("a")));
        }
        // By its third call it is asleep between two of them.
        let called = || server.scripts_called();
        let first = called();
        until("it waits", || called() >= first + 3).await;
        let (before, begun) = (called(), server.time());
        until("it asks again", || called() >= before + 3).await;
        let (sent, passed) = (called() - before, server.time().saturating_sub(begun));
        assert!(u128::from(sent) <= passed.as_millis() / 1000 + 1, "{sent} in {passed:?}, fair: {fair}");
        locks.close().await;
    });
    join_all(asks).await;
}

/// A writer that waits stops newcomers for as long as it is heard of. Readers are told when it gives up.
#[tokio::test]
async fn waiting_writer_stops_readers_until_it_gives_up() {
    const STOP: &str = "tenure:a\u{1f}{tenure:a}x";
    let server = Server::start();
    let (backend, other) = (server.backend().await, server.backend().await);
    let first = granted(&backend, &claim_in(Mode::Shared, "a")).await;
    let tries = async |mode| backend.try_acquire(&claim_in(mode, "a")).await.unwrap();
    let busy = |attempt| matches!(attempt, tenure_core::Attempt::Busy { .. });
    assert!(busy(tries(Mode::Exclusive).await));
    assert_eq!(server.tell::<u64>(&["EXISTS", STOP]), 0, "it only tried");
    let waits = Claim { waits: true, ..claim("a") };
    let writer = acquires(&other, &waits);
    let left = || server.tell::<i64>(&["PTTL", STOP]);
    until("it stops newcomers", || left() > 0).await;
    assert!(busy(tries(Mode::Shared).await));
    // The mark outlives no dead writer by more than 2.5 s, and a living one refreshes it.
    until("the mark runs out", || left() < 2000).await;
    until("it is refreshed", || left() > 2200).await;
    assert!(left() <= 2500);
    let reader = listen(&backend, claim_in(Mode::Shared, "a"));
    until_listening(&server, 2).await;
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    other.withdraw(&waits).await.unwrap();
    is_told(reader).await;
    assert_eq!(server.tell::<u64>(&["EXISTS", STOP]), 0);
    let second = granted(&backend, &claim_in(Mode::Shared, "a")).await;
    for reader in [first, second] {
        backend.release(&reader).await.unwrap();
    }
}
