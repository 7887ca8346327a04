//! `etcdctl lock`, which is Go's `concurrency.Mutex`.

use crate::{RELEASED, claim, granted, in_time, is_busy, keys, name, server::Server, until, waits};
use std::process::Stdio;
use tenure_core::{Backend, Mode};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A program that locks, or waits for the lock.
struct Foreign(Child, Lines<BufReader<ChildStdout>>);

impl Foreign {
    fn lock(server: &Server, lock: &str) -> Self {
        let mut program = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--dial-timeout=3m", "--endpoints", &server.host(), "lock", lock])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let said = BufReader::new(program.stdout.take().unwrap()).lines();
        Self(program, said)
    }

    /// Waits until it has the lock, and returns its key.
    async fn key(&mut self) -> String {
        in_time("its lock", self.1.next_line()).await.unwrap().expect("a key")
    }

    /// Has it release the lock, or give up.
    async fn end(mut self) {
        let pid = self.0.id().unwrap().to_string();
        Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
        in_time("its end", self.0.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn etcdctl_excludes_and_is_excluded() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (server.backend().await, server.eyes().await);
    let mut foreign = Foreign::lock(&server, "tenure/a");
    let key = foreign.key().await;
    assert!(key.starts_with("tenure/a/"), "{key}");
    for mode in [Mode::Exclusive, Mode::Shared] {
        let attempt = backend.try_acquire(&tenure_core::Claim { mode, ..claim("a") }).await.unwrap();
        assert!(matches!(attempt, tenure_core::Attempt::Busy { .. }), "{attempt:?}");
    }
    let holders = backend.holders(&name("a")).await.unwrap();
    assert!(matches!(&*holders, [holder] if holder.claim.is_none()), "{holders:?}");
    let waiter = waits(&backend, claim("a"));
    until("it waits", async || keys(&mut eyes, "tenure/a/").await.len() == 2).await;
    foreign.end().await;
    let grant = in_time("the lock", waiter).await.unwrap();
    let mut foreign = Foreign::lock(&server, "tenure/a");
    until("it waits, too", async || keys(&mut eyes, "tenure/a/").await.len() == 2).await;
    assert_eq!(backend.waiting(&name("a")).await.unwrap().len(), 1);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    foreign.key().await;
    assert!(is_busy(&backend, "a").await);
    let ended = backend.force_release(&name("a")).await.unwrap();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(!is_busy(&backend, "a").await);
    foreign.end().await;
}

/// For etcd's own recipe, the contenders of `a/b` are contenders of `a`, too.
#[tokio::test]
async fn lock_below_another_is_not_that_one() {
    let Some(server) = Server::start() else { return };
    let backend = server.backend().await;
    for [first, second] in [["a/b", "a"], ["c", "c/d"], ["e%2Ff", "e/f"]] {
        granted(&backend, &claim(first)).await;
        granted(&backend, &claim(second)).await;
        assert!(is_busy(&backend, first).await && is_busy(&backend, second).await);
    }
}
