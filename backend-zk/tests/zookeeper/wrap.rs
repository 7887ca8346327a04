//! The 32-bit counter that numbers the nodes of a queue, at its end.

use crate::{
    Scene, granted, in_time, none_is_finished,
    special::{self, Special},
    wait,
};
use futures_util::future::join_all;
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::pause;
use zookeeper_client::{Acls, CreateMode};

/// A server whose lock `a` has had almost 2³¹ contenders, with these Java properties.
async fn near_wrap(counter: i32, properties: &[String]) -> Option<(Special, Scene)> {
    if !special::available() {
        return None;
    }
    if Command::new("javac").arg("-version").output().is_err() {
        tenure_conformance::skip("jdk", "no javac here to write a ZooKeeper server's data with").unwrap();
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zookeeper/NearWrap.java");
    let mut java = Command::new("java");
    java.args(["-cp", special::JARS]).arg(source).arg(directory.path()).arg(counter.to_string());
    let output = java.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let server = Special::start(directory, "", properties);
    let scene = Scene::of(vec![server.address()], "/wraps".to_owned()).await;
    Some((server, scene))
}

/// Readers, writers and permits keep their order over the end of the counter, and a reader that becomes a writer there has a
/// node that is younger than those behind it.
#[tokio::test]
async fn modes_keep_their_order_at_the_end_of_the_counter() {
    for counter in [i32::MAX - 4, i32::MAX - 1] {
        let Some((_server, scene)) = near_wrap(counter, &[]).await else { return };
        let clients = join_all((0..7).map(|_| scene.locks())).await;
        let (read, write) = (|at: usize| clients[at].rw("a").read(), |at: usize| clients[at].rw("a").write());
        let permit = |at: usize, take| clients[at].semaphore("a", 2).permits(take);
        let mut first = read(0).acquire().await.unwrap();
        let beside = read(1).acquire().await.unwrap();
        let writer = wait(&scene, "a", write(2), 3).await;
        let reader = wait(&scene, "a", read(3), 4).await;
        let permits = [wait(&scene, "a", permit(4, 1), 5).await, wait(&scene, "a", permit(5, 2), 6).await];
        let last = wait(&scene, "a", read(6), 7).await;
        assert!(!first.try_upgrade().await.unwrap(), "two read");
        beside.release().await.unwrap();
        assert!(first.try_upgrade().await.unwrap());
        none_is_finished(&[&writer, &reader, &permits[0], &permits[1], &last]).await;
        let told = clients[1].holders("a").await.unwrap();
        assert_eq!((told.len(), told[0].token), (1, Some(first.token())));
        first.downgrade().await.unwrap();
        none_is_finished(&[&writer, &reader]).await;
        assert!(first.try_upgrade().await.unwrap());
        first.release().await.unwrap();
        let writer = granted(writer).await;
        none_is_finished(&[&reader, &permits[0]]).await;
        writer.release().await.unwrap();
        let reader = granted(reader).await;
        none_is_finished(&[&permits[0], &permits[1], &last]).await;
        reader.release().await.unwrap();
        let [one, two] = permits;
        let one = granted(one).await;
        none_is_finished(&[&two, &last]).await;
        one.release().await.unwrap();
        let two = granted(two).await;
        none_is_finished(&[&last]).await;
        two.release().await.unwrap();
        granted(last).await.release().await.unwrap();
    }
}

/// A reader's node may give way to a writer's between the list of the nodes and the look at how old each is.
#[tokio::test]
async fn reader_that_becomes_a_writer_meanwhile_is_not_passed() {
    const READERS: usize = 4;
    const TURNS: usize = 25;
    let Some((_server, scene)) = near_wrap(i32::MAX - 1, &[]).await else { return };
    let alone = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..READERS * 2 {
        let (locks, alone) = (scene.locks().await, Arc::clone(&alone));
        tasks.spawn(async move {
            let lock = locks.rw("a");
            for _ in 0..TURNS {
                let mut guard = if number < READERS {
                    lock.read().acquire().await.unwrap()
                } else {
                    lock.write().acquire().await.unwrap()
                };
                if number >= READERS || guard.try_upgrade().await.unwrap() {
                    assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0, "two write");
                    pause::settle(Duration::from_millis(2)).await;
                    alone.fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        });
    }
    in_time("all turns", async {
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
    })
    .await;
}

/// At the end of the counter creations overtake it in the server's pipeline: they get the numbers after it, and later
/// ones get its last number again.
#[tokio::test]
async fn older_node_with_a_later_number_holds() {
    // The server completes no write until no other has come for this long. So creations that are sent together are
    // in the pipeline together, even on a busy machine.
    let slowly = ["zookeeper.flushDelay=900", "zookeeper.maxWriteQueuePollTime=300"].map(str::to_owned);
    let Some((_server, scene)) = near_wrap(i32::MAX - 3, &slowly).await else { return };
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let base = format!("{}/x-", scene.path("a"));
    let together = (0..200).map(|_| scene.eyes.create(&base, b"", &options));
    let made = join_all(together.collect::<Vec<_>>()).await;
    let numbers: Vec<_> = made.into_iter().flatten().map(|(_, number)| number.into_i64()).collect();
    let older = numbers.iter().copied().find(|number| *number < 0).expect("no creation overtook the counter");
    let nodes = scene.nodes("a").await;
    let others = nodes.iter().filter(|node| **node != format!("x-{older:010}"));
    let paths: Vec<_> = others.map(|node| format!("{}/{node}", scene.path("a"))).collect();
    let gone = join_all(paths.iter().map(|path| scene.eyes.delete(path, None))).await;
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
    let locks = scene.locks().await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the older node was passed over");
    assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
    locks.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
}
