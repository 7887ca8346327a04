//! Claims that take turns.

use crate::{Scene, claim, eventually, in_time, server::ONE, try_grant};
use std::time::Duration;
use tenure_core::{Backend, LossCause, Release, Standing};
use zookeeper_client::{Acls, CreateMode};

#[tokio::test]
async fn one_holds_and_the_next_follows() {
    let Some(scene) = Scene::on(&ONE, "follow").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let first = one.lock("a").acquire().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(scene.nodes("a").await.len(), 1, "an attempt left something behind");
    let waiting = tokio::spawn(async move { other.lock("a").acquire().await });
    scene.until_nodes("a", 2).await;
    assert!(!waiting.is_finished() && first.is_held());
    let token = first.token();
    first.release().await.unwrap();
    let second = in_time("the second grant", waiting).await.unwrap().unwrap();
    assert!(second.token() > token);
    second.release().await.unwrap();
    assert!(scene.nodes("a").await.is_empty());
}

#[tokio::test]
async fn a_grant_is_a_node_in_curators_form() {
    let Some(scene) = Scene::on(&ONE, "form").await else { return };
    let locks = scene.locks().await;
    let guard = locks.lock("orders").label("nightly").acquire().await.unwrap();
    let nodes = scene.nodes("orders").await;
    assert_eq!(nodes, [format!("_c_{}-lock-0000000000", guard.claim())]);
    let (data, stat) = scene.eyes.get_data(&scene.node("orders", 0).await).await.unwrap();
    assert_eq!(u64::try_from(stat.czxid).unwrap(), guard.token().get());
    assert_ne!(stat.ephemeral_owner, 0);
    let card: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(card["claim"], guard.claim().to_string());
    assert_eq!(card["label"], "nightly");
    assert_eq!(card["pid"], std::process::id());
    assert!(card["host"].is_string() && card["since"].is_u64());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn waiters_of_many_clients_are_served_in_their_order() {
    let Some(scene) = Scene::on(&ONE, "fair").await else { return };
    let guard = scene.locks().await.lock("a").acquire().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..10 {
        let (locks, served) = (scene.locks().await, served.clone());
        tokio::spawn(async move {
            let guard = locks.lock("a").acquire().await.unwrap();
            served.send((number, guard.token())).unwrap();
            guard.release().await.unwrap();
        });
        scene.until_nodes("a", number + 2).await;
    }
    let mut last = guard.token();
    guard.release().await.unwrap();
    for number in 0..10 {
        let (served, token) = in_time("a turn", order.recv()).await.unwrap();
        assert_eq!(served, number);
        assert!(token > last);
        last = token;
    }
}

#[tokio::test]
async fn every_sequential_node_contends_whoever_made_it() {
    let Some(scene) = Scene::on(&ONE, "foreign").await else { return };
    let locks = scene.locks().await;
    scene.keep("a").await;
    for form in ["x-72057594-", "3f6b__lock__", "_c_no-uuid-lock-", "latch", ""] {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, number) =
            scene.eyes.create(&format!("{}/{form}", scene.path("a")), b"", &options).await.unwrap();
        assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "{form}{number} was passed over");
        let waiting = tokio::spawn({
            let lock = locks.lock("a");
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 2).await;
        scene.eyes.delete(&format!("{}/{form}{number}", scene.path("a")), None).await.unwrap();
        in_time("the grant", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    scene.eyes.create(&format!("{}/leases", scene.path("a")), b"", &options).await.unwrap();
    assert!(
        locks.lock("a").try_acquire().await.unwrap().is_some(),
        "a node without a number is no contender"
    );
}

#[tokio::test]
async fn a_request_sent_twice_is_granted_once() {
    let Some(scene) = Scene::on(&ONE, "twice").await else { return };
    let backend = scene.backend().await;
    let claim = claim("a");
    let first = try_grant(&backend, &claim).await.unwrap();
    let again = try_grant(&backend, &claim).await.unwrap();
    assert_eq!((first.token, first.claim), (again.token, again.claim));
    assert_eq!(backend.acquire(&claim).await.unwrap().token, first.token);
    assert_eq!(scene.nodes("a").await.len(), 1);
    assert_eq!(backend.release(&first).await.unwrap(), Release::Released { awaited: false });
    assert!(matches!(backend.release(&again).await.unwrap(), Release::Lost(_)));
}

#[tokio::test]
async fn withdrawn_claims_leave_nothing() {
    let Some(scene) = Scene::on(&ONE, "withdrawn").await else { return };
    let (one, other) = (scene.backend().await, scene.backend().await);
    let (held, queued, unknown) = (claim("a"), claim("a"), claim("a"));
    let grant = try_grant(&one, &held).await.unwrap();
    let waiting = tokio::spawn({
        let (other, queued) = (other.clone(), queued.clone());
        async move { other.acquire(&queued).await }
    });
    scene.until_nodes("a", 2).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    other.withdraw(&queued).await.unwrap();
    other.withdraw(&unknown).await.unwrap();
    assert_eq!(scene.nodes("a").await.len(), 1);
    one.withdraw(&held).await.unwrap();
    assert!(scene.nodes("a").await.is_empty());
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    assert_eq!(liveness.loss(), None, "its own withdrawal is not a loss");
}

/// The future is dropped after 1, 2, … polls, at every point at which it can be.
#[tokio::test]
async fn cancelled_anywhere_it_leaves_nothing() {
    let Some(scene) = Scene::on(&ONE, "cancelled").await else { return };
    let (holder, locks) = (scene.locks().await, scene.locks().await);
    for held in [true, false] {
        for polls in 1..30 {
            let guard = if held { Some(holder.lock("a").acquire().await.unwrap()) } else { None };
            let lock = locks.lock("a");
            let mut acquiring = Box::pin(lock.acquire());
            for _ in 0..polls {
                if futures_util::poll!(&mut acquiring).is_ready() {
                    break;
                }
                // With and without time for an answer to arrive.
                match polls % 2 {
                    0 => tokio::task::yield_now().await,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
            drop(acquiring);
            let left = usize::from(held);
            eventually("nothing is left", async || scene.nodes("a").await.len() == left).await;
            // Nor does anything come late.
            tokio::time::sleep(Duration::from_millis(2)).await;
            eventually("nothing is left", async || scene.nodes("a").await.len() == left).await;
            drop(guard);
            scene.until_nodes("a", 0).await;
        }
    }
}

#[tokio::test]
async fn a_deleted_node_is_a_loss() {
    let Some(scene) = Scene::on(&ONE, "deleted").await else { return };
    let locks = scene.locks().await;
    for pause in [Duration::ZERO, Duration::from_millis(300)] {
        let guard = locks.lock("a").acquire().await.unwrap();
        tokio::time::sleep(pause).await;
        scene.eyes.delete(&scene.node("a", 0).await, None).await.unwrap();
        assert_eq!(in_time("the loss", guard.lost()).await, LossCause::Forced);
        assert!(guard.release().await.is_err());
        // The claim is gone, the session is not.
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_released_by_force_passes_on() {
    let Some(scene) = Scene::on(&ONE, "forced").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    let put_out = other.force_release("a").await.unwrap();
    assert_eq!(put_out[0].claim, Some(guard.claim()));
    assert_eq!(in_time("the loss", guard.lost()).await, LossCause::Forced);
    let next = in_time("the next grant", waiting).await.unwrap().unwrap();
    assert!(next.token() > guard.token() && next.is_held());
    next.release().await.unwrap();
    assert!(one.force_release("a").await.unwrap().is_empty());
}
