//! What goes wrong, and what comes of it.

use crate::{
    Scene, Server, claim, eventually, in_time,
    relay::Relay,
    server::{self, end_session},
    try_grant,
};
use std::time::Duration;
use tenure_core::{Backend, Locks, LossCause};
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, CreateMode, Error};

async fn session_of(scene: &Scene, lock: &str, at: usize) -> i64 {
    scene.eyes.check_stat(&scene.node(lock, at).await).await.unwrap().unwrap().ephemeral_owner
}

/// The session is taken over on a second connection, and ended there.
#[tokio::test]
async fn session_expired() {
    let Some(scene) = scene("expired").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let held = [one.lock("a").acquire().await.unwrap(), one.lock("b").acquire().await.unwrap()];
    let first = other.lock("c").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = one.lock("c");
        async move { lock.acquire().await }
    });
    let follower = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("c", 2).await;
    scene.until_nodes("a", 2).await;
    end_session(server::shared().port, session_of(&scene, "a", 0).await);
    for guard in &held {
        assert_eq!(in_time("the loss", guard.lost()).await, LossCause::SessionEnded);
        assert!(!guard.is_held());
    }
    // Who waited in that session waits again in another one, and these locks go on without being made anew.
    scene.until_nodes("c", 2).await;
    first.release().await.unwrap();
    let next = in_time("the waiter's grant", waiting).await.unwrap().unwrap();
    let follower = in_time("the follower's grant", follower).await.unwrap().unwrap();
    assert!(follower.token() > held[0].token() && next.is_held());
    let [a, b] = held;
    assert!(a.release().await.is_err() && b.release().await.is_err());
    assert!(follower.is_held(), "a stale release put the successor out");
    let again = in_time("the same lock", one.lock("b").acquire()).await.unwrap();
    again.release().await.unwrap();
    next.release().await.unwrap();
}

