//! Clients that keep each other out.

use crate::nodes::{LONG, Nodes, claim, granted, in_time, options_at, until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::{proxy::Proxy, saboteur::Direction, with_stopped_clock};
use tenure_core::{Attempt, Backend, Locks};
use tenure_redis::RedlockBackend;

/// How much longer the way to the far servers is: time enough to take the near ones meanwhile.
const FAR: Duration = Duration::from_millis(15);

/// A client with ways of its own to the servers, of which these are far.
async fn client(nodes: &Nodes, far: [usize; 2]) -> (Locks, Vec<Proxy>) {
    let mut proxies = Vec::new();
    for node in 0..4 {
        let proxy = Proxy::start(nodes.member(node).address()).await.unwrap();
        if far.contains(&node) {
            proxy.delay(Direction::Requests, FAR);
        }
        proxies.push(proxy);
    }
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let options = options_at(&format!("redlock://{}", hosts.join(",")));
    (Locks::new(RedlockBackend::connect(options).await.unwrap()), proxies)
}

/// Of four servers each client is near to two, and a majority is three: when both ask at once, neither gets one.
#[tokio::test]
async fn two_clients_split_votes() {
    const ROUNDS: usize = 10;
    let nodes = Nodes::start(4).await;
    let (one, _ways) = client(&nodes, [2, 3]).await;
    let (other, _other_ways) = client(&nodes, [0, 1]).await;
    let inside = Arc::new(AtomicUsize::new(0));
    for round in 0..ROUNDS {
        let enter = |locks: &Locks| {
            let (lock, inside) = (locks.lock("a").wait(LONG), Arc::clone(&inside));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two were inside at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let token = guard.token();
                guard.release().await.unwrap();
                token
            })
        };
        let both = async { tokio::join!(enter(&one), enter(&other)) };
        let (first, second) = in_time(&format!("round {round}: a vote that is not split"), both).await;
        assert_ne!(first.unwrap(), second.unwrap());
    }
}

/// A server that lacks the holder's key votes for a waiter. That is no split vote: the waiter waits for the release, not
/// for a random time. Its timers stand still, so only the release can wake it.
#[tokio::test]
async fn holder_without_one_server_splits_no_votes() {
    // The server's vote must come before the refusals of the others.
    const ROUNDS: usize = 5;
    let nodes = Nodes::start(3).await;
    let [holder, other] = [nodes.backend().await, nodes.backend().await];
    for round in 0..ROUNDS {
        let name = format!("a{round}");
        let held = granted(&holder, &claim(&name)).await;
        until("server 0 has the key", || nodes.has_key(0, &name)).await;
        nodes.tell::<()>(0, &["DEL", &format!("tenure:{name}")]);
        let (waiting, before) = (claim(&name), nodes.scripts_called(0));
        let woken = with_stopped_clock("a waiter's wake-up", async {
            let (granted, released) = tokio::join!(other.acquire(&waiting), async {
                // The waiter asks, subscribes and asks again, and withdraws each time.
                while nodes.scripts_called(0) < before + 4 {
                    tokio::task::yield_now().await;
                }
                holder.release(&held).await
            });
            released?;
            Ok(granted?)
        });
        let granted = woken.await.unwrap();
        assert!(granted.token > held.token, "round {round}");
        other.release(&granted).await.unwrap();
    }
}

/// Two servers name different holders, whose attempts have ended: the servers have not heard of that yet. No client holds
/// the lock, so the try asks again before it reports that it is busy.
#[tokio::test]
async fn try_is_repeated_while_votes_are_split() {
    let nodes = Nodes::start(3).await;
    let backend = nodes.patient().await;
    let mut votes = Vec::new();
    for second_holder in ["x", "y"] {
        for (node, holder) in [(0, "x"), (1, second_holder)] {
            nodes.tell::<()>(node, &["SET", "tenure:a", holder, "PX", "600000"]);
        }
        let before = nodes.calls(2, "set");
        let answer = backend.try_acquire(&claim("a")).await.unwrap();
        assert!(matches!(answer, Attempt::Busy { .. }), "{answer:?}");
        until("the last vote is withdrawn", || nodes.calls(2, "set") > before && !nodes.has_key(2, "a"))
            .await;
        votes.push(nodes.calls(2, "set") - before);
    }
    assert!(votes[1] > votes[0] * 2, "the third server wrote {votes:?} times");
}
