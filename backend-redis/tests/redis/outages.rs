//! Requests and servers that go away and come back, on a server of this machine.

use crate::{claim, grant, proxy::Proxy, server::Server, until};
use std::time::{Duration, Instant};
use tenure_core::{Attempt, AttemptAll, Backend, Claim, Error, Grant, Locks, Mode, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);
/// A killed process forgets nothing that the system has been handed; to have it on the disk takes seconds where that is
/// busy.
const KEEPS: &[&str] = &["--appendonly", "yes", "--appendfsync", "no"];

/// So patient that a busy machine is no fault.
fn patient(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap().response_timeout(Duration::from_secs(3))
}

#[tokio::test]
async fn restarted_with_its_data() {
    let mut server = Server::with(KEEPS);
    let locks = server.locks().await;
    let guard = locks.lock("a").lease(Duration::from_secs(8)).acquire().await.unwrap();
    let first = guard.token();
    server.restart();
    // An idle connection from before the restart is no failure.
    assert!(locks.lock("b").try_acquire().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > first);
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
    let proxy = Proxy::to(server.port).await;
    let _held = server.locks().await.lock("a").acquire().await.unwrap();
    let waiter = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap()).lock("a");
    let waiter = tokio::spawn(async move { waiter.acquire().await.map(drop) });
    until("both connections are kept alive", || {
        let soon = |left: Option<Duration>| left.is_some_and(|left| left <= Duration::from_secs(30));
        let keepalives = keepalives(proxy.port);
        keepalives.len() >= 2 && keepalives.into_iter().all(soon)
    })
    .await;
    waiter.abort();
}

/// A ghost acquire, with an attempt that comes after its own withdrawal.
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

/// A late copy of an attempt is no other to the server than one that is made again.
#[tokio::test]
async fn an_attempt_that_comes_after_an_extension_shortens_no_lease() {
    let server = Server::start();
    let short = Duration::from_secs(5);
    let is_long = |name: &str| server.tell::<i64>(&["PTTL", &format!("tenure:{name}")]) > 10_000;
    for fair in [false, true] {
        let backend = RedisBackend::connect(server.options().fair(fair)).await.unwrap();
        for mode in [Mode::Exclusive, Mode::Shared] {
            let claim = Claim { mode, ..claim("a", short) };
            let longer = Grant { lease: LEASE, ..grant(&backend, &claim).await };
            assert_eq!(backend.renew(std::slice::from_ref(&longer)).await.unwrap(), [Renewal::Renewed]);
            assert_eq!(grant(&backend, &claim).await.token, longer.token);
            assert!(is_long("a"), "{mode:?}, fair: {fair}");
            backend.release(&longer).await.unwrap();
        }
    }
    let (backend, claims) = (server.backend().await, [claim("a", short), claim("b", short)]);
    let AttemptAll::Granted(grants) = backend.try_acquire_all(&claims).await.unwrap() else {
        panic!("both are free")
    };
    let longer = Grant { lease: LEASE, ..grants[1].clone() };
    assert_eq!(backend.renew(&[longer]).await.unwrap(), [Renewal::Renewed]);
    assert!(matches!(backend.try_acquire_all(&claims).await.unwrap(), AttemptAll::Granted(_)));
    assert!(is_long("b") && !is_long("a"));
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

/// The first copy of a forced release may have ended some.
#[tokio::test]
async fn a_forced_release_that_was_sent_twice_does_not_say_that_nobody_held_the_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let (backend, free) =
        (RedisBackend::connect(patient(&proxy.url())).await.unwrap(), claim("a", LEASE).name);
    assert_eq!(backend.force_release(&free).await.unwrap(), []);
    proxy.cut();
    assert!(backend.force_release(&free).await.unwrap_err().is_unavailable());
    assert_eq!(backend.force_release(&free).await.unwrap(), []);
}

/// The first copy of a downgrade that was sent twice may still come, and would let readers in beside the writer.
#[tokio::test]
async fn no_upgrade_follows_a_downgrade_that_was_sent_twice() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    for cut in [false, true] {
        let mut guard = locks.rw("a").write().acquire().await.unwrap();
        if cut {
            proxy.cut();
        }
        guard.downgrade().await.unwrap();
        assert_eq!(guard.try_upgrade().await.unwrap(), !cut);
        guard.release().await.unwrap();
    }
}

/// The first copy of an upgrade that was sent twice may still come, when the other reader is gone.
#[tokio::test]
async fn an_upgrade_that_was_sent_twice_is_not_said_to_be_refused() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    let other = server.locks().await.rw("a").read().acquire().await.unwrap();
    let mut guard = locks.rw("a").read().acquire().await.unwrap();
    assert!(!guard.try_upgrade().await.unwrap());
    proxy.cut();
    let doubtful = guard.try_upgrade().await;
    assert!(matches!(doubtful, Err(Error::Unavailable { .. })), "{doubtful:?}");
    assert!(!guard.try_upgrade().await.unwrap());
    other.release().await.unwrap();
    proxy.cut();
    assert!(guard.try_upgrade().await.unwrap(), "another copy of it would change nothing");
    guard.release().await.unwrap();
}

