//! The life of a session.

use crate::{Scene, claim, granted, in_time, quiet, server::ONE, try_grant, until, wait};
use futures_util::future::join_all;
use std::time::Duration;
use tenure_conformance::{pause, proxy::Flow, saboteur::Direction};
use tenure_core::{Backend, Locks, Standing, StoreError};
use tenure_zk::ZkBackend;

/// A heartbeat comes with each third of it.
const SESSION: Duration = Duration::from_secs(8);

/// A grant would be lost soon. It is granted when the session is better, or in the next one.
#[tokio::test]
async fn waiter_is_not_granted_while_its_session_runs_out() {
    let Some(scene) = Scene::on(&ONE, "runs-out").await else { return };
    let ((proxy, backend), holder) = (scene.past_proxy(SESSION).await, scene.locks().await);
    let first = holder.lock("a").acquire().await.unwrap();
    // The session's other grant shows what is left of it.
    let beside = try_grant(&backend, &claim("b")).await.unwrap();
    let Standing::Session(liveness) = &beside.standing else { panic!("{beside:?}") };
    let waiting = tokio::spawn(async move { backend.acquire(&claim("a")).await });
    scene.until_nodes("a", 2).await;
    quiet(&proxy).await;
    let left = async |less: Duration| {
        until("little is left", async || liveness.deadline().left() < less).await;
    };
    // Just before a heartbeat, so that the client does not take the connection for broken meanwhile.
    left(SESSION * 3 / 8).await;
    proxy.set(Direction::Requests, Flow::Hold);
    left(SESSION / 4).await;
    let heard = proxy.counters().replies.passed;
    first.release().await.unwrap();
    in_time("the event", proxy.until(|counters| counters.replies.passed > heard)).await;
    pause::linger(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "granted for {:?}", liveness.deadline().left());
    proxy.set(Direction::Requests, Flow::Pass);
    in_time("the grant", waiting).await.unwrap().unwrap();
}

/// The event that would wake a waiter never arrives, and nothing else is wrong with its connection. No node's end tells the
/// next waiter for permits of its turn.
#[tokio::test]
async fn lost_event_is_noticed_with_the_next_heartbeat() {
    let Some(scene) = Scene::on(&ONE, "event").await else { return };
    let holder = scene.locks().await;
    for lock in [|locks: &Locks| locks.lock("a"), |locks: &Locks| locks.semaphore("a", 2).permit()] {
        let (proxy, backend) = scene.past_proxy(SESSION).await;
        let locks = Locks::new(backend);
        assert_eq!(locks.capabilities().ask_again, SESSION / 3);
        let mut held = vec![lock(&holder).acquire().await.unwrap()];
        held.extend(lock(&holder).try_acquire().await.unwrap());
        let waiting = wait(&scene, "a", lock(&locks), held.len() + 1).await;
        quiet(&proxy).await;
        proxy.set(Direction::Replies, Flow::Drop);
        held.pop().unwrap().release().await.unwrap();
        in_time("the event", proxy.until(|counters| counters.replies.dropped > 0)).await;
        proxy.set(Direction::Replies, Flow::Pass);
        granted(waiting).await.release().await.unwrap();
        drop(held);
        scene.until_nodes("a", 0).await;
    }
}

/// There is no session, and the servers hang: the failure to open one answers all who wait for it.
#[tokio::test]
async fn failed_opening_answers_all_who_wait() {
    const OPENING: Duration = Duration::from_secs(2);
    let Some(scene) = Scene::on(&ONE, "openings").await else { return };
    let proxy = scene.proxy().await;
    let backend = ZkBackend::connect(scene.through(&proxy).connect_timeout(OPENING)).await.unwrap();
    backend.close().await;
    proxy.half_open();
    let (claims, before) =
        ((0..20).map(|number| claim(&number.to_string())).collect::<Vec<_>>(), proxy.counters().accepted);
    let answers = join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_unavailable)));
    let made = proxy.counters().accepted - before;
    assert!(made < 10, "{made} connections for {} attempts", claims.len());
    proxy.mend().await.unwrap();
    try_grant(&backend, &claims[0]).await.expect("an answer to an earlier request was given again");
}
