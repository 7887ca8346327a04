//! Faults that need several servers.

use crate::{
    Scene, end_session, granted, in_time, quiet,
    server::{ENSEMBLE, said, srvr},
    wait,
};
use std::time::Duration;
use tenure_conformance::pause;
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Locks, LossCause, Moment};
use tenure_testbed::Member;
use tenure_zk::{ZkBackend, ZkOptions};

/// Enough is left of it when the machine stalls meanwhile.
const SESSION: Duration = Duration::from_secs(9);

async fn locks(scene: &Scene, members: &[&Member]) -> Locks {
    locks_for(scene, members, SESSION).await
}

async fn locks_for(scene: &Scene, members: &[&Member], session: Duration) -> Locks {
    let options = ZkOptions::new(members.iter().map(|member| member.address().to_string()));
    let options = options.prefix(&scene.prefix).session_timeout(session);
    Locks::new(ZkBackend::connect(options).await.unwrap())
}

/// The number of the member that leads.
async fn leader(members: &[Member]) -> usize {
    for (number, member) in members.iter().enumerate() {
        if said(member.address(), "Mode").await.as_deref() == Some("leader") {
            return number;
        }
    }
    panic!("nobody leads")
}

/// When the leader dies, holders keep their grants, waiters are served, and tokens go on rising.
#[tokio::test]
async fn leader_killed() {
    let Some(place) = ENSEMBLE.alone(&[Hurt::Kill]).await else { return };
    let scene = Scene::at(place, "led").await;
    let members = scene.place().server.members();
    let everyone: Vec<_> = members.iter().collect();
    // Nothing here waits for its end.
    let session = SESSION * 2;
    let (all, other) =
        (locks_for(&scene, &everyone, session).await, locks_for(&scene, &everyone, session).await);
    let guard = all.lock("a").acquire().await.unwrap();
    let waiting = wait(&scene, "a", other.lock("a"), 2).await;
    members[leader(&members).await].saboteur().hurt(Hurt::Kill).await.unwrap();
    let free = in_time("another lock under a new leader", all.lock("b").acquire()).await.unwrap();
    assert!(free.token() > guard.token());
    assert!(guard.is_held(), "{:?}", guard.loss());
    in_time("the release", guard.release()).await.unwrap();
    granted(waiting).await.release().await.unwrap();
    free.release().await.unwrap();
    scene.place().saboteur().heal().await.unwrap();
}

/// The session is ended at another server than its client's. That one tells that the grant's node has gone before it tells
/// that the session is over.
#[tokio::test]
async fn a_session_that_ends_elsewhere() {
    let Some(scene) = Scene::on(&ENSEMBLE, "elsewhere").await else { return };
    let members = scene.place().server.members();
    let (proxy, locks) = scene.behind_proxy().await;
    for _ in 0..5 {
        let guard = locks.lock("a").acquire().await.unwrap();
        // Its node is watched.
        quiet(&proxy).await;
        end_session(members[1].address(), &proxy).await;
        assert_eq!(in_time("the loss", guard.lost()).await, LossCause::SessionEnded);
    }
}

/// A client is left with a server that has lost the others, and goes on answering until it notices. Its answers prove
/// nothing: the holder gives up before the majority gives the lock to the next.
#[tokio::test(flavor = "multi_thread")]
async fn cut_from_quorum() {
    let Some(place) = ENSEMBLE.alone(&[Hurt::Partition]).await else { return };
    let members = place.server.members();
    let cut_off = (leader(&members).await + 1) % members.len();
    let alone = &members[cut_off];
    let rest: Vec<_> = members.iter().filter(|member| member.address() != alone.address()).collect();
    let mut scene = Scene::at(place, "cut").await;
    scene.look_at(rest[0]).await;
    let (held, others) = (locks(&scene, &[alone]).await, locks(&scene, &rest).await);
    let guard = held.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = others.lock("a");
        async move { (lock.acquire().await, Moment::now()) }
    });
    scene.until_nodes("a", 2).await;
    pause::settle(SESSION / 2).await;
    scene.place().saboteur().inject(Hurt::Partition.of(cut_off)).await.unwrap();
    let cut = Moment::now();
    assert!(srvr(alone.address()).await.unwrap().contains("Mode: follower"), "it has noticed already");
    let cause = in_time("the loss", guard.lost()).await;
    let lost = Moment::now();
    assert_eq!(cause, LossCause::SessionEnded);
    let (next, when) = in_time("the next grant", waiting).await.unwrap();
    let next = next.unwrap();
    eprintln!("lost after {:?}, granted after {:?}", lost.since(cut), when.since(cut));
    assert!(when > lost, "two held it for {:?}", lost.since(when));
    assert!(next.token() > guard.token() && !guard.is_held());
    scene.place().saboteur().heal().await.unwrap();
    let again = wait(&scene, "a", held.lock("a"), 2).await;
    next.release().await.unwrap();
    let again = granted(again).await;
    assert!(again.is_held() && !guard.is_held());
    again.release().await.unwrap();
}
