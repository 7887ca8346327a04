//! A server whose memory is full: it grants nothing, and what is held can still be renewed and released.

use crate::{claim, grant, proxy::Proxy, server::Server, until};
use std::{num::NonZeroU32, time::Duration};
use tenure_core::{Attempt, Backend, Claim, Conversion, Error, Grant, Locks, Mode, Name, Release, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);

fn in_mode(name: &str, mode: Mode) -> Claim {
    Claim { mode, ..claim(name, LEASE) }
}

fn permit() -> Mode {
    Mode::Permit { take: NonZeroU32::MIN, of: NonZeroU32::new(3).unwrap() }
}

fn fill(server: &Server) {
    server.tell::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
}

async fn both(server: &Server) -> [RedisBackend; 2] {
    let fair = RedisBackend::connect(server.options().fair(true)).await.unwrap();
    [server.backend().await, fair]
}

/// Of each kind some, those first whose renewal writes more than a time to live.
async fn of_each_kind(backend: &RedisBackend) -> Vec<Grant> {
    let mut grants = Vec::new();
    for (name, mode) in [
        ("readers", Mode::Shared),
        ("readers", Mode::Shared),
        ("permits", permit()),
        ("permits", permit()),
        ("alone", Mode::Exclusive),
        ("also alone", Mode::Exclusive),
    ] {
        grants.push(grant(backend, &in_mode(name, mode)).await);
    }
    grants
}

