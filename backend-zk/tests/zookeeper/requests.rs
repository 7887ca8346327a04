//! What a lock costs the server, counted by the server.

use crate::{Scene, Server, in_time, server};
use std::time::Duration;
use tokio::time::sleep;
use zookeeper_client::Client;

const TIMES: usize = 10;

/// Counts requests in a test that has a server for itself. Sessions are so long that no ping falls into the count.
struct Counted {
    server: Server,
    scene: Scene,
}

impl Counted {
    async fn start() -> Option<Self> {
        if !server::available() {
            return None;
        }
        let server = Server::start(&[]);
        let address = server.address();
        let eyes = Client::connector().with_session_timeout(Duration::from_mins(1));
        let eyes = eyes.connect(&address).await.unwrap();
        Some(Self { server, scene: Scene { address, prefix: "/counted".to_owned(), eyes } })
    }

    /// The requests while `work` was done, without pings and heartbeats: the fewest of several times, each at another moment.
    async fn fewest(&self, mut work: impl AsyncFnMut()) -> u64 {
        let mut fewest = u64::MAX;
        for _ in 0..TIMES {
            let before = self.server.requests();
            work().await;
            fewest = fewest.min(self.server.requests() - before - 1);
            // Pings come in bursts.
            sleep(Duration::from_millis(130)).await;
        }
        fewest
    }
}

#[tokio::test]
async fn a_turn_takes_a_create_a_list_and_a_delete() {
    let Some(counted) = Counted::start().await else { return };
    let locks = counted.scene.locks().await;
    let lock = locks.lock("a");
    lock.acquire().await.unwrap().release().await.unwrap();
    let requests = counted.fewest(async || lock.acquire().await.unwrap().release().await.unwrap()).await;
    assert_eq!(requests, 3);
    let requests =
        counted.fewest(async || lock.try_acquire().await.unwrap().unwrap().release().await.unwrap()).await;
    assert_eq!(requests, 3);
}

#[tokio::test]
async fn a_release_wakes_one_waiter_and_no_herd() {
    const WAITERS: usize = 100;
    let Some(counted) = Counted::start().await else { return };
    let scene = &counted.scene;
    let guard = scene.locks().await.lock("a").acquire().await.unwrap();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..WAITERS {
        let (locks, granted) = (scene.locks().await, granted.clone());
        tokio::spawn(async move { granted.send(locks.lock("a").acquire().await.unwrap()).unwrap() });
        scene.until_nodes("a", number + 2).await;
    }
    // Until the grant is watched.
    sleep(Duration::from_millis(300)).await;
    let mut guard = Some(guard);
    let requests = counted
        .fewest(async || {
            guard.take().unwrap().release().await.unwrap();
            guard = Some(in_time("the next grant", grants.recv()).await.unwrap());
        })
        .await;
    assert_eq!(requests, 1, "the release itself; whoever is next needs no request");
    assert_eq!(scene.nodes("a").await.len(), WAITERS + 1 - TIMES);
}

#[tokio::test]
async fn waiting_and_holding_cost_heartbeats_only() {
    let Some(counted) = Counted::start().await else { return };
    let scene = &counted.scene;
    let (holder, waiter) = (scene.locks().await, scene.locks().await);
    let idle = counted.fewest(async || sleep(Duration::from_secs(1)).await).await;
    let mut held = Vec::new();
    for number in 0..200 {
        held.push(holder.lock(format!("{number}")).acquire().await.unwrap());
    }
    for number in 0..100 {
        let lock = waiter.lock(format!("{number}"));
        tokio::spawn(async move { lock.acquire().await });
    }
    scene.until_nodes("99", 2).await;
    // Until the grants are watched.
    sleep(Duration::from_millis(500)).await;
    let busy = counted.fewest(async || sleep(Duration::from_secs(1)).await).await;
    assert!(busy <= idle + 2, "{busy} requests a second, {idle} while idle");
    assert!(held.iter().all(|guard| guard.is_held()));
}
