//! Servers that forget, restart, stop and change sides.

use crate::{claim, grant, proxy::Proxy, server::Server, until};
use std::time::{Duration, Instant};
use tenure_core::{Attempt, Backend, Error, Locks, LossCause, Release};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);

fn patient(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap().response_timeout(Duration::from_millis(300))
}

#[tokio::test]
async fn wiped_by_restart() {
    let mut server = Server::start();
    let (one, other) = (server.locks().await, server.locks().await);
    let lease = Duration::from_millis(900);
    let first = one.lock("a").lease(lease).acquire().await.unwrap();
    server.restart();
    let second =
        other.lock("a").lease(lease).try_acquire().await.unwrap().expect("the store has forgotten the first");
    assert!(second.token() > first.token());
    let cause = tokio::time::timeout(lease, first.lost()).await.expect("lost within the lease");
    assert_eq!(cause, LossCause::TakenOver);
    assert!(second.is_held());
    assert!(matches!(first.release().await, Err(Error::Lost { .. })));
    second.release().await.unwrap();
    // With nobody else about, the holder learns that it was forgotten.
    let third = one.lock("b").lease(lease).acquire().await.unwrap();
    server.tell::<()>(&["FLUSHALL"]);
    assert_eq!(tokio::time::timeout(lease, third.lost()).await.unwrap(), LossCause::Forgotten);
}

#[tokio::test]
async fn restarted_with_its_data() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = server.locks().await;
    let guard = locks.lock("a").lease(Duration::from_secs(3)).acquire().await.unwrap();
    let first = guard.token();
    server.restart();
    // An idle connection from before the restart is no failure.
    assert!(locks.lock("b").try_acquire().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > first);
}

#[tokio::test]
async fn scripts_flushed() {
    let server = Server::start();
    let backend = server.backend().await;
    let flush = || server.tell::<()>(&["SCRIPT", "FLUSH"]);
    flush();
    let held = grant(&backend, &claim("a", LEASE)).await;
    flush();
    backend.renew(std::slice::from_ref(&held)).await.unwrap();
    flush();
    assert_eq!(backend.holders(&held.name).await.unwrap().len(), 1);
    flush();
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released { awaited: false });
    flush();
    assert!(matches!(backend.release(&held).await.unwrap(), Release::NotHeld(_)));
}

#[tokio::test]
async fn ghost_acquire() {
    let server = Server::start();
    let locks = Locks::new(RedisBackend::connect(patient(&server.url())).await.unwrap());
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.tell::<()>(&["CLIENT", "PAUSE", "1500", "WRITE"]);
    let begin = Instant::now();
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_millis(1200), "{:?}", begin.elapsed());
    // The server carries the attempt out when it goes on, and then the withdrawal.
    locks.close().await;
    server.tell::<()>(&["CLIENT", "UNPAUSE"]);
    let guard = server.locks().await.lock("a").try_acquire().await.unwrap();
    assert!(guard.is_some(), "the ghost holds the lock");
}

/// The same, with an attempt that comes after its own withdrawal.
#[tokio::test]
async fn ghost_acquire_overtaken() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let backend = RedisBackend::connect(patient(&proxy.url())).await.unwrap();
    let warm_up = grant(&backend, &claim("warm up", LEASE)).await;
    let (given_up, released) = (claim("a", LEASE), claim("b", LEASE));
    let held = proxy.hold();
    let (one, other) = tokio::join!(backend.try_acquire(&given_up), backend.try_acquire(&released));
    assert!(one.unwrap_err().is_unavailable() && other.unwrap_err().is_unavailable());
    backend.withdraw(&given_up).await.unwrap();
    let late = grant(&backend, &released).await;
    backend.release(&late).await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a", "tenure:b"]), 0);
    let before = server.calls(&["evalsha"]);
    held.let_go();
    until("the ghosts come", || server.calls(&["evalsha"]) == before + 2).await;
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a", "tenure:b"]), 0, "a ghost holds the lock");
    // The mark is for that claim alone, and stays while others come and go.
    let next = grant(&backend, &claim("a", LEASE)).await;
    assert!(matches!(backend.try_acquire(&given_up).await.unwrap(), Attempt::Busy { .. }));
    backend.release(&next).await.unwrap();
    assert!(backend.try_acquire(&given_up).await.is_err());
    backend.release(&warm_up).await.unwrap();
}

