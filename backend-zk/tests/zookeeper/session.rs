//! The life of a session.

use crate::{Scene, Server, in_time, server};
use std::time::{Duration, Instant};
use tenure_core::{Locks, LossCause};
use tenure_zk::ZkBackend;

const SESSION: Duration = Duration::from_secs(3);

async fn locks(scene: &Scene) -> Locks {
    Locks::new(ZkBackend::connect(scene.options().session_timeout(SESSION)).await.unwrap())
}

#[tokio::test]
async fn held_for_several_timeouts_and_taken_after_idleness() {
    if !server::available() {
        return;
    }
    let scene = Scene::on(server::shared(), "several").await;
    let (locks, other) = (locks(&scene).await, scene.locks().await);
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock("b");
        let first = other.lock("b").acquire().await.unwrap();
        async move {
            let grant = lock.acquire();
            tokio::time::sleep(SESSION * 3).await;
            drop(first);
            grant.await
        }
    });
    for _ in 0..40 {
        tokio::time::sleep(SESSION / 10).await;
        assert!(guard.is_held(), "{:?}", guard.loss());
    }
    in_time("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    // While nothing is held nothing is proven, and the session is kept all the same.
    tokio::time::sleep(SESSION * 2).await;

    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(guard.deadline().unwrap().left() > SESSION / 3);
    tokio::time::sleep(SESSION).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_frozen_server_loses_the_lock_at_the_deadline() {
    if !server::available() {
        return;
    }
    let server = Server::start(&[]);
    let scene = Scene::on(&server, "frozen").await;
    // Somebody else takes it next: what ends the lost session is not a new request of its own client.
    let (locks, others) = (locks(&scene).await, locks(&scene).await);
    let guard = locks.lock("a").acquire().await.unwrap();
    tokio::time::sleep(SESSION / 2).await;
    let frozen = Instant::now();
    server.signal("-STOP");
    let cause = in_time("the loss", guard.lost()).await;
    assert_eq!(cause, LossCause::SessionEnded);
    assert!(frozen.elapsed() < SESSION, "lost only after {:?}", frozen.elapsed());
    assert!(!guard.is_held());
    server.signal("-CONT");
    let next = in_time("the next grant", others.lock("a").acquire()).await.unwrap();
    assert!(!guard.is_held() && next.is_held() && next.token() > guard.token());
    assert_eq!(
        in_time("the old node's end", async {
            while scene.nodes("a").await.len() > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            scene.nodes("a").await.len()
        })
        .await,
        1
    );
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_short_outage_is_survived() {
    if !server::available() {
        return;
    }
    let mut server = Server::start(&[]);
    let scene = Scene::on(&server, "outage").await;
    let long = Duration::from_secs(20);
    let locks = Locks::new(ZkBackend::connect(scene.options().session_timeout(long)).await.unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = scene.locks().await.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    server.kill();
    server.run();
    assert!(guard.is_held(), "{:?}", guard.loss());
    let token = guard.token();
    in_time("the release", guard.release()).await.unwrap();
    let next = in_time("the next grant", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}
