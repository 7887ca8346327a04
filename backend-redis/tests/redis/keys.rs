//! The keys of a name, and what is in them.

use crate::{LEASE, claim, claim_in, granted, in_time, permits, server::Server, until};
use futures_util::FutureExt;
use std::time::Duration;
use tenure_core::{Attempt, AttemptAll, Backend, Claim, Grant, LossCause, Mode, Release, Renewal};

const RECORD: &str = "tenure:a\u{1f}{tenure:a}r";

/// It serves all who hold the lock, and so outlasts the longest of their leases.
#[tokio::test]
async fn short_lease_shortens_no_memory_of_a_lock() {
    let server = Server::start();
    let long = Duration::from_hours(30 * 24);
    let reader = |lease| Claim { mode: Mode::Shared, lease, ..claim("a") };
    let remembered = || Duration::from_secs(server.tell::<u64>(&["TTL", RECORD]));
    for backend in server.both().await {
        granted(&backend, &reader(long)).await;
        let short = granted(&backend, &reader(LEASE)).await;
        assert!(remembered() > long, "by another grant");
        assert_eq!(backend.renew(std::slice::from_ref(&short)).await.unwrap(), [Renewal::Renewed]);
        assert!(remembered() > long, "by a renewal");
        // In doubt, and so withdrawn with a mark.
        let given_up = claim("a");
        assert!(backend.try_acquire(&given_up).now_or_never().is_none());
        backend.withdraw(&given_up).await.unwrap();
        assert!(server.tell::<String>(&["GET", RECORD]).contains(&format!("\n-{}", given_up.id)));
        assert!(remembered() > long, "by a mark");
        server.tell::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn foreign_client_excludes_and_is_excluded() {
    let server = Server::start();
    let locks = server.locks().await;
    let foreign = || server.tell::<Option<String>>(&["SET", "tenure:a", "foreign", "NX"]);
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(foreign(), None);
    guard.release().await.unwrap();
    assert_eq!(foreign().as_deref(), Some("OK"));
    let waiter = tokio::spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await }
    });
    until("it listens", || server.listeners("a") == 1).await;
    // It ends without a word.
    server.tell::<()>(&["PEXPIRE", "tenure:a", "1"]);
    in_time("the grant", waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn claim_is_granted_again_with_its_token_and_no_shorter_lease() {
    let server = Server::start();
    for backend in server.both().await {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let claim = Claim { lease: LEASE / 4, ..claim_in(mode, "a") };
            let first = granted(&backend, &claim).await;
            let left = || server.tell::<u64>(&["PTTL", "tenure:a"]);
            if mode == Mode::Exclusive {
                server.tell::<()>(&["PEXPIRE", "tenure:a", "5000"]);
                assert_eq!(granted(&backend, &claim).await.token, first.token);
                assert!(left() > 5000);
            }
            // A late copy of an attempt is no other to the server than one that is made again.
            let longer = Grant { lease: LEASE, ..first.clone() };
            assert_eq!(backend.renew(std::slice::from_ref(&longer)).await.unwrap(), [Renewal::Renewed]);
            assert_eq!(granted(&backend, &claim).await.token, first.token);
            assert!(left() > 300_000, "{mode}");
            backend.release(&longer).await.unwrap();
        }
        // Even when the record is gone, the claim that holds the lock gets a token, and one that is not smaller.
        let claim = claim("a");
        let first = granted(&backend, &claim).await;
        server.tell::<()>(&["DEL", RECORD]);
        assert!(granted(&backend, &claim).await.token > first.token);
        backend.release(&first).await.unwrap();
    }
    let (backend, claims) =
        (server.backend().await, ["a", "b"].map(|name| Claim { lease: LEASE / 4, ..claim(name) }));
    let AttemptAll::Granted(grants) = backend.try_acquire_all(&claims).await.unwrap() else {
        panic!("both are free")
    };
    let longer = Grant { lease: LEASE, ..grants[1].clone() };
    assert_eq!(backend.renew(&[longer]).await.unwrap(), [Renewal::Renewed]);
    assert!(matches!(backend.try_acquire_all(&claims).await.unwrap(), AttemptAll::Granted(_)));
    let left = |key: &str| server.tell::<u64>(&["PTTL", key]);
    assert!(left("tenure:a") < 300_000 && left("tenure:b") > 300_000);
}

