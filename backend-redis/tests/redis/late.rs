//! Requests that arrive when their claims have been withdrawn.

use crate::{
    acquires, claim, claim_in, granted, hold, in_time, let_go, permits, proxy_to, server::Server, until,
};
use futures_util::future::join_all;
use std::time::Duration;
use tenure_core::{Attempt, Backend, Claim, Mode};
use tenure_redis::RedisBackend;

/// The withdrawal overtakes the attempt over a new connection, also if the server is full by then.
#[tokio::test]
async fn late_attempt_of_a_withdrawn_claim_is_refused() {
    let cases = [(false, false), (true, false), (false, true)].map(async |(fair, is_full)| {
        let server = Server::start();
        let (proxy, options) = proxy_to(&server).await;
        let backend = RedisBackend::connect(options.fair(fair)).await.unwrap();
        let claims: Vec<Claim> =
            [("a", Mode::Exclusive), ("b", Mode::Shared), ("c", permits(1, 2)), ("d", Mode::Exclusive)]
                .map(|(name, mode)| claim_in(mode, name))
                .into();
        // The server has heard of the scripts.
        for warm in [Mode::Exclusive, Mode::Shared] {
            let held = granted(&backend, &claim_in(warm, "warm")).await;
            backend.release(&held).await.unwrap();
        }
        let held = hold(&proxy);
        for attempt in join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await {
            assert!(attempt.unwrap_err().is_unavailable());
        }
        if is_full {
            server.tell::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        }
        for withdrawn in &claims[..3] {
            backend.withdraw(withdrawn).await.unwrap();
        }
        server.tell::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        // It asks again, and releases what it gets.
        let released = granted(&backend, &claims[3]).await;
        backend.release(&released).await.unwrap();
        let keys = ["EXISTS", "tenure:a", "tenure:b", "tenure:c", "tenure:d"];
        let before = server.scripts_called();
        let_go(&held);
        until("they come", || server.scripts_called() > before).await;
        // Answers on one connection come in order.
        backend.holders(&claims[0].name).await.unwrap();
        until("all have come", || proxy.counters().requests.arrived == proxy.counters().requests.passed)
            .await;
        assert_eq!(server.tell::<u64>(&keys), 0, "a late one holds, fair: {fair}, full: {is_full}");
        // The mark is for that claim alone, and stays while others come and go.
        let next = granted(&backend, &claim("a")).await;
        assert!(matches!(backend.try_acquire(&claims[0]).await.unwrap(), Attempt::Busy { .. }));
        backend.release(&next).await.unwrap();
        assert!(backend.try_acquire(&claims[0]).await.is_err());
    });
    join_all(cases).await;
}

#[tokio::test]
async fn late_request_of_a_withdrawn_claim_is_not_queued() {
    const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";
    let server = Server::start();
    let waiting = || server.tell::<u64>(&["ZCARD", QUEUE]);
    let (proxy, options) = proxy_to(&server).await;
    let (one, backend) = (server.fair().await, RedisBackend::connect(options.fair(true)).await.unwrap());
    let held = granted(&one, &claim("a")).await;
    let given_up = claim("a");
    let task = acquires(&backend, &given_up);
    until("it stands in the queue", || waiting() == 1).await;
    let held_up = hold(&proxy);
    assert!(task.await.unwrap().unwrap_err().is_unavailable());
    backend.withdraw(&given_up).await.unwrap();
    assert_eq!(waiting(), 0);
    let before = server.scripts_called();
    let_go(&held_up);
    until("the late request comes", || server.scripts_called() > before).await;
    // Answers on one connection come in order.
    backend.holders(&given_up.name).await.unwrap();
    assert_eq!(waiting(), 0, "it is queued");
    one.release(&held).await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0, "it is served");
}

/// An ordinary withdrawal costs the store nothing.
#[tokio::test]
async fn only_doubt_leaves_a_mark() {
    let server = Server::start();
    let record = || server.tell::<String>(&["GET", "tenure:a\u{1f}{tenure:a}r"]);
    let (backend, waiting) = (server.backend().await, claim("a"));
    let held = granted(&backend, &claim("a")).await;
    assert!(matches!(backend.try_acquire(&waiting).await.unwrap(), Attempt::Busy { .. }));
    backend.withdraw(&waiting).await.unwrap();
    assert!(!record().contains('\n'), "{}", record());
    backend.release(&held).await.unwrap();
}

/// Its client is to ask with another claim, and at once: in the queue, the server would drop it again and again.
#[tokio::test]
async fn claim_released_by_force_is_not_queued() {
    let server = Server::start();
    let (one, other) = (server.fair().await, server.fair().await);
    let forced = claim("a");
    granted(&one, &forced).await;
    other.force_release(&forced.name).await.unwrap();
    let held = granted(&other, &claim("a")).await;
    let again = in_time("an answer", one.acquire(&Claim { waits: true, ..forced })).await;
    assert!(again.unwrap_err().spends_claim());
    assert!(other.waiting(&held.name).await.unwrap().is_empty());
}

/// Also if the lease that it ended is far longer than records are remembered.
#[tokio::test]
async fn forced_release_is_remembered_beyond_the_next_grant() {
    let server = Server::start();
    let options = server.options().remember(Duration::from_mins(1));
    let backend = RedisBackend::connect(options).await.unwrap();
    let forced = claim("a");
    granted(&backend, &forced).await;
    backend.force_release(&forced.name).await.unwrap();
    let next = granted(&backend, &Claim { lease: Duration::from_secs(20), ..claim("a") }).await;
    backend.release(&next).await.unwrap();
    assert!(server.tell::<u64>(&["TTL", "tenure:a\u{1f}{tenure:a}r"]) > 590);
    assert!(backend.try_acquire(&forced).await.unwrap_err().spends_claim());
}