#[tokio::test]
async fn what_is_held_is_renewed_and_released() {
    let server = Server::start();
    for backend in both(&server).await {
        let grants = of_each_kind(&backend).await;
        fill(&server);
        for _ in 0..2 {
            for name in ["readers", "permits", "alone", "also alone"] {
                server.tell::<()>(&["PEXPIRE", &format!("tenure:{name}"), "5000"]);
            }
            assert_eq!(backend.renew(&grants).await.unwrap(), [Renewal::Renewed; 6]);
            for name in ["readers", "permits", "alone", "also alone"] {
                assert!(server.tell::<u64>(&["PTTL", &format!("tenure:{name}")]) > 15_000, "{name}");
            }
        }
        // Each by itself too: what another wrote before it must not be what lets it in.
        for grant in &grants {
            assert_eq!(backend.renew(std::slice::from_ref(grant)).await.unwrap(), [Renewal::Renewed]);
        }
        for grant in &grants {
            assert!(matches!(backend.release(grant).await.unwrap(), Release::Released { .. }), "{grant:?}");
        }
        assert_eq!(
            server.tell::<u64>(&["EXISTS", "tenure:readers", "tenure:permits", "tenure:alone"]),
            0,
            "something is still held"
        );
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

#[tokio::test]
async fn nothing_new_is_granted_and_the_error_says_why() {
    let server = Server::start();
    for backend in both(&server).await {
        let held = grant(&backend, &in_mode("readers", Mode::Shared)).await;
        fill(&server);
        for (name, mode) in
            [("free", Mode::Exclusive), ("free", Mode::Shared), ("free", permit()), ("readers", Mode::Shared)]
        {
            let error = backend.try_acquire(&in_mode(name, mode)).await.unwrap_err();
            assert!(!error.is_unavailable() && error.to_string().contains("no memory left"), "{error}");
        }
        assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:free"]), 0);
        assert_eq!(backend.release(&held).await.unwrap(), Release::Released { awaited: false });
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

#[tokio::test]
async fn conversions_and_forced_releases_go_on() {
    let server = Server::start();
    for backend in both(&server).await {
        let (held, reader) =
            (grant(&backend, &claim("a", LEASE)).await, grant(&backend, &in_mode("b", Mode::Shared)).await);
        fill(&server);
        assert_eq!(backend.convert(&held, Mode::Shared).await.unwrap(), Conversion::Converted);
        assert_eq!(backend.convert(&held, Mode::Exclusive).await.unwrap(), Conversion::Converted);
        for forced in [held, reader] {
            assert_eq!(backend.force_release(&forced.name).await.unwrap().len(), 1);
            assert!(matches!(backend.renew(&[forced]).await.unwrap()[..], [Renewal::Lost(_)]));
        }
        assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a", "tenure:b"]), 0);
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// A release in fair mode makes the next in the queue the holder.
#[tokio::test]
async fn a_lock_is_handed_over() {
    let server = Server::start();
    let [_, fair] = both(&server).await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = grant(&fair, &in_mode("a", mode)).await;
        let next = Claim { waits: true, ..claim("a", LEASE) };
        let waiter = tokio::spawn({
            let (fair, next) = (fair.clone(), next.clone());
            async move { fair.acquire(&next).await }
        });
        until("it waits", || server.tell::<u64>(&["ZCARD", "tenure:a\u{1f}{tenure:a}q"]) == 1).await;
        fill(&server);
        assert!(matches!(fair.release(&held).await.unwrap(), Release::Released { .. }));
        let handed = waiter.await.unwrap().unwrap();
        assert!(handed.token > held.token);
        assert_eq!(fair.renew(std::slice::from_ref(&handed)).await.unwrap(), [Renewal::Renewed]);
        assert!(matches!(fair.release(&handed).await.unwrap(), Release::Released { .. }));
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// What may still come is withdrawn on a full server too, so that it finds nothing when there is room again.
#[tokio::test]
async fn a_straggler_is_withdrawn() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let options = RedisOptions::from_url(&proxy.url()).unwrap().response_timeout(Duration::from_secs(3));
    let backend = RedisBackend::connect(options).await.unwrap();
    let before = grant(&backend, &claim("a", LEASE)).await;
    backend.release(&before).await.unwrap();
    let (held, given_up) = (proxy.hold(), claim("a", LEASE));
    assert!(backend.try_acquire(&given_up).await.unwrap_err().is_unavailable());
    fill(&server);
    backend.withdraw(&given_up).await.unwrap();
    server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    let before = server.calls(&["evalsha"]);
    held.let_go();
    until("the straggler comes", || server.calls(&["evalsha"]) > before).await;
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0, "the straggler holds the lock");
}

/// Through several leases, whatever their kind, and with several names at once.
#[tokio::test]
async fn nothing_is_lost_in_the_long_run() {
    let server = Server::start();
    let locks = Locks::with_lease(server.backend().await, Duration::from_secs(5)).unwrap();
    let reader = locks.rw("c").read().acquire().await.unwrap();
    let permit = locks.semaphore("d", 2).permits(1).acquire().await.unwrap();
    let together = locks.all(["a", "b"]).acquire().await.unwrap();
    fill(&server);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(together.holds().all(tenure_core::Hold::is_held) && reader.is_held() && permit.is_held());
    for refused in [locks.lock("e").try_acquire().await, locks.rw("c").read().try_acquire().await] {
        assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
    }
    assert!(matches!(locks.all(["e", "f"]).try_acquire().await, Err(Error::Store { .. })));
    together.release().await.unwrap();
    reader.release().await.unwrap();
    permit.release().await.unwrap();
    locks.close().await;
    let left: Vec<String> = server.tell(&["KEYS", "tenure:?"]);
    assert_eq!(left, [""; 0]);
}

/// The renewal of one that the server refuses costs no other its lease.
#[tokio::test]
async fn one_that_fails_fails_alone() {
    let server = Server::start();
    for backend in both(&server).await {
        let mut grants = of_each_kind(&backend).await;
        // A time to live that no server takes.
        let refused = [1, 4];
        for place in refused {
            grants[place].lease = Duration::MAX;
        }
        for name in ["readers", "permits", "alone", "also alone"] {
            server.tell::<()>(&["PEXPIRE", &format!("tenure:{name}"), "5000"]);
        }
        let answers = backend.renew(&grants).await.unwrap();
        for (place, answer) in answers.into_iter().enumerate() {
            let expected = if refused.contains(&place) { Renewal::Unanswered } else { Renewal::Renewed };
            assert_eq!(answer, expected, "{place}");
        }
        // Where nothing could be renewed, the error is told.
        let error = backend.renew(&[grants[4].clone()]).await.unwrap_err();
        assert!(!error.to_string().is_empty());
        for grant in &grants {
            backend.release(grant).await.unwrap();
        }
    }
}

/// A server that became a replica refuses every renewal: it must be heard, or the connection stays with it.
#[tokio::test]
async fn a_server_that_takes_no_writes_is_an_error() {
    let (master, server) = (Server::start(), Server::start());
    let backend = server.backend().await;
    let grants = of_each_kind(&backend).await;
    // It keeps its data, because that master cannot be reached.
    drop(master);
    server.tell::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = backend.renew(&grants).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("read-only replica"), "{error}");
    let name = Name::new("alone").unwrap();
    let other = Claim { name, ..claim("alone", LEASE) };
    let tried = backend.try_acquire(&other).await;
    assert!(!matches!(tried, Ok(Attempt::Granted(_))), "{tried:?}");
}
