//! What a lock costs the server, counted by the server.

use crate::{
    Scene, in_time,
    server::{ONE, said},
};
use std::time::Duration;
use tenure_core::Locks;
use tenure_zk::ZkBackend;
use tokio::time::sleep;

const TIMES: usize = 10;
/// By then what is to be watched is watched, also where a request takes long.
const WATCHED: Duration = Duration::from_secs(1);

/// A server on which nobody else asks anything.
async fn counted() -> Option<Scene> {
    Some(Scene::at(ONE.alone(&[]).await?, "counted").await)
}

/// A client. Its pings and heartbeats come every few minutes, so that few of a hundred clients' fall into what is counted,
/// however long that takes.
async fn client(scene: &Scene) -> Locks {
    let options = scene.options().session_timeout(Duration::from_mins(10));
    Locks::new(ZkBackend::connect(options).await.unwrap())
}

/// How many requests the server has had, pings included, and this very question too.
async fn requests(scene: &Scene) -> u64 {
    said(scene.place().address().await, "Received").await.unwrap().parse().unwrap()
}

/// The requests while `work` was done, without pings and heartbeats: the fewest of several times, each at another moment.
async fn fewest(scene: &Scene, mut work: impl AsyncFnMut()) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..TIMES {
        let before = requests(scene).await;
        work().await;
        fewest = fewest.min(requests(scene).await - before - 1);
        // Pings come in bursts.
        sleep(Duration::from_millis(130)).await;
    }
    fewest
}

#[tokio::test]
async fn a_turn_takes_a_create_a_list_and_a_delete() {
    let Some(scene) = counted().await else { return };
    let locks = client(&scene).await;
    let lock = locks.lock("a");
    scene.keep("a").await;
    let requests = fewest(&scene, async || lock.acquire().await.unwrap().release().await.unwrap()).await;
    assert_eq!(requests, 3);
    let requests =
        fewest(&scene, async || lock.try_acquire().await.unwrap().unwrap().release().await.unwrap()).await;
    assert_eq!(requests, 3);
}

/// A reader and a permit cost what a lock costs.
#[tokio::test]
async fn sharing_takes_no_request_more() {
    let Some(scene) = counted().await else { return };
    let locks = client(&scene).await;
    scene.keep("a").await;
    for lock in [locks.rw("a").read(), locks.semaphore("a", 4).permits(2)] {
        let requests = fewest(&scene, async || lock.acquire().await.unwrap().release().await.unwrap()).await;
        assert_eq!(requests, 3);
    }
}

/// Those who waited for the writer know by the event that it is their turn.
#[tokio::test]
async fn a_writer_that_goes_lets_all_readers_in_for_one_request() {
    const READERS: usize = 50;
    let Some(scene) = counted().await else { return };
    let mut clients = Vec::new();
    for _ in 0..READERS {
        clients.push(client(&scene).await);
    }
    let writer = client(&scene).await;
    let mut fewest = u64::MAX;
    for _ in 0..TIMES {
        let guard = writer.rw("a").write().acquire().await.unwrap();
        let mut waiting = Vec::new();
        for locks in &clients {
            let lock = locks.rw("a").read();
            waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        }
        scene.until_nodes("a", READERS + 1).await;
        // Until the grant is watched, and the waiters' watches are set.
        sleep(WATCHED).await;
        let before = requests(&scene).await;
        guard.release().await.unwrap();
        let mut readers = Vec::new();
        for waiting in waiting {
            readers.push(in_time("a reader", waiting).await.unwrap());
        }
        fewest = fewest.min(requests(&scene).await - before - 1);
        drop(readers);
        scene.until_nodes("a", 0).await;
    }
    assert_eq!(fewest, 1, "the release itself");
}

