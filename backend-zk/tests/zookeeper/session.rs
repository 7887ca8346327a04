//! The life of a session.

use crate::{Scene, claim, in_time, server::ONE, try_grant};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::{Direction, Hurt},
};
use tenure_core::{Backend, Locks, LossCause, StoreError};
use tenure_zk::ZkBackend;

/// A heartbeat may come nearly a third of it late: on a busy machine two seconds are too little.
const SESSION: Duration = Duration::from_secs(8);
/// By then a waiter has set its watch: only the event is to be lost, and no answer that it waits for.
const WATCHED: Duration = Duration::from_secs(2);
/// What a busy machine may take beyond a bound. Where nothing was noticed, nothing comes at all.
const SLACK: Duration = Duration::from_secs(3);

async fn locks(scene: &Scene) -> Locks {
    Locks::new(ZkBackend::connect(scene.options().session_timeout(SESSION)).await.unwrap())
}

#[tokio::test]
async fn held_for_several_timeouts_and_taken_after_idleness() {
    let Some(scene) = Scene::on(&ONE, "several").await else { return };
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
    let Some(place) = ONE.alone(&[Hurt::Freeze]).await else { return };
    let scene = Scene::at(place, "frozen").await;
    // Somebody else takes it next: what ends the lost session is not a new request of its own client.
    let (locks, others) = (locks(&scene).await, locks(&scene).await);
    let guard = locks.lock("a").acquire().await.unwrap();
    tokio::time::sleep(SESSION / 2).await;
    let frozen = Instant::now();
    scene.place().saboteur().freeze().await.unwrap();
    let cause = in_time("the loss", guard.lost()).await;
    assert_eq!(cause, LossCause::SessionEnded);
    assert!(frozen.elapsed() < SESSION + SLACK, "lost only after {:?}", frozen.elapsed());
    assert!(!guard.is_held());
    scene.place().saboteur().thaw().await.unwrap();
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
    let Some(place) = ONE.alone(&[Hurt::Kill]).await else { return };
    let scene = Scene::at(place, "outage").await;
    let long = Duration::from_secs(20);
    let locks = Locks::new(ZkBackend::connect(scene.options().session_timeout(long)).await.unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = scene.locks().await.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    scene.place().saboteur().restart().await.unwrap();
    assert!(guard.is_held(), "{:?}", guard.loss());
    let token = guard.token();
    in_time("the release", guard.release()).await.unwrap();
    let next = in_time("the next grant", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Of the waiter's session little is left when it is the waiter's turn. It is granted the lock when that is better, or in
/// the next session.
#[tokio::test]
async fn what_is_granted_after_an_outage_is_not_about_to_end() {
    let Some(scene) = Scene::on(&ONE, "lasts").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy).session_timeout(SESSION)).await.unwrap();
    let (holder, locks) = (scene.locks().await, Locks::new(backend));
    for sixteenths in 7..=10 {
        let first = holder.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = locks.lock("a");
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 2).await;
        for direction in [Direction::Requests, Direction::Replies] {
            proxy.set(direction, Flow::Hold);
        }
        tokio::time::sleep(SESSION * sixteenths / 16).await;
        first.release().await.unwrap();
        for direction in [Direction::Requests, Direction::Replies] {
            proxy.set(direction, Flow::Pass);
        }
        let next = in_time("the grant", waiting).await.unwrap().unwrap();
        let left = next.deadline().unwrap().left();
        assert!(left > SESSION / 8, "after {sixteenths}/16 of the timeout: granted for {left:?}");
        next.release().await.unwrap();
    }
}

/// The event that would wake the waiter never arrives, and nothing else is wrong with its connection.
#[tokio::test]
async fn a_lost_event_is_noticed_with_the_next_proof_of_life() {
    let Some(scene) = Scene::on(&ONE, "event").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy).session_timeout(SESSION)).await.unwrap();
    let ask_again = backend.capabilities().ask_again;
    assert_eq!(ask_again, SESSION / 3);
    let (holder, locks) = (scene.locks().await, Locks::new(backend));
    let guard = holder.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    tokio::time::sleep(WATCHED).await;
    proxy.set(Direction::Replies, Flow::Drop);
    guard.release().await.unwrap();
    in_time("the event", proxy.until(|counters| counters.replies.dropped > 0)).await;
    proxy.set(Direction::Replies, Flow::Pass);
    let lost = Instant::now();
    let next = in_time("the grant", waiting).await.unwrap().unwrap();
    assert!(lost.elapsed() < ask_again + SLACK, "{:?}", lost.elapsed());
    next.release().await.unwrap();
}

/// The same for who is next to have permits, which no node's end alone tells.
#[tokio::test]
async fn a_lost_change_of_permits_is_noticed_with_the_next_proof_of_life() {
    let Some(scene) = Scene::on(&ONE, "change").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy).session_timeout(SESSION)).await.unwrap();
    let ask_again = backend.capabilities().ask_again;
    let (holder, locks) = (scene.locks().await, Locks::new(backend));
    let semaphore = holder.semaphore("a", 2);
    let (one, other) =
        (semaphore.permit().acquire().await.unwrap(), semaphore.permit().acquire().await.unwrap());
    let waiting = tokio::spawn({
        let lock = locks.semaphore("a", 2).permit();
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 3).await;
    tokio::time::sleep(WATCHED).await;
    proxy.set(Direction::Replies, Flow::Drop);
    one.release().await.unwrap();
    in_time("the event", proxy.until(|counters| counters.replies.dropped > 0)).await;
    proxy.set(Direction::Replies, Flow::Pass);
    let lost = Instant::now();
    in_time("the grant", waiting).await.unwrap().unwrap().release().await.unwrap();
    assert!(lost.elapsed() < ask_again + SLACK, "{:?}", lost.elapsed());
    other.release().await.unwrap();
}

/// There is no session, and the servers hang: the failure to open one answers all who wait for it.
#[tokio::test]
async fn nobody_waits_for_the_openings_of_all_others() {
    const OPENING: Duration = Duration::from_secs(2);
    let Some(scene) = Scene::on(&ONE, "openings").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy).connect_timeout(OPENING)).await.unwrap();
    backend.close().await;
    proxy.half_open();
    let claims: Vec<_> = (0..20).map(|number| claim(&number.to_string())).collect();
    let began = Instant::now();
    let answers = join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_unavailable)));
    assert!(began.elapsed() < OPENING * 10, "{:?}", began.elapsed());
    proxy.mend().await.unwrap();
    try_grant(&backend, &claims[0]).await.expect("an answer to an earlier request was given again");
}
