//! Lost sessions, answers and nodes.

use crate::{
    Scene, USUAL_SESSION, claim, end_session, granted, in_time, quiet, server::ONE, try_grant, until, wait,
};
use std::time::Duration;
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Backend, LossCause};
use zookeeper_client::{Acls, CreateMode};

/// Breaks the connection that lost something; new ones are whole.
async fn break_and_mend(proxy: &Proxy) {
    proxy.cut().await;
    proxy.mend().await.unwrap();
}

pub(crate) async fn session_of(scene: &Scene, lock: &str, at: usize) -> i64 {
    scene.eyes.check_stat(&scene.node(lock, at).await).await.unwrap().unwrap().ephemeral_owner
}

/// The session is taken over on a second connection to the same server, and ended there.
#[tokio::test]
async fn session_expired() {
    let Some(scene) = Scene::on(&ONE, "expired").await else { return };
    let ((proxy, one), other) = (scene.behind_proxy().await, scene.locks().await);
    let held = [one.lock("a").acquire().await.unwrap(), one.lock("b").acquire().await.unwrap()];
    let first = other.lock("c").acquire().await.unwrap();
    let waiting = wait(&scene, "c", one.lock("c"), 2).await;
    let follower = wait(&scene, "a", other.lock("a"), 2).await;
    // The server may tell that the grants' nodes, which are watched, have gone before it tells why.
    quiet(&proxy).await;
    end_session(scene.place().address().await, &proxy).await;
    for guard in &held {
        assert_eq!(in_time("the loss", guard.lost()).await, LossCause::SessionEnded);
        assert!(!guard.is_held());
    }
    // The session's waiter waits again in a new session, and the same `Locks` go on.
    scene.until_nodes("c", 2).await;
    first.release().await.unwrap();
    let (next, follower) = (granted(waiting).await, granted(follower).await);
    assert!(follower.token() > held[0].token() && next.is_held());
    let [a, b] = held;
    assert!(a.release().await.is_err() && b.release().await.is_err());
    assert!(follower.is_held(), "a stale release put the successor out");
    let again = in_time("the same lock", one.lock("b").acquire()).await.unwrap();
    again.release().await.unwrap();
    next.release().await.unwrap();
}

/// The node is made, but its client never hears of it, because the connection breaks, and its task has given up.
#[tokio::test]
async fn create_reply_lost_and_given_up() {
    let Some(scene) = Scene::on(&ONE, "given_up").await else { return };
    scene.keep("a").await;
    let (proxy, locks) = scene.behind_proxy().await;
    for lock in [locks.lock("a"), locks.rw("a").read(), locks.semaphore("a", 2).permit()] {
        // Requests arrive.
        proxy.set(Direction::Replies, Flow::Drop);
        // So short a lease that the withdrawal is given up before the connection is back.
        let acquiring = wait(&scene, "a", lock.lease(Duration::from_millis(100)), 1).await;
        acquiring.abort();
        assert!(acquiring.await.is_err_and(|end| end.is_cancelled()), "granted without a reply");
        until("the withdrawal is given up", async || locks.names_in_use() == 0).await;
        break_and_mend(&proxy).await;
        scene.until_nodes("a", 0).await;
        in_time("the next", locks.lock("a").acquire()).await.unwrap().release().await.unwrap();
    }
}

/// A claim leaves the queue, and asks again before its old node is gone: that node grants nothing.
#[tokio::test]
async fn delete_lost_and_asked_again() {
    let Some(scene) = Scene::on(&ONE, "left").await else { return };
    let (proxy, backend) = scene.past_proxy(USUAL_SESSION).await;
    let claim = claim("a");
    try_grant(&backend, &claim).await.unwrap();
    proxy.set(Direction::Requests, Flow::Drop);
    // Longer than a ping.
    let enough = proxy.counters().requests.dropped + 50;
    let leaving = tokio::spawn({
        let (backend, claim) = (backend.clone(), claim.clone());
        async move { backend.withdraw(&claim).await }
    });
    in_time("the delete", proxy.until(|counters| counters.requests.dropped > enough)).await;
    break_and_mend(&proxy).await;
    let asking = async {
        loop {
            if let Ok(grant) = backend.acquire(&claim).await {
                return grant;
            }
        }
    };
    let grant = in_time("the grant", asking).await;
    in_time("the withdrawal", leaving).await.unwrap().unwrap();
    let node = scene.eyes.check_stat(&scene.node("a", 0).await).await.unwrap().unwrap();
    assert_eq!(i64::try_from(grant.token.get()).unwrap(), node.czxid);
    backend.release(&grant).await.unwrap();
}

/// A node of the same claim, made by a session that is ending: it is not the claim's, however early it came.
#[tokio::test]
async fn ghost_node_never_granted() {
    let Some(scene) = Scene::on(&ONE, "ghost").await else { return };
    let backend = scene.backend().await;
    scene.keep("a").await;
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

/// A waiter whose node is deleted stands in the queue again, and is not granted before its turn.
#[tokio::test]
async fn node_deleted_while_waiting() {
    let Some(scene) = Scene::on(&ONE, "waiting").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    let waiting = wait(&scene, "a", other.lock("a"), 2).await;
    for _ in 0..5 {
        let node = scene.node("a", 1).await;
        scene.eyes.delete(&node, None).await.unwrap();
        until("it stands again", async || {
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
    let next = granted(waiting).await;
    assert_eq!(scene.nodes("a").await.len(), 1, "granted without a node");
    assert!(scene.node("a", 0).await.contains(&next.claim().to_string()));
    assert_eq!(in_time("the loss", guard.lost()).await, LossCause::Forced);
    next.release().await.unwrap();
}