/// A reader that goes wakes the writer behind all of them at most, and none of those behind that.
#[tokio::test]
async fn a_reader_that_goes_wakes_one_writer_at_most() {
    const READERS: usize = 2 * TIMES;
    let Some(scene) = counted().await else { return };
    let mut clients = Vec::new();
    for _ in 0..READERS {
        clients.push(client(&scene).await);
    }
    let mut readers = Vec::new();
    for locks in &clients {
        readers.push(locks.rw("a").read().acquire().await.unwrap());
    }
    let mut waiting = Vec::new();
    for (number, locks) in clients.iter().enumerate() {
        let lock = if number == 0 { locks.rw("a").write() } else { locks.rw("a").read() };
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        scene.until_nodes("a", READERS + number + 1).await;
    }
    sleep(WATCHED).await;
    // From the last on: each of them is the one that the writer watches.
    let requests = fewest(&scene, async || {
        readers.pop().unwrap().release().await.unwrap();
        sleep(Duration::from_millis(30)).await;
    })
    .await;
    assert!(requests <= 3, "{requests} requests for a reader's end");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Whoever is next for permits looks, takes them, and tells the one behind it, which looks too.
#[tokio::test]
async fn a_permit_that_comes_free_wakes_two_and_no_herd() {
    for of in [1, 4] {
        let Some(scene) = counted().await else { return };
        let mut guards = std::collections::VecDeque::new();
        let mut clients = Vec::new();
        let holder = client(&scene).await;
        for _ in 0..of {
            guards.push_back(holder.semaphore("a", of).permit().acquire().await.unwrap());
        }
        let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..40 {
            let (locks, granted) = (client(&scene).await, granted.clone());
            clients.push(locks.clone());
            tokio::spawn(async move {
                let permit = locks.semaphore("a", of).permit().acquire().await.unwrap();
                // Those who are still waiting at the end send to nobody.
                let _ = granted.send(permit);
            });
            scene.until_nodes("a", of as usize + number + 1).await;
        }
        sleep(WATCHED).await;
        let requests = fewest(&scene, async || {
            guards.pop_front().unwrap().release().await.unwrap();
            guards.push_back(in_time("the next permit", grants.recv()).await.unwrap());
            // Until the one behind it has looked.
            sleep(Duration::from_millis(30)).await;
        })
        .await;
        eprintln!("{requests} requests for one of {of} permits");
        assert!(requests <= 9, "{requests} requests for one of {of} permits");
    }
}

/// Beside the release, one look at the queue by the one that it wakes, and nothing by the others.
#[tokio::test]
async fn a_release_wakes_one_waiter_and_no_herd() {
    const WAITERS: usize = 100;
    let Some(scene) = counted().await else { return };
    // Kept until the end, or closing their sessions would be counted.
    let mut clients = vec![client(&scene).await];
    let mut guard = Some(clients[0].lock("a").acquire().await.unwrap());
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..WAITERS {
        let (locks, granted) = (client(&scene).await, granted.clone());
        clients.push(locks.clone());
        tokio::spawn(async move { granted.send(locks.lock("a").acquire().await.unwrap()).unwrap() });
        scene.until_nodes("a", number + 2).await;
    }
    // Until the grant is watched.
    sleep(WATCHED).await;
    let requests = fewest(&scene, async || {
        guard.take().unwrap().release().await.unwrap();
        guard = Some(in_time("the next grant", grants.recv()).await.unwrap());
    })
    .await;
    assert!(requests <= 2, "{requests} requests for a turn");
    assert_eq!(scene.nodes("a").await.len(), WAITERS + 1 - TIMES);
}

/// The event alone tells who was next when it began to wait that it is its turn.
#[tokio::test]
async fn whoever_is_next_needs_no_request() {
    let Some(scene) = counted().await else { return };
    let (one, other) = (client(&scene).await, client(&scene).await);
    let mut fewest = u64::MAX;
    for _ in 0..TIMES {
        let guard = one.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = other.lock("a");
            async move { lock.acquire().await }
        });
        scene.until_nodes("a", 2).await;
        // Until the grant is watched, and the waiter's watches are set.
        sleep(WATCHED).await;
        let before = requests(&scene).await;
        guard.release().await.unwrap();
        let next = in_time("the next grant", waiting).await.unwrap().unwrap();
        fewest = fewest.min(requests(&scene).await - before - 1);
        next.release().await.unwrap();
    }
    assert_eq!(fewest, 1, "the release itself");
}

/// Counted over several heartbeats of each session, and nothing is left out.
#[tokio::test]
async fn waiting_and_holding_cost_heartbeats_only() {
    const SESSION: Duration = Duration::from_secs(9);
    /// Three heartbeats of each session.
    const WINDOW: Duration = Duration::from_secs(9);
    let Some(scene) = counted().await else { return };
    let options = || scene.options().session_timeout(SESSION);
    let connect = async || Locks::new(ZkBackend::connect(options()).await.unwrap());
    let (holder, waiter) = (connect().await, connect().await);
    // While a session is in use, a heartbeat is a read and a transaction. One more or less falls into a window. Where
    // the machine stalls, a client may connect anew; what is asked for each lock falls into every window.
    let in_window = async |at_most: u64| {
        let mut counted = 0;
        for _ in 0..3 {
            let before = requests(&scene).await;
            sleep(WINDOW).await;
            counted = requests(&scene).await - before - 1;
            if counted <= at_most {
                break;
            }
        }
        counted
    };
    let idle = in_window(u64::MAX).await;
    let mut held = Vec::new();
    for number in 0..1_000 {
        held.push(holder.lock(format!("{number}")).acquire().await.unwrap());
    }
    // Until the grants are watched.
    sleep(WATCHED).await;
    let holding = in_window(idle + 7).await;
    for number in 0..100 {
        let lock = waiter.lock(format!("{number}"));
        tokio::spawn(async move { lock.acquire().await });
    }
    scene.until_nodes("99", 2).await;
    sleep(WATCHED).await;
    let waiting = in_window(idle + 10).await;
    eprintln!(
        "{idle} requests in {WINDOW:?} while idle, {holding} with 1,000 held, {waiting} with 100 waiting too"
    );
    assert!(holding <= idle + 7, "{holding} requests while holding, {idle} while idle");
    assert!(waiting <= idle + 10, "{waiting} requests while waiting, {idle} while idle");
    assert!(held.iter().all(|guard| guard.is_held()));
}