#[tokio::test]
async fn renewal_tells_the_cause_of_each_loss() {
    let server = Server::start();
    let backend = server.backend().await;
    let names =
        ["kept", "lapsed", "taken", "passed on", "forced", "wrong type", "wiped", "stale", "also {kept} }"];
    let mut grants = Vec::new();
    for name in names {
        grants.push(granted(&backend, &claim(name)).await);
    }
    let key = |name: &str| format!("tenure:{name}");
    let record = |name: &str| format!("tenure:{name}\u{1f}{{tenure:{name}}}r");
    server.tell::<()>(&["DEL", &key("lapsed")]);
    server.tell::<()>(&["SET", &key("taken"), "foreign"]);
    backend.withdraw(&claim("passed on")).await.unwrap();
    server.tell::<()>(&["DEL", &key("passed on")]);
    let next = granted(&backend, &claim("passed on")).await;
    backend.release(&next).await.unwrap();
    backend.force_release(&grants[4].name).await.unwrap();
    server.tell::<()>(&["DEL", &key("wrong type")]);
    server.tell::<()>(&["LPUSH", &key("wrong type"), "x"]);
    server.tell::<()>(&["DEL", &key("wiped"), &record("wiped")]);
    // As if a replica had taken over that had not heard of this grant.
    server.tell::<()>(&["DEL", &key("stale")]);
    server.tell::<()>(&["SET", &record("stale"), "1600000000000000 earlier 1 host "]);
    for name in ["kept", "also {kept} }"] {
        server.tell::<()>(&["PEXPIRE", &key(name), "5000"]);
    }
    server.tell::<()>(&["EXPIRE", &record("kept"), "100"]);
    let answers = backend.renew(&grants).await.unwrap();
    let lost = Renewal::Lost;
    assert_eq!(
        answers,
        [
            Renewal::Renewed,
            lost(LossCause::Expired),
            lost(LossCause::TakenOver),
            lost(LossCause::TakenOver),
            lost(LossCause::Forced),
            lost(LossCause::TakenOver),
            lost(LossCause::Forgotten),
            lost(LossCause::Forgotten),
            Renewal::Renewed,
        ]
    );
    for name in ["kept", "also {kept} }"] {
        assert!(server.tell::<i64>(&["PTTL", &key(name)]) > 5000);
    }
    assert!(server.tell::<i64>(&["TTL", &record("kept")]) > 80_000);
    for name in ["lapsed", "passed on", "forced", "wiped", "stale"] {
        assert_eq!(server.tell::<u64>(&["EXISTS", &key(name)]), 0, "{name} was made again");
    }
    // A release tells the same.
    let mut causes = Vec::new();
    for lost in &grants[1..8] {
        match backend.release(lost).await.unwrap() {
            Release::Lost(cause) => causes.push(Renewal::Lost(cause)),
            released @ Release::Released { .. } => panic!("{:?}: {released:?}", lost.name),
        }
    }
    assert_eq!(causes, answers[1..8]);
}

#[tokio::test]
async fn full_batch_is_renewed_by_one_call() {
    let server = Server::start();
    let backend = server.backend().await;
    let most = backend.capabilities().renew_batch;
    let mut grants = Vec::new();
    for number in 0..most {
        let claim = match number % 3 {
            0 => claim(&format!("lock {number}")),
            1 => claim_in(Mode::Shared, "readers"),
            _ => claim_in(permits(1, 10_000), "permits"),
        };
        grants.push(granted(&backend, &claim).await);
    }
    // The first call finds that the server does not know the script.
    for calls in [2, 1] {
        let before = server.scripts_called();
        assert_eq!(backend.renew(&grants).await.unwrap(), vec![Renewal::Renewed; most]);
        assert!(server.scripts_called() - before <= calls);
    }
}

#[tokio::test]
async fn acquire_and_release_are_one_call_each() {
    let server = Server::start();
    let locks = server.locks().await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let before = server.scripts_called();
    for _ in 0..10 {
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.scripts_called() - before, 20);
    assert_eq!(server.calls(&["subscribe"]), 0);
}

#[tokio::test]
async fn longest_lease_is_granted_and_remembered_for_longer() {
    let server = Server::start();
    let backend = server.backend().await;
    let claim = Claim { lease: tenure_core::lease::MAX_LEASE, ..claim("a") };
    let held = granted(&backend, &claim).await;
    let remembered = || server.tell::<u64>(&["TTL", RECORD]);
    assert!(remembered() > claim.lease.as_secs());
    server.tell::<()>(&["EXPIRE", RECORD, "100"]);
    assert_eq!(backend.renew(&[held]).await.unwrap(), [Renewal::Renewed]);
    assert!(remembered() > claim.lease.as_secs());
    assert!(matches!(
        backend.try_acquire(&crate::claim("a")).await.unwrap(),
        Attempt::Busy { expires_in: Some(left) } if left > Duration::from_hours(364 * 24)
    ));
}

/// A key that lasts longer keeps out foreign clients.
#[tokio::test]
async fn key_lasts_as_long_as_the_longest_lease() {
    let server = Server::start();
    let left = || Duration::from_millis(server.tell::<u64>(&["PTTL", "tenure:a"]));
    for backend in server.both().await {
        let reader = |lease| Claim { lease, ..claim_in(Mode::Shared, "a") };
        let short = granted(&backend, &reader(LEASE)).await;
        let long = granted(&backend, &reader(LEASE * 2)).await;
        assert!(left() > LEASE * 3 / 2);
        backend.release(&long).await.unwrap();
        assert!(left() <= LEASE);
        backend.release(&short).await.unwrap();
        assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
    }
}

/// More than there are withdrawals that are remembered.
#[tokio::test]
async fn sixty_readers_put_out_by_force_are_told_so() {
    let server = Server::start();
    for backend in server.both().await {
        let mut held = Vec::new();
        for _ in 0..60 {
            held.push(granted(&backend, &claim_in(Mode::Shared, "a")).await);
        }
        assert_eq!(backend.force_release(&held[0].name).await.unwrap().len(), 60);
        assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Lost(LossCause::Forced); 60]);
    }
}
