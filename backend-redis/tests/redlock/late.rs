//! Stragglers of clients that stopped waiting.

use crate::nodes::{LONG, Nodes, claim, granted, in_time, record, until};
use std::{future::poll_fn, task::Poll, time::Duration};
use tenure_conformance::{
    proxy::{Connection, Flow},
    saboteur::{Direction, Hurt},
};
use tenure_core::{Attempt, Backend, Grant, Renewal};
use tenure_redis::RedlockBackend;

/// So short that a server which is held up is given up on, and so long that no other is, on a busy machine either.
const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longer than a server is held up for: what comes late comes on its own connection.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(6);

async fn impatient(nodes: &Nodes) -> RedlockBackend {
    let options = nodes.options().node_timeout(NODE_TIMEOUT);
    RedlockBackend::connect(options.each(|server| server.response_timeout(RESPONSE_TIMEOUT))).await.unwrap()
}

/// Sets the flow of requests on these connections.
fn hold_up(connections: &[Connection], flow: Flow) {
    for connection in connections {
        connection.set(Direction::Requests, flow);
    }
}

/// The withdrawal overtakes the requests on another connection.
#[tokio::test]
async fn late_grants_withdrawn_before_they_come() {
    let nodes = Nodes::start(3).await;
    let (backend, next) = (impatient(&nodes).await, nodes.backend().await);
    let (warm, given_up) = (granted(&backend, &claim("warm")).await, claim("a"));
    // As of a holder with a long lease, which is to be remembered.
    let long: u64 = 60 * 24 * 60 * 60;
    for node in [1, 2] {
        nodes.tell::<()>(node, &["SET", &record("a"), "1600000000000000 -", "EX", &long.to_string()]);
    }
    let proxies = [1, 2].map(|node| nodes.member(node).proxy().expect("a proxy"));
    let held: Vec<_> = proxies.iter().flat_map(|proxy| proxy.connections()).collect();
    hold_up(&held, Flow::Hold);
    let error = backend.try_acquire(&given_up).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    // The withdrawal is said again on new connections, and leaves marks.
    let marked = |node| {
        let record: Option<String> = nodes.tell(node, &["GET", &record("a")]);
        record.is_some_and(|record| record.contains(&format!("\n-{}#", given_up.id)))
    };
    until("the withdrawal has overtaken", || marked(1) && marked(2)).await;
    for node in [1, 2] {
        assert!(nodes.tell::<u64>(node, &["TTL", &record("a")]) > long / 2, "a mark shortened it");
    }
    let before = [1, 2].map(|node| nodes.scripts_called(node));
    hold_up(&held, Flow::Pass);
    let come = |node: usize| nodes.scripts_called(node) > before[node - 1];
    until("the late ones come", || come(1) && come(2)).await;
    for node in 0..3 {
        assert!(!nodes.has_key(node, "a"), "a late grant stands on node {node}");
    }
    let free = granted(&next, &claim("a")).await;
    next.release(&free).await.unwrap();
    backend.release(&warm).await.unwrap();
}

/// Each request is a task, and these do not run before the servers have carried out the withdrawal.
#[test]
fn late_grants_withdrawn_before_they_are_sent() {
    let running = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Runs nothing but while it is blocked on.
    let halted = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (nodes, backend, given_up) = running.block_on(async {
        let nodes = Nodes::start(3).await;
        let backend = nodes.backend().await;
        // Every server has heard of every script.
        let warm = granted(&backend, &claim("warm")).await;
        until("all have it", || (0..3).all(|node| nodes.has_key(node, "warm"))).await;
        backend.release(&warm).await.unwrap();
        until("none has it", || !(0..3).any(|node| nodes.has_key(node, "warm"))).await;
        (nodes, backend, claim("a"))
    });
    halted.block_on(async {
        let mut attempt = backend.try_acquire(&given_up);
        let begun = poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await;
        assert!(begun.is_pending());
    });
    let before = [0, 1, 2].map(|node| nodes.scripts_called(node));
    let called = |times: u64| (0..3).all(|node| nodes.scripts_called(node) >= before[node] + times);
    running.block_on(async {
        backend.withdraw(&given_up).await.unwrap();
        until("withdrawn", || called(1)).await;
    });
    halted.block_on(until("the late ones come", || called(2)));
    for node in 0..3 {
        assert!(!nodes.has_key(node, "a"), "a late grant stands on node {node}");
    }
}

