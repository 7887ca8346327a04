//! Grants that replicas must have, and what becomes of them when one request is held up.

use crate::{HANG, LEASE, claim, granted, hold, let_go, proxy_to, server::Server, until, waits};
use std::{future::poll_fn, pin::Pin, task::Poll};
use tenure_conformance::proxy::Proxy;
use tenure_core::{Attempt, Backend, Locks};
use tenure_redis::RedisBackend;

/// A master without replicas yet, and a client that wants one for each grant.
async fn lonely() -> (Server, Proxy, RedisBackend) {
    let server = Server::with(&["--repl-diskless-sync-delay", "0"]);
    let (proxy, options) = proxy_to(&server).await;
    let backend = RedisBackend::connect(options.replicas(1)).await.unwrap();
    (server, proxy, backend)
}

/// A master with a replica, and a client that wants it for each grant, so patient that a busy replica is no fault.
async fn followed() -> (Server, Server, RedisBackend) {
    let (server, replica) = (Server::with(&["--repl-diskless-sync-delay", "0"]), Server::start());
    replica.tell::<()>(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]);
    let follows = || server.tell::<String>(&["INFO", "replication"]).contains("state=online");
    until("the replica follows", follows).await;
    let options = server.options().replicas(1).response_timeout(HANG * 2);
    let backend = RedisBackend::connect(options).await.unwrap();
    (server, replica, backend)
}

/// Polls a future so many times, unless it is done before.
async fn polled<T>(future: &mut (impl Future<Output = T> + Unpin), times: u32) -> Option<T> {
    let mut to_come = times;
    poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => {
            to_come -= 1;
            if to_come == 0 { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

/// A grant that too few replicas had is taken back by a request without an answer, which is carried out when the next
/// attempt has been granted. It must not end that.
#[tokio::test]
async fn late_end_of_a_grant_leaves_the_next_one_alone() {
    let (server, proxy, backend) = lonely().await;
    // The server has heard of every script: what is held up will be carried out.
    let warm = server.backend().await;
    let held = granted(&warm, &claim("warm")).await;
    warm.release(&held).await.unwrap();
    let replica = Server::start();
    let locks = Locks::new(backend);
    // Attempts have a connection of their own, which is made later and so not held up.
    let held = hold(&proxy);
    let waiter = waits(locks.lock("a").lease(LEASE));
    until("it is asked for again", || server.calls(&["wait"]) >= 2).await;
    replica.tell::<()>(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]);
    let guard = waiter.await.unwrap().unwrap();
    // All that was sent since then has been answered: what comes now is what was held up.
    let before = server.scripts_called();
    let_go(&held);
    until("the take-back comes", || server.scripts_called() > before).await;
    assert_eq!(server.tell::<String>(&["GET", "tenure:a"]), guard.claim().to_string(), "it was ended");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locks.close().await;
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
}

#[tokio::test]
async fn claim_whose_grant_may_not_have_ended_is_not_used_again() {
    let (server, _proxy, backend) = lonely().await;
    let answered = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(answered.is_unavailable() && !answered.spends_claim(), "{answered}");
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
    let (server, proxy, backend) = lonely().await;
    let _held = hold(&proxy);
    let unanswered = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(unanswered.is_unavailable() && unanswered.spends_claim(), "{unanswered}");
    assert!(unanswered.to_string().contains("0 of 1 replicas"), "{unanswered}");
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 1);
}

/// As in a `select!` in a loop: it may be suspended while the replicas are counted.
#[tokio::test]
async fn attempt_that_is_not_polled_holds_up_no_other() {
    let (_server, _replica, backend) = followed().await;
    for polls in 1..500 {
        let left = claim(&format!("left {polls}"));
        let mut attempt = backend.try_acquire(&left);
        if let Some(outcome) = polled(&mut attempt, polls).await {
            assert!(matches!(outcome.unwrap(), Attempt::Granted(_)));
            return;
        }
        let other = claim("other");
        let held = tokio::time::timeout(HANG, granted(&backend, &other)).await;
        let held = held.unwrap_or_else(|_| panic!("held up by one that was polled {polls} times"));
        backend.release(&held).await.unwrap();
    }
    panic!("it is never done");
}

/// Several `Locks` may use one backend and its clones, which share the connections. When one of them closes, an attempt
/// of another is granted all the same.
#[tokio::test]
async fn client_that_closes_fails_no_try_of_another() {
    let (_server, _replica, backend) = followed().await;
    for polls in 1..500 {
        let asked = claim(&format!("a {polls}"));
        let mut attempt = backend.try_acquire(&asked);
        if let Some(outcome) = polled(&mut attempt, polls).await {
            assert!(matches!(outcome.unwrap(), Attempt::Granted(_)));
            return;
        }
        // As a `Locks` does it that was made of the clone.
        backend.clone().close().await;
        let outcome = attempt.await;
        assert!(matches!(outcome, Ok(Attempt::Granted(_))), "closed after {polls} polls: {outcome:?}");
    }
    panic!("it is never done");
}
