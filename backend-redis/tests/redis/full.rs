//! A server whose memory is full: it grants nothing, and what is held can still be renewed and released.

use crate::{acquires, claim, claim_in, granted, permits, server::Server, until};
use futures_util::future::join_all;
use std::time::Duration;
use tenure_core::{Attempt, Backend, Claim, Conversion, Error, Grant, Locks, Mode, Release, Renewal};
use tenure_redis::RedisBackend;

fn fill(server: &Server) {
    server.tell::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
}

/// Of each kind some, those first whose renewal writes more than a time to live.
async fn of_each_kind(backend: &RedisBackend) -> Vec<Grant> {
    let mut grants = Vec::new();
    for (name, mode) in [
        ("readers", Mode::Shared),
        ("readers", Mode::Shared),
        ("permits", permits(1, 3)),
        ("permits", permits(1, 3)),
        ("alone", Mode::Exclusive),
        ("also alone", Mode::Exclusive),
    ] {
        grants.push(granted(backend, &claim_in(mode, name)).await);
    }
    grants
}

#[tokio::test]
async fn held_names_are_renewed_converted_and_released() {
    let server = Server::start();
    for backend in server.both().await {
        let mut grants = of_each_kind(&backend).await;
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
        for mode in [Mode::Shared, Mode::Exclusive] {
            assert_eq!(backend.convert(&grants[4], mode).await.unwrap(), Conversion::Converted);
        }
        let forced = grants.pop().unwrap();
        assert_eq!(backend.force_release(&forced.name).await.unwrap().len(), 1);
        assert!(matches!(backend.renew(&[forced]).await.unwrap()[..], [Renewal::Lost(_)]));
        for grant in &grants {
            assert!(matches!(backend.release(grant).await.unwrap(), Release::Released { .. }), "{grant:?}");
        }
        assert_eq!(
            server.tell::<Vec<String>>(&["KEYS", "tenure:*"]).iter().filter(|key| !key.contains('{')).count(),
            0
        );
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

#[tokio::test]
async fn new_grants_are_refused_and_the_error_says_why() {
    let server = Server::start();
    for backend in server.both().await {
        let (shared, alone) = (claim_in(Mode::Shared, "readers"), claim("alone"));
        let (held, first) = (granted(&backend, &shared).await, granted(&backend, &alone).await);
        fill(&server);
        let tried = backend.try_acquire(&claim("alone")).await.unwrap();
        assert!(matches!(tried, Attempt::Busy { .. }), "{tried:?}");
        assert_eq!(granted(&backend, &alone).await.token, first.token, "it holds");
        for (name, mode) in [
            ("free", Mode::Exclusive),
            ("free", Mode::Shared),
            ("free", permits(1, 3)),
            ("readers", Mode::Shared),
        ] {
            // One is sent alone, and the others as one call.
            let claims = [(); 4].map(|()| claim_in(mode, name));
            for attempt in join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await {
                let error = attempt.unwrap_err();
                assert!(!error.is_unavailable() && error.to_string().contains("no memory left"), "{error}");
            }
        }
        let all = Locks::new(backend.clone()).all(["free", "free too"]).try_acquire().await;
        assert!(matches!(all, Err(Error::Store { .. })), "{all:?}");
        assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:free"]), 0);
        for grant in [held, first] {
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released { awaited: false });
        }
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// A release in fair mode makes the next in the queue the holder.
#[tokio::test]
async fn lock_is_handed_over() {
    let server = Server::start();
    let fair = server.fair().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = granted(&fair, &claim_in(mode, "a")).await;
        let next = Claim { waits: true, ..claim("a") };
        let waiter = acquires(&fair, &next);
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

/// The renewal of one that the server refuses costs no other its lease.
#[tokio::test]
async fn lease_that_is_not_renewed_costs_no_other() {
    let server = Server::start();
    for backend in server.both().await {
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