/// A claim that waits is asked for again and again. The withdrawal of one attempt, when it comes during the next, does not
/// end that one.
#[tokio::test]
async fn late_withdrawal_leaves_the_next_attempt_alone() {
    let nodes = Nodes::start(3).await;
    let options = nodes.options().node_timeout(RESPONSE_TIMEOUT * 3);
    let options = options.each(|server| server.response_timeout(RESPONSE_TIMEOUT));
    let (backend, asked) = (RedlockBackend::connect(options).await.unwrap(), claim("a"));
    let warm = granted(&backend, &claim("warm")).await;
    // Two servers are another's, and do not say so before the third has granted and is held up.
    for node in [0, 1] {
        nodes.tell::<()>(node, &["SET", "tenure:a", "foreign", "PX", "600000"]);
        nodes.member(node).proxy().expect("a proxy").set(Direction::Replies, Flow::Hold);
    }
    let held: Vec<_> = nodes.member(2).proxy().expect("a proxy").connections();
    let hold = async {
        until("the third has granted it", || nodes.has_key(2, "a")).await;
        hold_up(&held, Flow::Hold);
        for node in [0, 1] {
            nodes.saboteur(node).mend().await.unwrap();
        }
    };
    let (outcome, ()) = tokio::join!(backend.try_acquire(&asked), hold);
    assert!(matches!(outcome.unwrap(), Attempt::Busy { expires_in: Some(left) } if left > LONG / 2));
    until("the withdrawal is said again on a new connection", || !nodes.has_key(2, "a")).await;
    for node in [0, 1] {
        nodes.tell::<()>(node, &["DEL", "tenure:a"]);
    }
    let now = granted(&backend, &asked).await;
    until("all three have it", || (0..3).all(|node| nodes.has_key(node, "a"))).await;
    let before = nodes.scripts_called(2);
    hold_up(&held, Flow::Pass);
    until("the first withdrawal comes", || nodes.scripts_called(2) > before).await;
    assert!(nodes.has_key(2, "a"), "a withdrawal of the first attempt ended the second");
    let again = granted(&backend, &asked).await;
    assert_eq!(again.token, now.token, "the same claim keeps its token");
    backend.release(&now).await.unwrap();
    backend.release(&warm).await.unwrap();
}

/// A server may carry out a request for a short lease after one for a long lease that was sent later. So its yes to the
/// second does not make up a majority.
#[tokio::test]
async fn server_that_may_cut_a_lease_short_is_not_counted_on() {
    const SHORT: Duration = Duration::from_secs(LONG.as_secs() / 2);
    let nodes = Nodes::start(3).await;
    let backend = nodes.backend().await;
    let held = granted(&backend, &claim("a")).await;
    let renew = async |lease: Duration| backend.renew(&[Grant { lease, ..held.clone() }]).await.unwrap();
    let left = |node: usize| {
        let millis: u64 = nodes.tell(node, &["PTTL", "tenure:a"]);
        Duration::from_millis(millis)
    };
    until("all have the lock", || (0..3).all(|node| nodes.has_key(node, "a"))).await;
    // From now on every server knows the script.
    assert_eq!(renew(LONG * 2).await, [Renewal::Renewed]);
    until("all have the longest lease", || (0..3).all(|node| left(node) > LONG)).await;
    let held_up = nodes.member(2).proxy().expect("a proxy").connections();
    hold_up(&held_up, Flow::Hold);
    assert_eq!(renew(SHORT).await, [Renewal::Renewed], "two of three have it");
    let before = nodes.scripts_called(2);
    let answers = async {
        // Asks every server, and waits until it has answered or its connection has been given up.
        while nodes.scripts_called(2) == before {
            backend.holders(&held.name).await.unwrap();
        }
    };
    in_time("the third answers on a new connection", answers).await;
    nodes.saboteur(1).hurt(Hurt::Kill).await.unwrap();
    assert_eq!(renew(LONG).await, [Renewal::Unanswered], "only one is sure to keep it");
    assert!(left(2) > SHORT && left(2) <= LONG, "the third did not say yes");
    hold_up(&held_up, Flow::Pass);
    until("the third cuts it short", || left(2) <= SHORT).await;
    assert!(left(0) > SHORT);
    backend.release(&held).await.unwrap();
}
