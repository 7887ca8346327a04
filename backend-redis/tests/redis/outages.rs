//! Requests and servers that go away and come back, on a server of this machine.

use crate::{LEASE, claim, cut, granted, in_time, proxy_to, server::Server, until, waits};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tenure_conformance::proxy::Proxy;
use tenure_core::{Attempt, AttemptAll, Backend, Error, Locks, Renewal};
use tenure_redis::RedisBackend;

/// A client past a proxy.
async fn behind_proxy(server: &Server) -> (Proxy, RedisBackend) {
    let (proxy, options) = proxy_to(server).await;
    (proxy, RedisBackend::connect(options).await.unwrap())
}

/// How the system keeps the open connections to a port alive: when it sends the next packet on a silent one, if it does.
#[cfg(target_os = "linux")]
fn keepalives(port: u16) -> Vec<Option<Duration>> {
    const ESTABLISHED: &str = "01";
    const KEEPALIVE: &str = "02";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to = format!(":{port:04X}");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let open = rows.filter(|row| row[2].ends_with(&to) && row[3] == ESTABLISHED);
    open.map(|row| {
        let (timer, ticks) = row[5].split_once(':').unwrap();
        let left = Duration::from_millis(u64::from_str_radix(ticks, 16).unwrap() * 10);
        (timer == KEEPALIVE).then_some(left)
    })
    .collect()
}

/// A firewall forgets a connection on which nothing is sent.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_are_kept_alive() {
    let server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let _held = server.locks().await.lock("a").acquire().await.unwrap();
    let waiter = waits(Locks::new(backend).lock("a"));
    until("both connections are kept alive", || {
        let soon = |left: Option<Duration>| left.is_some_and(|left| left <= Duration::from_secs(30));
        let keepalives = keepalives(proxy.address().port());
        keepalives.len() >= 2 && keepalives.into_iter().all(soon)
    })
    .await;
    waiter.abort();
}

/// The first copy of a forced release may have ended some.
#[tokio::test]
async fn forced_release_sent_twice_is_in_doubt() {
    let server = Server::start();
    let ((proxy, backend), free) = (behind_proxy(&server).await, claim("a").name);
    assert_eq!(backend.force_release(&free).await.unwrap(), []);
    cut(&proxy);
    assert!(backend.force_release(&free).await.unwrap_err().is_unavailable());
    assert_eq!(backend.force_release(&free).await.unwrap(), []);
}

/// The first copy of a downgrade that was sent twice may still come, and would let readers in beside the writer.
#[tokio::test]
async fn no_upgrade_follows_a_downgrade_sent_twice() {
    let server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let locks = Locks::new(backend);
    for twice in [false, true] {
        let mut guard = locks.rw("a").write().acquire().await.unwrap();
        if twice {
            cut(&proxy);
        }
        guard.downgrade().await.unwrap();
        assert_eq!(guard.try_upgrade().await.unwrap(), !twice);
        guard.release().await.unwrap();
    }
}

/// The first copy of an upgrade that was sent twice may still come, when the other reader is gone.
#[tokio::test]
async fn refused_upgrade_sent_twice_is_in_doubt() {
    let server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let locks = Locks::new(backend);
    let other = server.locks().await.rw("a").read().acquire().await.unwrap();
    let mut guard = locks.rw("a").read().acquire().await.unwrap();
    assert!(!guard.try_upgrade().await.unwrap());
    cut(&proxy);
    let doubtful = guard.try_upgrade().await;
    assert!(matches!(doubtful, Err(Error::Unavailable { .. })), "{doubtful:?}");
    assert!(!guard.try_upgrade().await.unwrap());
    other.release().await.unwrap();
    cut(&proxy);
    assert!(guard.try_upgrade().await.unwrap(), "another copy of it would change nothing");
    guard.release().await.unwrap();
}

/// The first copy of a renewal that was sent twice may still come, when a longer lease has been asked for.
#[tokio::test]
async fn renewal_sent_twice_is_in_doubt() {
    let server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let held = [granted(&backend, &claim("a")).await];
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Renewed]);
    cut(&proxy);
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Unanswered]);
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Renewed]);
    backend.release(&held[0]).await.unwrap();
    cut(&proxy);
    assert!(matches!(backend.renew(&held).await.unwrap()[..], [Renewal::Lost(_)]), "that is no doubt");
    let guard = Locks::new(backend).lock("a").renew(false).lease(LEASE).acquire().await.unwrap();
    cut(&proxy);
    guard.extend(LEASE / 4).await.unwrap();
    guard.extend(LEASE).await.unwrap();
    let left = guard.deadline().unwrap().left();
    assert!(left <= LEASE / 4, "it counts on a lease that may be cut short: {left:?}");
    guard.release().await.unwrap();
}

/// The first copy of an attempt may still come, when the holder that stood in the way of the second is gone.
#[tokio::test]
async fn refused_attempt_sent_twice_is_withdrawn() {
    let server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let other = server.backend().await;
    // The server has heard of the scripts.
    let first = claim("a");
    other.release(&granted(&other, &first).await).await.unwrap();
    let held = granted(&other, &claim("a")).await;
    let (one, several) = (claim("a"), [claim("a"), claim("b")]);
    assert!(matches!(backend.try_acquire(&first).await.unwrap(), Attempt::Busy { .. }));
    cut(&proxy);
    assert!(matches!(backend.try_acquire(&one).await.unwrap(), Attempt::Busy { .. }));
    cut(&proxy);
    assert!(matches!(backend.try_acquire_all(&several).await.unwrap(), AttemptAll::Busy));
    other.release(&held).await.unwrap();
    // As their first copies do.
    for late in [&one, &several[0], &several[1]] {
        let late = backend.try_acquire(late).await;
        assert!(late.is_err(), "nobody waits for it any more: {late:?}");
    }
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a", "tenure:b"]), 0);
    // That one was sent once, so there was nothing to withdraw.
    assert!(matches!(backend.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
}

/// Many who find the server gone make one attempt to connect together.
#[tokio::test]
async fn returning_server_is_not_met_by_a_storm() {
    let mut server = Server::start();
    let (proxy, backend) = behind_proxy(&server).await;
    let locks = Locks::new(backend);
    server.kill();
    cut(&proxy);
    let made = || proxy.counters().accepted;
    let before = made();
    let all: Vec<_> = (0..200).map(|number| waits(locks.lock(format!("lock {number}")))).collect();
    until("it is asked again", || made() > before + 2).await;
    server.start_again();
    for wait in all {
        drop(in_time("the grant", wait).await.unwrap().unwrap());
    }
    assert!(made() - before < 100, "{} connections for 200 waits", made() - before);
    locks.close().await;
}

/// The connection still leads to the old master, which is a replica now; a new one leads to the new master.
#[tokio::test]
async fn deposed_master_is_left() {
    let (old, new) = (Server::start(), Server::start());
    let (proxy, backend) = behind_proxy(&old).await;
    let held = granted(&backend, &claim("a")).await;
    // It keeps its data, because that master cannot be reached.
    old.tell::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = backend.renew(&[held]).await.unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("read-only replica"), "{refused}");
    proxy.set_upstream(SocketAddr::from((Ipv4Addr::LOCALHOST, new.port)));
    // Found out by one request or by the other.
    let _ = backend.try_acquire(&claim("b")).await;
    let next = claim("c");
    granted(&backend, &next).await;
    assert_eq!(new.tell::<u64>(&["EXISTS", "tenure:c"]), 1);
}
