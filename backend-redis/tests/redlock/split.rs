//! Clients that keep each other out.

use crate::nodes::{LONG, Nodes, in_time, options_at};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::{proxy::Proxy, saboteur::Direction};
use tenure_core::Locks;
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