/// The node is made, but its maker never hears of it, because the connection breaks.
#[tokio::test]
async fn create_reply_lost() {
    let Some(scene) = scene("reply").await else { return };
    scene.locks().await.lock("a").acquire().await.unwrap().release().await.unwrap();
    let relay = Relay::to(server::shared().port).await;
    let options = ZkOptions::new([relay.address()]).prefix(&scene.prefix);
    let locks = Locks::new(ZkBackend::connect(options).await.unwrap());
    for _ in 0..5 {
        relay.deafen();
        let acquiring = tokio::spawn({
            let lock = locks.lock("a");
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 1).await;
        let node = scene.node("a", 0).await;
        let token = scene.eyes.check_stat(&node).await.unwrap().unwrap().czxid;
        relay.cut();
        let guard = in_time("the grant", acquiring).await.unwrap().unwrap();
        assert_eq!(i64::try_from(guard.token().get()).unwrap(), token, "the node was not found again");
        assert_eq!(scene.nodes("a").await.len(), 1);
        guard.release().await.unwrap();
        scene.until_nodes("a", 0).await;
    }
}

/// The same, and nobody waits for it any more.
#[tokio::test]
async fn create_reply_lost_and_given_up() {
    let Some(scene) = scene("given_up").await else { return };
    scene.locks().await.lock("a").acquire().await.unwrap().release().await.unwrap();
    let relay = Relay::to(server::shared().port).await;
    let options = ZkOptions::new([relay.address()]).prefix(&scene.prefix);
    let locks = Locks::new(ZkBackend::connect(options).await.unwrap());
    for _ in 0..5 {
        relay.deafen();
        // So short a lease that the withdrawal is given up before the connection is back.
        let lock = locks.lock("a").lease(Duration::from_millis(100)).wait(Duration::from_millis(50));
        assert!(lock.acquire().await.is_err());
        scene.until_nodes("a", 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        relay.cut();
        scene.until_nodes("a", 0).await;
        in_time("the next", locks.lock("a").acquire()).await.unwrap().release().await.unwrap();
    }
}

/// A release whose reply is lost is a release.
#[tokio::test]
async fn delete_reply_lost() {
    let Some(scene) = scene("delete").await else { return };
    let relay = Relay::to(server::shared().port).await;
    let options = ZkOptions::new([relay.address()]).prefix(&scene.prefix);
    let locks = Locks::new(ZkBackend::connect(options).await.unwrap());
    for _ in 0..5 {
        let guard = locks.lock("a").acquire().await.unwrap();
        relay.deafen();
        let releasing = tokio::spawn(guard.release());
        scene.until_nodes("a", 0).await;
        relay.cut();
        in_time("the release", releasing).await.unwrap().unwrap();
    }
}

/// A node of the same claim, made by a session that is ending: it is not the claim's, however early it came.
#[tokio::test]
async fn ghost_node_never_granted() {
    let Some(scene) = scene("ghost").await else { return };
    let backend = scene.backend().await;
    scene.locks().await.lock("a").acquire().await.unwrap().release().await.unwrap();
    let claim = claim("a");
    let base = format!("{}/_c_{}-lock-", scene.path("a"), claim.id);
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (ghost, _) = scene.eyes.create(&base, b"", &options).await.unwrap();
    let grant = try_grant(&backend, &claim).await.expect("its own ghost is in its way");
    assert!(i64::try_from(grant.token.get()).unwrap() > ghost.czxid, "the ghost was granted");
    assert_eq!(scene.nodes("a").await.len(), 1);
    assert_ne!(session_of(&scene, "a", 0).await, scene.eyes.session_id().0);
    backend.release(&grant).await.unwrap();
}

/// Somebody deletes a waiter's node: it stands in the queue again, and is not granted before its turn.
#[tokio::test]
async fn node_deleted_while_waiting() {
    let Some(scene) = scene("waiting").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    for _ in 0..5 {
        let node = scene.node("a", 1).await;
        scene.eyes.delete(&node, None).await.unwrap();
        eventually("it stands again", async || {
            let nodes = scene.nodes("a").await;
            nodes.len() == 2 && !node.ends_with(&nodes[1])
        })
        .await;
    }
    assert!(!waiting.is_finished());
    // Both at once: the waiter must not take the holder's end for its turn.
    let (held, waits) = (scene.node("a", 0).await, scene.node("a", 1).await);
    let mut both = scene.eyes.new_multi_writer();
    both.add_delete(&waits, None).unwrap();
    both.add_delete(&held, None).unwrap();
    both.commit().await.unwrap();
    let next = in_time("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(scene.nodes("a").await.len(), 1, "granted without a node");
    assert!(scene.node("a", 0).await.contains(&next.claim().to_string()));
    assert_eq!(in_time("the loss", guard.lost()).await, LossCause::Forced);
    next.release().await.unwrap();
}

/// The node before a waiter's goes while another one is before both.
#[tokio::test]
async fn a_waiter_that_gives_up_wakes_nobody_to_a_grant() {
    let Some(scene) = scene("gives_up").await else { return };
    let guard = scene.locks().await.lock("a").acquire().await.unwrap();
    let (between, behind) = (scene.locks().await, scene.locks().await);
    let gives_up = tokio::spawn(async move { between.lock("a").acquire().await });
    scene.until_nodes("a", 2).await;
    let waits = tokio::spawn(async move { behind.lock("a").acquire().await });
    scene.until_nodes("a", 3).await;
    gives_up.abort();
    scene.until_nodes("a", 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waits.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    in_time("the grant", waits).await.unwrap().unwrap().release().await.unwrap();
}

/// The server takes empty containers away, here all the time, while locks are taken.
#[tokio::test]
async fn parent_reaped_while_acquiring() {
    if !server::available() {
        return;
    }
    let server = Server::start(&["znode.container.checkIntervalMs=3", "znode.container.maxPerMinute=100000"]);
    let scene = Scene::on(&server, "reaped").await;
    let (one, other) = (scene.locks().await, scene.locks().await);
    let (mut reaped, mut last) = (0, None);
    for round in 0..400 {
        let locks = if round % 2 == 0 { &one } else { &other };
        let guard = in_time("a grant", locks.lock("a").acquire()).await.unwrap();
        assert!(last < Some(guard.token()), "the token went back with its parent");
        last = Some(guard.token());
        guard.release().await.unwrap();
        if round % 7 == 0 {
            tokio::time::sleep(Duration::from_millis(round % 5)).await;
        }
        reaped += u32::from(scene.eyes.check_stat(&scene.path("a")).await.unwrap().is_none());
    }
    eventually("the container is taken away", async || {
        scene.eyes.list_children(&scene.path("a")).await == Err(Error::NoNode)
    })
    .await;
    eprintln!("the parent was missing after {reaped} rounds");
}

async fn scene(test: &str) -> Option<Scene> {
    if !server::available() {
        return None;
    }
    Some(Scene::on(server::shared(), test).await)
}
