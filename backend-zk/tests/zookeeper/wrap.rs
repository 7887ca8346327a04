//! The 32-bit counter that numbers the nodes of a queue, at its end.

use crate::{Scene, Server, in_time, server};
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use zookeeper_client::{Acls, CreateMode};

/// A server whose lock `a` has had almost 2³¹ contenders.
async fn near_wrap(counter: i32) -> Option<(Server, Scene)> {
    if !server::available() || Command::new("javac").arg("-version").output().is_err() {
        eprintln!("skipped: there is no JDK here to write a server's data with");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zookeeper/NearWrap.java");
    let mut java = Command::new("java");
    java.args(["-cp", server::JARS]).arg(source).arg(directory.path()).arg(counter.to_string());
    let output = java.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let server = Server::start_in(directory, &[]);
    let scene = Scene::on(&server, "wraps").await;
    Some((server, scene))
}

#[tokio::test]
async fn sequence_wraps() {
    let Some((_server, scene)) = near_wrap(i32::MAX - 5).await else { return };
    let mut guard = Some(scene.locks().await.lock("a").acquire().await.unwrap());
    assert!(scene.nodes("a").await[0].ends_with("-lock-2147483642"));
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..12 {
        let (locks, granted) = (scene.locks().await, granted.clone());
        tokio::spawn(
            async move { granted.send((number, locks.lock("a").acquire().await.unwrap())).unwrap() },
        );
        scene.until_nodes("a", number + 2).await;
    }
    for expected in 0..12 {
        assert!(grants.try_recv().is_err(), "two hold it");
        let before = guard.take().unwrap();
        assert!(before.is_held());
        let token = before.token();
        before.release().await.unwrap();
        let (number, next) = in_time("the next grant", grants.recv()).await.unwrap();
        assert_eq!(number, expected, "out of turn");
        assert!(next.token() > token);
        guard = Some(next);
    }
    guard.unwrap().release().await.unwrap();
}

/// Creations overtake the counter in the server's pipeline here, so a later node may have an earlier number.
#[tokio::test]
async fn nobody_meets_at_the_end_of_the_counter() {
    const CLIENTS: usize = 8;
    const TURNS: usize = 30;
    let Some((_server, scene)) = near_wrap(i32::MAX - 40).await else { return };
    let inside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (locks, inside, last) = (scene.locks().await, Arc::clone(&inside), Arc::clone(&last));
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = locks.lock("a").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                let token = guard.token().get();
                assert!(last.swap(token, Ordering::SeqCst) < token, "the token went back");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
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

#[tokio::test]
async fn negative_numbers_are_numbers() {
    let Some((_server, scene)) = near_wrap(-1_000_000_001).await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    assert!(scene.nodes("a").await[0].ends_with("-lock--1000000001"), "{:?}", scene.nodes("a").await);
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { other.lock("a").acquire().await });
    scene.until_nodes("a", 2).await;
    guard.release().await.unwrap();
    in_time("the next grant", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// At the end of the counter creations overtake it in the server's pipeline: they get the numbers after it, and later
/// ones get its last number again.
#[tokio::test]
async fn an_older_node_with_a_later_number_holds() {
    let Some((_server, scene)) = near_wrap(i32::MAX - 3).await else { return };
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let base = format!("{}/x-", scene.path("a"));
    let together = (0..200).map(|_| scene.eyes.create(&base, b"", &options));
    let made = futures_util::future::join_all(together.collect::<Vec<_>>()).await;
    let numbers: Vec<_> = made.into_iter().flatten().map(|(_, number)| number.into_i64()).collect();
    let older = numbers.iter().copied().find(|number| *number < 0).expect("no creation overtook the counter");
    for node in scene.nodes("a").await {
        if node != format!("x-{older:010}") {
            scene.eyes.delete(&format!("{}/{node}", scene.path("a")), None).await.unwrap();
        }
    }
    let locks = scene.locks().await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the older node was passed over");
    assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
    locks.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
}