/// The first copy of a renewal that was sent twice may still come, when a longer lease has been asked for.
#[tokio::test]
async fn a_renewal_that_was_sent_twice_is_in_doubt() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let backend = RedisBackend::connect(patient(&proxy.url())).await.unwrap();
    let held = [grant(&backend, &claim("a", LEASE)).await];
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Renewed]);
    proxy.cut();
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Unanswered]);
    assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Renewed]);
    backend.release(&held[0]).await.unwrap();
    proxy.cut();
    assert!(matches!(backend.renew(&held).await.unwrap()[..], [Renewal::Lost(_)]), "that is no doubt");
    let guard = Locks::new(backend).lock("a").renew(false).lease(LEASE).acquire().await.unwrap();
    proxy.cut();
    guard.extend(LEASE / 4).await.unwrap();
    guard.extend(LEASE).await.unwrap();
    let left = guard.deadline().unwrap().left();
    assert!(left <= LEASE / 4, "it counts on a lease that may be cut short: {left:?}");
    guard.release().await.unwrap();
}

/// The first copy of an attempt may still come, when the holder that stood in the way of the second is gone.
#[tokio::test]
async fn a_refused_attempt_that_was_sent_twice_is_withdrawn() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let backend = RedisBackend::connect(patient(&proxy.url())).await.unwrap();
    let other = server.backend().await;
    // The server has heard of the scripts.
    let first = claim("a", LEASE);
    other.release(&grant(&other, &first).await).await.unwrap();
    let held = grant(&other, &claim("a", LEASE)).await;
    let (one, several) = (claim("a", LEASE), [claim("a", LEASE), claim("b", LEASE)]);
    assert!(matches!(backend.try_acquire(&first).await.unwrap(), Attempt::Busy { .. }));
    proxy.cut();
    assert!(matches!(backend.try_acquire(&one).await.unwrap(), Attempt::Busy { .. }));
    proxy.cut();
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

/// A release whose reply was lost is not taken for a loss.
#[tokio::test]
async fn the_reply_to_a_release_is_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks = Locks::new(RedisBackend::connect(patient(&proxy.url())).await.unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    server.tell::<()>(&["CLIENT", "PAUSE", "4000", "WRITE"]);
    guard.release().await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
}

#[tokio::test]
async fn an_outage_is_survived_within_the_lease() {
    let mut server = Server::with(KEEPS);
    let locks = Locks::new(RedisBackend::connect(patient(&server.url())).await.unwrap());
    let guard = locks.lock("a").lease(Duration::from_secs(12)).acquire().await.unwrap();
    server.kill();
    let begin = Instant::now();
    let error = locks.lock("b").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    // It may take as long as it takes to connect and to answer, 5 s.
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let waiter = tokio::spawn({
        let lock = locks.lock("c").wait(Duration::from_secs(20));
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.start_again();
    drop(waiter.await.unwrap().unwrap());
    // Longer than the lease, with what has passed.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

/// As behind a firewall that forgot the connection. A renewal waits for less than the response timeout: for a sixth of
/// its lease.
#[tokio::test]
async fn a_connection_that_dies_in_silence_costs_no_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let locks =
        Locks::new(RedisBackend::connect(RedisOptions::from_url(&proxy.url()).unwrap()).await.unwrap());
    let lease = Duration::from_secs(11);
    let guard = locks.lock("a").lease(lease).acquire().await.unwrap();
    let left = || server.tell::<i64>(&["PTTL", "tenure:a"]);
    until("a third of the lease has passed", || left() < 8000).await;
    until("it is renewed", || left() > 10_000).await;
    let _held = proxy.hold();
    tokio::time::sleep(lease + Duration::from_secs(2)).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

/// A server that runs somebody's long script refuses all requests, also that for a database.
#[tokio::test]
async fn a_long_script_is_waited_for() {
    let server = Server::with(&["--lua-time-limit", "100"]);
    let options = patient(&format!("{}/2", server.tcp_url()));
    let locks = Locks::new(RedisBackend::connect(options).await.unwrap());
    let mut connection = server.connection();
    let endless = tokio::task::spawn_blocking(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection)
    });
    let is_busy = |error: redis::RedisError| error.code() == Some("BUSY");
    until("it is busy", || redis::cmd("PING").exec(&mut server.connection()).is_err_and(is_busy)).await;
    // On the present connection, and on the one that replaces it.
    for _ in 0..2 {
        let error = locks.lock("a").try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    server.tell::<()>(&["SCRIPT", "KILL"]);
    assert!(endless.await.unwrap().is_err());
    locks.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap().release().await.unwrap();
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
