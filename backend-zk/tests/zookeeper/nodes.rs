//! The nodes below a lock's node, by which clients of other programs know what is held.

use crate::{PATIENCE, Scene, granted, in_time, server::ONE, wait};
use std::time::Duration;
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Locks, LossCause, Mode};
use tenure_zk::ZkBackend;
use zookeeper_client::{Acls, CreateMode};

const SEQUENTIAL: zookeeper_client::CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

#[tokio::test]
async fn grant_is_a_node_in_curators_form() {
    let Some(scene) = Scene::on(&ONE, "forms").await else { return };
    let locks = scene.locks().await;
    let read_write = Locks::new(ZkBackend::connect(scene.options().read_write_nodes(true)).await.unwrap());
    for (name, lock, form) in [
        ("read", locks.rw("read").read(), "__READ__"),
        ("write", locks.rw("write").write(), "lock-"),
        ("permit", locks.semaphore("permit", 4).permits(2), "permit-2-of-4-lock-"),
        ("alone", read_write.lock("alone"), "__WRIT__"),
        ("beside", read_write.rw("beside").read(), "__READ__"),
    ] {
        let guard = lock.label("nightly").acquire().await.unwrap();
        assert_eq!(scene.nodes(name).await, [format!("_c_{}-{form}0000000000", guard.claim())]);
        let (data, stat) = scene.eyes.get_data(&scene.node(name, 0).await).await.unwrap();
        assert_eq!(u64::try_from(stat.czxid).unwrap(), guard.token().get());
        assert_ne!(stat.ephemeral_owner, 0);
        let card: serde_json::Value = serde_json::from_slice(&data).unwrap();
        assert_eq!(card["claim"], guard.claim().to_string());
        assert_eq!((&card["label"], &card["pid"]), (&"nightly".into(), &std::process::id().into()));
        assert!(card["host"].is_string() && card["since"].is_u64());
        guard.release().await.unwrap();
    }
    // The writer's node has the number of the reader's, and so its place.
    let mut guard = locks.rw("a").read().acquire().await.unwrap();
    let waits = wait(&scene, "a", read_write.lock("a"), 2).await;
    assert!(guard.try_upgrade().await.unwrap());
    let (claim, token) = (guard.claim(), guard.token());
    assert_eq!(scene.nodes("a").await[0], format!("_c_{claim}-from-{token}-__WRIT__0000000000"));
    let [told] = &locks.holders("a").await.unwrap()[..] else { panic!("one holder") };
    assert_eq!((told.claim, told.token, told.mode), (Some(claim), Some(token), Mode::Exclusive));
    guard.release().await.unwrap();
    granted(waits).await.release().await.unwrap();
}

/// As far as their nodes' names tell, whichever recipe made them.
#[tokio::test]
async fn foreign_sequential_node_contends() {
    let Some(scene) = Scene::on(&ONE, "foreign").await else { return };
    let locks = scene.locks().await;
    scene.keep("a").await;
    for (form, reads) in [
        ("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-__READ__", true),
        ("27d6a1ac9c3b4a1e8d5c9d1f6d7b1c11__rlock__", true),
        ("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-__WRIT__", false),
        ("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-lock-", false),
        ("27d6a1ac9c3b4a1e8d5c9d1f6d7b1c11__lock__", false),
        ("_c_no-uuid-lock-", false),
        ("x-72057594-", false),
        ("", false),
    ] {
        let base = format!("{}/{form}", scene.path("a"));
        let (_, number) = scene.eyes.create(&base, b"10.0.0.7", &SEQUENTIAL).await.unwrap();
        let reader = locks.rw("a").read().try_acquire().await.unwrap();
        assert_eq!(reader.is_some(), reads, "{form}");
        assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "{form}");
        let told = locks.holders("a").await.unwrap();
        assert_eq!((told[0].claim, told[0].token, told[0].mode == Mode::Shared), (None, None, reads));
        assert!(told[0].since.is_some());
        drop(reader);
        let waiting = wait(&scene, "a", locks.lock("a"), 2).await;
        scene.eyes.delete(&format!("{base}{number}"), None).await.unwrap();
        granted(waiting).await.release().await.unwrap();
        scene.eyes.create(&base, b"", &SEQUENTIAL).await.unwrap();
        assert_eq!(locks.force_release("a").await.unwrap().len(), 1, "{form}");
        scene.until_nodes("a", 0).await;
    }
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    scene.eyes.create(&format!("{}/leases", scene.path("a")), b"", &options).await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some(), "a node without a number contends");
}

