//! The nodes below a lock's node, by which clients of other programs know what is held.

use crate::{HANG, Scene, granted, in_time, none_is_finished, server::ONE, wait};
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

/// The page on formats has the forms without this option.
#[tokio::test]
async fn exclusive_claim_is_a_writers_node_with_read_write_nodes() {
    let Some(scene) = Scene::on(&ONE, "forms").await else { return };
    let locks = Locks::new(ZkBackend::connect(scene.options().read_write_nodes(true)).await.unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(scene.nodes("a").await, [format!("_c_{}-__WRIT__0000000000", guard.claim())]);
    let stat = scene.eyes.check_stat(&scene.node("a", 0).await).await.unwrap().unwrap();
    assert_eq!(u64::try_from(stat.czxid).unwrap(), guard.token().get());
}

/// As far as its name tells, whichever recipe made it.
#[tokio::test]
async fn foreign_node_is_told_and_waited_for_in_its_place() {
    let Some(scene) = Scene::on(&ONE, "foreign").await else { return };
    let (one, other, last) = (scene.locks().await, scene.locks().await, scene.locks().await);
    scene.keep("a").await;
    let guard = one.lock("a").acquire().await.unwrap();
    let reader = wait(&scene, "a", other.rw("a").read().label("reads"), 2).await;
    let base = format!("{}/x-", scene.path("a"));
    let (_, number) = scene.eyes.create(&base, b"10.0.0.7", &SEQUENTIAL).await.unwrap();
    let waiting = wait(&scene, "a", last.lock("a"), 4).await;
    let told = one.waiting("a").await.unwrap();
    let who: Vec<_> = told.iter().map(|waiter| (waiter.info.label.as_deref(), waiter.mode)).collect();
    assert_eq!(who[..2], [(Some("reads"), Mode::Shared), (None, Mode::Exclusive)]);
    assert!(told.iter().all(|waiter| waiter.since.is_some() && waiter.age.is_some()));
    guard.release().await.unwrap();
    let reader = granted(reader).await;
    assert_eq!((told[0].claim, told[1].claim), (Some(reader.claim()), None));
    reader.release().await.unwrap();
    none_is_finished(&[&waiting]).await;
    let [holder] = &one.holders("a").await.unwrap()[..] else { panic!("one holder") };
    assert_eq!((holder.claim, holder.token, holder.mode), (None, None, Mode::Exclusive));
    assert!(holder.since.is_some());
    scene.eyes.delete(&format!("{base}{number}"), None).await.unwrap();
    granted(waiting).await.release().await.unwrap();
    scene.eyes.create(&base, b"", &SEQUENTIAL).await.unwrap();
    assert_eq!(one.force_release("a").await.unwrap().len(), 1);
    scene.until_nodes("a", 0).await;
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
    assert!(slow.capabilities().ask_again > HANG);
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
