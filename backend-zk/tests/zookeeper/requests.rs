//! A lock's requests, counted by the server.

use crate::{
    LONG_SESSION, Scene, in_time,
    server::{ONE, said},
};
use std::time::Duration;
use tenure_conformance::pause;
use tenure_core::{Guard, Lock, Locks, Mode};
use tenure_zk::ZkBackend;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const TIMES: usize = 4;
/// Enough for a herd to be seen.
const WAITERS: usize = 20;

/// A server without other clients.
async fn counted() -> Option<Scene> {
    Some(Scene::at(ONE.alone(&[]).await?, "counted").await)
}

/// A client. Its pings and heartbeats come every few minutes, so that few of them fall into what is counted, however long
/// that takes.
async fn client(scene: &Scene) -> Locks {
    let options = scene.options().session_timeout(LONG_SESSION);
    Locks::new(ZkBackend::connect(options).await.unwrap())
}

/// How many requests the server has had, pings included, and this very question too.
async fn requests(scene: &Scene) -> u64 {
    said(scene.place().address().await, "Received").await.unwrap().parse().unwrap()
}

/// Waits until nothing is asked: a grant is watched after a moment, and a waiter sets its watches. Returns how often it has
/// looked, which the server counts too.
async fn settled(scene: &Scene) -> u64 {
    for looks in 1.. {
        let before = requests(scene).await;
        pause::settle(Duration::from_millis(150)).await;
        if requests(scene).await == before + 1 {
            return looks * 2;
        }
    }
    unreachable!("it waits until then")
}

/// The requests while `work` was done, without pings and heartbeats: the fewest of several times. `work` returns how many
/// of them are this test's own.
async fn fewest(scene: &Scene, mut work: impl AsyncFnMut() -> u64) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..TIMES {
        settled(scene).await;
        let before = requests(scene).await;
        let own = work().await + 1;
        fewest = fewest.min(requests(scene).await - before - own);
    }
    fewest
}

/// So many who wait behind those before them, each in a client of its own, and their grants as they come. The clients are
/// kept, or the ends of their sessions would be counted.
async fn waiters(
    scene: &Scene,
    before: usize,
    count: usize,
    lock: impl Fn(&Locks, usize) -> Lock,
) -> (Vec<Locks>, UnboundedReceiver<Guard>) {
    let (granted, grants) = unbounded_channel();
    let mut clients = Vec::new();
    for number in 0..count {
        let (locks, granted) = (client(scene).await, granted.clone());
        let lock = lock(&locks, number);
        clients.push(locks);
        // A waiter that is still there at the end has no receiver.
        tokio::spawn(async move { granted.send(lock.acquire().await.unwrap()).map_err(drop) });
        scene.until_nodes("a", before + number + 1).await;
    }
    (clients, grants)
}

/// A reader, a permit, and a try cost the same as a wait for a lock.
#[tokio::test]
async fn turn_takes_a_create_a_list_and_a_delete() {
    let Some(scene) = counted().await else { return };
    let locks = client(&scene).await;
    scene.keep("a").await;
    for lock in [locks.lock("a"), locks.rw("a").read(), locks.semaphore("a", 4).permits(2)] {
        for tries in [false, true] {
            let turn = async || {
                let guard = if tries {
                    lock.try_acquire().await.unwrap().unwrap()
                } else {
                    lock.acquire().await.unwrap()
                };
                guard.release().await.unwrap();
                0
            };
            assert_eq!(fewest(&scene, turn).await, 3);
        }
    }
}

/// Those who were next when they began to wait know by the event that it is their turn.
#[tokio::test]
async fn next_are_let_in_by_the_release_alone() {
    let Some(scene) = counted().await else { return };
    let holder = client(&scene).await;
    for (count, mode) in [(WAITERS, Mode::Shared), (1, Mode::Exclusive)] {
        let lock = |locks: &Locks, _| match mode {
            Mode::Shared => locks.rw("a").read(),
            _ => locks.rw("a").write(),
        };
        let mut fewest = u64::MAX;
        for _ in 0..TIMES {
            let guard = holder.rw("a").write().acquire().await.unwrap();
            let (_clients, mut grants) = waiters(&scene, 1, count, lock).await;
            settled(&scene).await;
            let before = requests(&scene).await;
            guard.release().await.unwrap();
            let mut next = Vec::new();
            while next.len() < count {
                next.push(in_time("a grant", grants.recv()).await.unwrap());
            }
            fewest = fewest.min(requests(&scene).await - before - 1);
            drop(next);
            scene.until_nodes("a", 0).await;
        }
        assert_eq!(fewest, 1, "{mode}");
    }
}