#[tokio::test]
async fn foreign_waiter_is_told_in_its_place() {
    let Some(scene) = Scene::on(&ONE, "waiters").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    let reader = wait(&scene, "a", other.rw("a").read().label("reads"), 2).await;
    scene.eyes.create(&format!("{}/x-", scene.path("a")), b"10.0.0.7", &SEQUENTIAL).await.unwrap();
    let told = one.waiting("a").await.unwrap();
    let who: Vec<_> = told.iter().map(|waiter| (waiter.info.label.as_deref(), waiter.mode)).collect();
    assert_eq!(who, [(Some("reads"), Mode::Shared), (None, Mode::Exclusive)]);
    assert!(told.iter().all(|waiter| waiter.since.is_some() && waiter.age.is_some()));
    guard.release().await.unwrap();
    let reader = granted(reader).await;
    assert_eq!((told[0].claim, told[1].claim), (Some(reader.claim()), None));
    reader.release().await.unwrap();
    assert!(one.waiting("a").await.unwrap().is_empty(), "its turn has come");
}

/// The client watches the node a moment after the grant, and an upgrade replaces the node.
#[tokio::test]
async fn deleted_node_is_a_loss() {
    let Some(scene) = Scene::on(&ONE, "deleted").await else { return };
    let (proxy, locks) = scene.behind_proxy().await;
    for [before, after] in [[false, false], [true, false], [false, true], [true, true]] {
        for upgrades in [false, true] {
            let mut guard = locks.rw("a").read().acquire().await.unwrap();
            if before {
                crate::quiet(&proxy).await;
            }
            assert!(!upgrades || guard.try_upgrade().await.unwrap());
            if after {
                crate::quiet(&proxy).await;
            }
            assert!(guard.is_held(), "{before}, {after}: {:?}", guard.loss());
            scene.eyes.delete(&scene.node("a", 0).await, None).await.unwrap();
            let cause = in_time("the loss", guard.lost()).await;
            assert_eq!(cause, LossCause::Forced, "{before}, {after}, upgraded: {upgrades}");
            assert!(guard.release().await.is_err());
        }
    }
    // The claim is gone, and the session is not.
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

/// The node that a claim waits for changes after the claim has looked at the queue, and before it watches that node. The
/// session is so long that no heartbeat makes up for what is missed.
#[tokio::test]
async fn change_between_look_and_watch_is_noticed() {
    const DELAY: Duration = Duration::from_millis(500);
    let Some(scene) = Scene::on(&ONE, "between").await else { return };
    let (proxy, slow): (Proxy, Locks) = scene.behind_proxy().await;
    assert!(slow.capabilities().ask_again > PATIENCE);
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await];

    // The one before it is admitted, and tells.
    let one = |client: usize| clients[client].semaphore("a", 2).permit();
    let [first, second] = [one(0).acquire().await.unwrap(), one(1).acquire().await.unwrap()];
    let next = wait(&scene, "a", one(2), 3).await;
    proxy.set(Direction::Requests, Flow::Delay(DELAY));
    let last = wait(&scene, "a", slow.semaphore("a", 2).permit(), 4).await;
    first.release().await.unwrap();
    let next = granted(next).await;
    second.release().await.unwrap();
    granted(last).await.release().await.unwrap();
    next.release().await.unwrap();

    // The writer before it has its turn, and becomes a reader.
    proxy.set(Direction::Requests, Flow::Pass);
    let first = clients[0].lock("b").acquire().await.unwrap();
    let next = wait(&scene, "b", clients[1].rw("b").write(), 2).await;
    proxy.set(Direction::Requests, Flow::Delay(DELAY));
    let last = wait(&scene, "b", slow.rw("b").read(), 3).await;
    first.release().await.unwrap();
    let mut next = granted(next).await;
    next.downgrade().await.unwrap();
    granted(last).await.release().await.unwrap();
    next.release().await.unwrap();
}
