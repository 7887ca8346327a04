//! What goes wrong, and what comes of it.

use crate::{
    Scene, claim, eventually, in_time,
    server::{ENSEMBLE, ONE, Shared},
    takeover::end_session,
    try_grant,
};
use std::time::Duration;
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Backend, Locks, LossCause};
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, CreateMode, Error};

/// Every fault, on one server and on an ensemble.
macro_rules! on_each {
    ($($fault:ident),+ $(,)?) => {
        mod one_server {
            $(#[tokio::test]
            async fn $fault() {
                super::$fault(&super::ONE).await;
            })+
        }

        mod ensemble {
            $(#[tokio::test]
            async fn $fault() {
                super::$fault(&super::ENSEMBLE).await;
            })+
        }
    };
}

on_each!(
    session_expired,
    create_reply_lost,
    create_reply_lost_and_given_up,
    delete_reply_lost,
    delete_lost_and_asked_again,
    ghost_node_never_granted,
    node_deleted_while_waiting,
    a_waiter_that_gives_up_wakes_nobody_to_a_grant,
    parent_reaped_while_acquiring,
    a_readers_session_expires,
    a_permits_create_reply_is_lost,
);

/// A way to the server on which replies can be lost.
struct Way(Proxy);

impl Way {
    async fn of(scene: &Scene) -> Self {
        Self(Proxy::start(scene.place().address().await).await.unwrap())
    }

    async fn locks(&self, scene: &Scene) -> Locks {
        Locks::new(ZkBackend::connect(scene.through(&self.0)).await.unwrap())
    }

    /// From now on requests arrive, and their replies are lost.
    fn lose_replies(&self) {
        self.0.set(Direction::Replies, Flow::Drop);
    }

    /// Breaks the connection that lost replies; new ones are whole.
    async fn break_and_mend(&self) {
        self.0.cut().await;
        self.0.mend().await.unwrap();
    }
}

pub(crate) async fn session_of(scene: &Scene, lock: &str, at: usize) -> i64 {
    scene.eyes.check_stat(&scene.node(lock, at).await).await.unwrap().unwrap().ephemeral_owner
}

/// The session is taken over on a second connection to the same server, and ended there.
async fn session_expired(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "expired").await else { return };
    let options = ZkOptions::new(&scene.hosts[..1]).prefix(&scene.prefix);
    let (one, other) = (Locks::new(ZkBackend::connect(options).await.unwrap()), scene.locks().await);
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
    // By now the grants' nodes are watched: the server may tell that they have gone before it tells why.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (server, session) = (scene.place().direct_address().await, session_of(&scene, "a", 0).await);
    in_time("the session's end", end_session(server, session)).await;
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
async fn create_reply_lost(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "reply").await else { return };
    scene.keep("a").await;
    let way = Way::of(&scene).await;
    let locks = way.locks(&scene).await;
    for round in 0..6 {
        way.lose_replies();
        let acquiring = tokio::spawn({
            let lock = if round % 2 == 0 { locks.lock("a") } else { locks.rw("a").read() };
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 1).await;
        let node = scene.node("a", 0).await;
        let token = scene.eyes.check_stat(&node).await.unwrap().unwrap().czxid;
        way.break_and_mend().await;
        let guard = in_time("the grant", acquiring).await.unwrap().unwrap();
        assert_eq!(i64::try_from(guard.token().get()).unwrap(), token, "the node was not found again");
        assert_eq!(scene.nodes("a").await.len(), 1);
        guard.release().await.unwrap();
        scene.until_nodes("a", 0).await;
    }
}

/// The same, and nobody waits for it any more.
async fn create_reply_lost_and_given_up(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "given_up").await else { return };
    scene.keep("a").await;
    let way = Way::of(&scene).await;
    let locks = way.locks(&scene).await;
    for _ in 0..5 {
        way.lose_replies();
        // So short a lease that the withdrawal is given up before the connection is back.
        let lock = locks.lock("a").lease(Duration::from_millis(100));
        let acquiring = tokio::spawn(async move { lock.acquire().await.map(drop) });
        scene.until_nodes("a", 1).await;
        acquiring.abort();
        assert!(acquiring.await.is_err_and(|end| end.is_cancelled()), "granted without a reply");
        tokio::time::sleep(Duration::from_millis(300)).await;
        way.break_and_mend().await;
        scene.until_nodes("a", 0).await;
        in_time("the next", locks.lock("a").acquire()).await.unwrap().release().await.unwrap();
    }
}