/// It wakes the writer behind all of them at most, and none of those behind that.
#[tokio::test]
async fn reader_that_goes_wakes_one_writer_at_most() {
    let Some(scene) = counted().await else { return };
    let (mut clients, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..=TIMES {
        let locks = client(&scene).await;
        readers.push(locks.rw("a").read().acquire().await.unwrap());
        clients.push(locks);
    }
    let rw = |locks: &Locks, number| match number {
        0 => locks.rw("a").write(),
        _ => locks.rw("a").read(),
    };
    let (_clients, _grants) = waiters(&scene, readers.len(), WAITERS, rw).await;
    // From the last on: each of them is the one that the writer watches.
    let requests = fewest(&scene, async || {
        readers.pop().unwrap().release().await.unwrap();
        settled(&scene).await
    });
    let requests = requests.await;
    assert!(requests <= 3, "{requests} requests for a reader's end");
}

/// The next waiter looks, takes the permit, and tells the one behind it, which looks too.
#[tokio::test]
async fn permit_that_comes_free_wakes_two_and_no_herd() {
    for of in [1, 4] {
        let Some(scene) = counted().await else { return };
        let holder = client(&scene).await;
        let mut guards = std::collections::VecDeque::new();
        for _ in 0..of {
            guards.push_back(holder.semaphore("a", of).permit().acquire().await.unwrap());
        }
        let (_clients, mut grants) =
            waiters(&scene, guards.len(), WAITERS, |locks, _| locks.semaphore("a", of).permit()).await;
        let requests = fewest(&scene, async || {
            guards.pop_front().unwrap().release().await.unwrap();
            guards.push_back(in_time("the next permit", grants.recv()).await.unwrap());
            // Until the one behind it has looked.
            settled(&scene).await
        });
        let requests = requests.await;
        assert!(requests <= 9, "{requests} requests for one of {of} permits");
    }
}

/// Beside the release, one look at the queue by the one that it wakes, and nothing by the others.
#[tokio::test]
async fn release_wakes_one_waiter_and_no_herd() {
    let Some(scene) = counted().await else { return };
    let mut guard = Some(client(&scene).await.lock("a").acquire().await.unwrap());
    let (_clients, mut grants) = waiters(&scene, 1, WAITERS, |locks, _| locks.lock("a")).await;
    let requests = fewest(&scene, async || {
        guard.take().unwrap().release().await.unwrap();
        guard = Some(in_time("the next grant", grants.recv()).await.unwrap());
        0
    });
    let requests = requests.await;
    assert!(requests <= 2, "{requests} requests for a turn");
    assert_eq!(scene.nodes("a").await.len(), WAITERS + 1 - TIMES);
}

/// A request for each lock would fall into every window. The quietest window counts.
#[tokio::test]
async fn waiting_and_holding_cost_heartbeats_only() {
    const SESSION: Duration = Duration::from_secs(9);
    /// Longer than the time between two heartbeats of a session.
    const WINDOW: Duration = Duration::from_secs(4);
    let Some(scene) = counted().await else { return };
    let connect =
        async || Locks::new(ZkBackend::connect(scene.options().session_timeout(SESSION)).await.unwrap());
    let (holder, waiter) = (connect().await, connect().await);
    let mut held = Vec::new();
    for number in 0..200 {
        held.push(holder.lock(format!("{number}")).acquire().await.unwrap());
        let lock = waiter.lock(format!("{number}"));
        tokio::spawn(async move { lock.acquire().await });
    }
    scene.until_nodes("199", 2).await;
    settled(&scene).await;
    let mut fewest = u64::MAX;
    for _ in 0..2 {
        let before = requests(&scene).await;
        pause::linger(WINDOW).await;
        fewest = fewest.min(requests(&scene).await - before - 1);
    }
    assert!(fewest < 30, "{fewest} requests in {WINDOW:?} for 200 locks, held and waited for");
    assert!(held.iter().all(|guard| guard.is_held()));
}
