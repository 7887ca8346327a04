//! The faults that Redis alone has, each on a server in a container or of this machine.

use crate::{anywhere::Server, claim, grant, until};
use std::time::{Duration, Instant};
use tenure_conformance::proxy::Proxy;
use tenure_core::{Backend, Error, Locks, LossCause, Release};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn wiped_by_restart() {
    let server = Server::start().await;
    let way = Proxy::start(server.address()).await.unwrap();
    let options = RedisOptions::from_url(&format!("redis://{}", way.address())).unwrap();
    let one = Locks::new(RedisBackend::connect(options.response_timeout(LEASE / 4)).await.unwrap());
    let other = server.locks().await;
    let lease = LEASE * 2;
    let first = one.lock("a").lease(lease).acquire().await.unwrap();
    // A new container takes its time: the first is told nothing before there is a second.
    way.refuse().await;
    way.cut().await;
    server.saboteur().restart_empty().await.unwrap();
    let second =
        other.lock("a").lease(lease).try_acquire().await.unwrap().expect("the store has forgotten the first");
    way.accept().await.unwrap();
    assert!(second.token() > first.token());
    let cause = tokio::time::timeout(lease, first.lost()).await.expect("lost within the lease");
    assert_eq!(cause, LossCause::TakenOver);
    assert!(second.is_held());
    assert!(matches!(first.release().await, Err(Error::Lost { .. })));
    second.release().await.unwrap();
    // With nobody else about, the holder learns that it was forgotten.
    let lease = LEASE / 3;
    let third = one.lock("b").lease(lease).acquire().await.unwrap();
    server.tell::<()>(&["FLUSHALL"]);
    assert_eq!(tokio::time::timeout(lease, third.lost()).await.unwrap(), LossCause::Forgotten);
}

#[tokio::test]
async fn scripts_flushed() {
    let server = Server::start().await;
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
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Lost(_)));
    flush();
    assert!(grant(&backend, &claim("a", LEASE)).await.token > held.token);
}

#[tokio::test]
async fn ghost_acquire() {
    let server = Server::start().await;
    let options = server.options().response_timeout(PATIENCE);
    let locks = Locks::new(RedisBackend::connect(options).await.unwrap());
    let before = locks.lock("a").acquire().await.unwrap();
    let first = before.token();
    before.release().await.unwrap();
    server.tell::<()>(&["CLIENT", "PAUSE", "5000", "WRITE"]);
    let begin = Instant::now();
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    // The server carries the attempt out when it goes on, and then the withdrawal.
    locks.close().await;
    server.tell::<()>(&["CLIENT", "UNPAUSE"]);
    let guard = server.locks().await.lock("a").try_acquire().await.unwrap();
    assert!(guard.expect("the ghost holds the lock").token() > first);
}

#[tokio::test]
async fn read_only_after_failover() {
    let (old, new) = (Server::start().await, Server::start().await);
    let proxy = Proxy::start(old.address()).await.unwrap();
    let options = RedisOptions::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let backend = RedisBackend::connect(options).await.unwrap();
    grant(&backend, &claim("a", LEASE)).await;
    // The address leads to the new master now; the connection from before still to the old one.
    old.saboteur().make_read_only().await.unwrap();
    proxy.set_upstream(new.address());
    let error = backend.try_acquire(&claim("b", LEASE)).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("read-only replica"), "{error}");
    grant(&backend, &claim("b", LEASE)).await;
    assert_eq!(new.tell::<u64>(&["EXISTS", "tenure:b"]), 1);
}

#[tokio::test]
async fn subscriber_killed() {
    let server = Server::start().await;
    let (holder, locks) = (server.backend().await, server.locks().await);
    let held = grant(&holder, &claim("a", LEASE)).await;
    let waiter =
        tokio::spawn(async move { locks.lock("a").acquire().await.map(|guard| (Instant::now(), guard)) });
    until("the waiter listens", || server.listeners("a") == 1).await;
    for _ in 0..3 {
        assert_eq!(server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        until("it listens again", || server.listeners("a") == 1).await;
    }
    // Told nothing, because it is cut off once more.
    server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let released = Instant::now();
    holder.release(&held).await.unwrap();
    let (when, guard) = waiter.await.unwrap().unwrap();
    assert!(when.duration_since(released) < Duration::from_secs(5));
    assert!(guard.token() > held.token);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lost_publish() {
    let server = Server::start().await;
    let (holder, locks) = (server.backend().await, server.locks().await);
    let held = grant(&holder, &claim("a", LEASE)).await;
    let waiter = tokio::spawn(async move { locks.lock("a").acquire().await });
    until("the waiter listens", || server.listeners("a") == 1).await;
    let released = Instant::now();
    server.tell::<()>(&["DEL", "tenure:a"]);
    let next = waiter.await.unwrap().unwrap();
    // By asking again, which it does after 1.8 s at the latest; the lease lasts for many times longer.
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    assert!(next.token() > held.token);
    next.release().await.unwrap();
}