/// An ordinary withdrawal costs the store nothing.
#[tokio::test]
async fn only_doubt_leaves_a_mark() {
    let server = Server::start();
    let (backend, waiting) = (server.backend().await, claim("a", LEASE));
    let held = grant(&backend, &claim("a", LEASE)).await;
    assert!(matches!(backend.try_acquire(&waiting).await.unwrap(), Attempt::Busy { .. }));
    backend.withdraw(&waiting).await.unwrap();
    let record: String = server.tell(&["GET", "tenure:a\u{1f}{tenure:a}r"]);
    assert!(!record.contains('\n'), "{record}");
    backend.release(&held).await.unwrap();
}

#[tokio::test]
async fn read_only_after_failover() {
    let (old, new) = (Server::start(), Server::start());
    let proxy = Proxy::to(old.port).await;
    let backend = RedisBackend::connect(patient(&proxy.url())).await.unwrap();
    grant(&backend, &claim("a", LEASE)).await;
    // The address leads to the new master now; the connection from before still to the old one.
    old.tell::<()>(&["REPLICAOF", "127.0.0.1", &new.port.to_string()]);
    proxy.lead_to(new.port);
    let error = backend.try_acquire(&claim("b", LEASE)).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("read-only replica"), "{error}");
    grant(&backend, &claim("b", LEASE)).await;
    assert_eq!(new.tell::<u64>(&["EXISTS", "tenure:b"]), 1);
}

#[tokio::test]
async fn subscriber_killed() {
    let server = Server::start();
    let (holder, locks) = (server.backend().await, server.locks().await);
    let listeners = || server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", "tenure:a"]).1;
    let held = grant(&holder, &claim("a", LEASE)).await;
    let waiter =
        tokio::spawn(async move { locks.lock("a").acquire().await.map(|guard| (Instant::now(), guard)) });
    until("the waiter listens", || listeners() == 1).await;
    for _ in 0..3 {
        assert_eq!(server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        until("it listens again", || listeners() == 1).await;
    }
    // Told nothing, because it is cut off once more.
    server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let released = Instant::now();
    holder.release(&held).await.unwrap();
    let (when, guard) = waiter.await.unwrap().unwrap();
    assert!(when.duration_since(released) < Duration::from_secs(3));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lost_publish() {
    let server = Server::start();
    let (holder, locks) = (server.backend().await, server.locks().await);
    grant(&holder, &claim("a", LEASE)).await;
    let waiter = tokio::spawn(async move { locks.lock("a").acquire().await });
    let listeners = || server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", "tenure:a"]).1;
    until("the waiter listens", || listeners() == 1).await;
    let released = Instant::now();
    server.tell::<()>(&["DEL", "tenure:a"]);
    drop(waiter.await.unwrap().unwrap());
    assert!(released.elapsed() < Duration::from_millis(2500), "{:?}", released.elapsed());
}

#[tokio::test]
async fn cut_in_the_middle() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    for _ in 0..20 {
        let guard = locks.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap();
        proxy.cut();
        guard.release().await.unwrap();
    }
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
}

/// A release whose reply was lost is not taken for a loss.
#[tokio::test]
async fn the_reply_to_a_release_is_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    server.tell::<()>(&["CLIENT", "PAUSE", "700", "WRITE"]);
    guard.release().await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
}

#[tokio::test]
async fn an_outage_is_survived_within_the_lease() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = Locks::new(RedisBackend::connect(patient(&server.url())).await.unwrap());
    let guard = locks.lock("a").lease(Duration::from_secs(6)).acquire().await.unwrap();
    server.kill();
    let begin = Instant::now();
    let error = locks.lock("b").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(3));
    let waiter = tokio::spawn({
        let lock = locks.lock("c").wait(Duration::from_secs(20));
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.start_again();
    drop(waiter.await.unwrap().unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

/// Many who find the server gone make one attempt to connect together.
#[tokio::test]
async fn a_returning_server_is_not_met_by_a_storm() {
    let mut server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    server.kill();
    proxy.cut();
    let before = proxy.connections();
    let waits: Vec<_> = (0..200)
        .map(|number| {
            let lock = locks.lock(format!("lock {number}")).wait(Duration::from_secs(20));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.start_again();
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    let made = proxy.connections() - before;
    assert!((2..40).contains(&made), "{made} connections");
    locks.close().await;
}
