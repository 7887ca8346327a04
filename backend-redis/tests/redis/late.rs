//! Requests that arrive when their claims have been withdrawn.

use crate::{LEASE, claim, claim_in, grant, hold, let_go, permits, proxy_to, server::Server, until};
use futures_util::future::join_all;
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
            let held = grant(&backend, &claim_in(warm, "warm")).await;
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
        let released = grant(&backend, &claims[3]).await;
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
        let next = grant(&backend, &claim("a", LEASE)).await;
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
    let held = grant(&one, &claim("a", LEASE)).await;
    let given_up = claim("a", LEASE);
    let task = tokio::spawn({
        let (backend, claim) = (backend.clone(), given_up.clone());
        async move { backend.acquire(&claim).await.map(drop) }
    });
    until("it stands in the queue", || waiting() == 1).await;
    let held_up = hold(&proxy);
    assert!(task.await.unwrap().unwrap_err().is_unavailable());
    backend.withdraw(&given_up).await.unwrap();
    assert_eq!(waiting(), 0);
    let before = server.scripts_called();
    let_go(&held_up);
    until("the late request comes", || server.scripts_called() > before).await;
    one.release(&held).await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0, "it is served");
}

/// An ordinary withdrawal costs the store nothing.
#[tokio::test]
async fn only_doubt_leaves_a_mark() {
    let server = Server::start();
    let record = || server.tell::<String>(&["GET", "tenure:a\u{1f}{tenure:a}r"]);
    let (backend, waiting) = (server.backend().await, claim("a", LEASE));
    let held = grant(&backend, &claim("a", LEASE)).await;
    assert!(matches!(backend.try_acquire(&waiting).await.unwrap(), Attempt::Busy { .. }));
    backend.withdraw(&waiting).await.unwrap();
    assert!(!record().contains('\n'), "{}", record());
    backend.release(&held).await.unwrap();
}