/// A release whose reply is lost is a release.
async fn delete_reply_lost(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "delete").await else { return };
    let way = Way::of(&scene).await;
    let locks = way.locks(&scene).await;
    for _ in 0..5 {
        let guard = locks.lock("a").acquire().await.unwrap();
        way.lose_replies();
        let releasing = tokio::spawn(guard.release());
        scene.until_nodes("a", 0).await;
        way.break_and_mend().await;
        in_time("the release", releasing).await.unwrap().unwrap();
    }
}

/// A claim leaves the queue, and asks again before its old node is gone: that node grants nothing.
async fn delete_lost_and_asked_again(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "left").await else { return };
    let way = Way::of(&scene).await;
    let backend = ZkBackend::connect(scene.through(&way.0)).await.unwrap();
    let claim = claim("a");
    try_grant(&backend, &claim).await.unwrap();
    way.0.set(Direction::Requests, Flow::Drop);
    // Longer than a ping.
    let enough = way.0.counters().requests.dropped + 50;
    let leaving = tokio::spawn({
        let (backend, claim) = (backend.clone(), claim.clone());
        async move { backend.withdraw(&claim).await }
    });
    in_time("the delete", way.0.until(|counters| counters.requests.dropped > enough)).await;
    way.break_and_mend().await;
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
async fn ghost_node_never_granted(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "ghost").await else { return };
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

/// Somebody deletes a waiter's node: it stands in the queue again, and is not granted before its turn.
async fn node_deleted_while_waiting(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "waiting").await else { return };
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
async fn a_waiter_that_gives_up_wakes_nobody_to_a_grant(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "gives_up").await else { return };
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
async fn parent_reaped_while_acquiring(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "reaped").await else { return };
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

/// A reader's share ends with its own session, and nobody else's.
async fn a_readers_session_expires(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "reader_expired").await else { return };
    let options = ZkOptions::new(&scene.hosts[..1]).prefix(&scene.prefix);
    let (one, other) = (Locks::new(ZkBackend::connect(options).await.unwrap()), scene.locks().await);
    let mine = one.rw("a").read().acquire().await.unwrap();
    let mut theirs = other.rw("a").read().acquire().await.unwrap();
    let waits = |lock: tenure_core::Lock| tokio::spawn(async move { lock.acquire().await });
    let writer = waits(scene.locks().await.rw("a").write());
    scene.until_nodes("a", 3).await;
    // It waits in the session that ends, for the writer.
    let reader = waits(one.rw("a").read());
    scene.until_nodes("a", 4).await;
    let (server, session) = (scene.place().direct_address().await, session_of(&scene, "a", 0).await);
    in_time("the session's end", end_session(server, session)).await;
    assert_eq!(in_time("the loss", mine.lost()).await, LossCause::SessionEnded);
    assert!(mine.release().await.is_err());
    // The reader that waited stands in the line again, at its end.
    scene.until_nodes("a", 3).await;
    assert!(theirs.is_held() && !writer.is_finished());
    assert!(in_time("an answer", theirs.try_upgrade()).await.unwrap(), "the other reader is dead");
    theirs.release().await.unwrap();
    let writer = in_time("the writer", writer).await.unwrap().unwrap();
    assert!(!reader.is_finished());
    writer.release().await.unwrap();
    in_time("the reader", reader).await.unwrap().unwrap().release().await.unwrap();
}

/// A permit is found again by its claim, and counted once.
async fn a_permits_create_reply_is_lost(shared: &'static Shared) {
    let Some(scene) = Scene::on(shared, "permit_reply").await else { return };
    scene.keep("a").await;
    let way = Way::of(&scene).await;
    let (locks, other) = (way.locks(&scene).await, scene.locks().await);
    for _ in 0..3 {
        way.lose_replies();
        let acquiring = tokio::spawn({
            let lock = locks.semaphore("a", 2).permit();
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 1).await;
        way.break_and_mend().await;
        let guard = in_time("the grant", acquiring).await.unwrap().unwrap();
        let beside = other.semaphore("a", 2).permit().try_acquire().await.unwrap().expect("one of two");
        assert!(other.semaphore("a", 2).permit().try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        beside.release().await.unwrap();
        scene.until_nodes("a", 0).await;
    }
}
