//! Clients that keep each other out.

use crate::nodes::{HANG, LONG, Nodes};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::{proxy::Proxy, saboteur::Direction};
use tenure_core::Locks;
use tenure_redis::{RedlockBackend, RedlockOptions};

/// How much longer the way to the far servers is: time enough to take the near ones meanwhile.
const FAR: Duration = Duration::from_millis(15);

/// A client with ways of its own to the servers, of which some are far.
async fn client(nodes: &Nodes, places: &[usize], far: &[usize]) -> (Locks, Vec<Proxy>) {
    let mut proxies = Vec::new();
    for node in places {
        let url: String = nodes.member(*node).direct_url();
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let proxy = Proxy::start(address.parse().expect("an address")).await.unwrap();
        if far.contains(node) {
            proxy.delay(Direction::Requests, FAR);
        }
        proxies.push(proxy);
    }
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let options = RedlockOptions::from_url(&format!("redlock://{}", hosts.join(","))).unwrap();
    // Patient, so that a busy machine is no fault.
    let options = options.node_timeout(Duration::from_secs(3));
    let options = options.each(|server| server.response_timeout(Duration::from_millis(2500)));
    (Locks::new(RedlockBackend::connect(options).await.unwrap()), proxies)
}

/// Of four servers each client is near to two, and a majority is three: when both ask at once, neither gets one.
#[tokio::test]
async fn two_clients_split_votes() {
    const ROUNDS: usize = 10;
    let nodes = Nodes::start(4).await;
    let (one, _ways) = client(&nodes, &[0, 1, 2, 3], &[2, 3]).await;
    let (other, _other_ways) = client(&nodes, &[0, 1, 2, 3], &[0, 1]).await;
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
        let (first, second) = tokio::time::timeout(HANG, both)
            .await
            .unwrap_or_else(|_| panic!("round {round}: the vote is split for ever"));
        assert_ne!(first.unwrap(), second.unwrap());
    }
}
