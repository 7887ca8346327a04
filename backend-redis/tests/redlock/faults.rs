//! Servers that are down, hang, or come back empty.

use crate::nodes::{LONG, Nodes, claim, grant, until};
use std::time::{Duration, Instant};
use tenure_conformance::saboteur::Direction;
use tenure_core::{Attempt, Backend, Claim, Error, Holder, Locks, LossCause, Renewal};
use tenure_redis::RedlockBackend;

const LEASE: Duration = Duration::from_secs(6);

#[tokio::test]
async fn minority_down() {
    let nodes = Nodes::start(5).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let before = one.lock("before").lease(LEASE).acquire().await.unwrap();
    for node in [1, 4] {
        nodes.saboteur(node).kill().await.unwrap();
    }
    let mut last = None;
    for locks in [&one, &other, &one, &other] {
        let guard = locks.lock("a").try_acquire().await.unwrap().expect("free");
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held() && before.is_held(), "{guard:?}, {before:?}");
    assert!(other.lock("a").try_acquire().await.unwrap().is_none(), "the lock is held");
    assert_eq!(other.holders("a").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    before.release().await.unwrap();
    // Who comes now connects in spite of it.
    drop(nodes.locks().await.lock("a").try_acquire().await.unwrap().expect("free"));
}

#[tokio::test]
async fn majority_down() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let held = one.lock("held").lease(LEASE).acquire().await.unwrap();
    for node in [0, 2] {
        nodes.saboteur(node).kill().await.unwrap();
    }
    let mut fastest = Duration::MAX;
    // A machine may stall now and then; who waits for those that are down does so every time.
    for _ in 0..3 {
        let begin = Instant::now();
        let error = other.lock("a").try_acquire().await.unwrap_err();
        fastest = fastest.min(begin.elapsed());
        let Error::Unavailable { source, .. } = &error else { panic!("{error:?}") };
        assert!(source.to_string().contains("no majority of the 3 servers"), "{source}");
    }
    assert!(fastest < Duration::from_secs(2), "{fastest:?}");
    until("what one server granted is taken back", || !nodes.has_key(1, "a")).await;
    let cause = tokio::time::timeout(LEASE * 2, held.lost()).await.expect("lost at its deadline");
    assert_eq!(cause, LossCause::Expired);
    let waiter = tokio::spawn(async move { other.lock("a").wait(LONG).acquire().await });
    nodes.saboteur(2).heal().await.unwrap();
    let guard = tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("soon").unwrap().unwrap();
    guard.release().await.unwrap();
}

/// The patience with one node, which is never longer than the lease, is so long here that whoever waits for the one that
/// hangs is found out.
#[tokio::test]
async fn one_node_hangs() {
    const PATIENCE: Duration = Duration::from_mins(1);
    let nodes = Nodes::start(3).await;
    let patient = || async {
        let options = nodes.options().node_timeout(PATIENCE);
        let options = options.each(|server| server.response_timeout(PATIENCE));
        Locks::new(RedlockBackend::connect(options).await.unwrap())
    };
    let (one, other) = (patient().await, patient().await);
    nodes.saboteur(1).freeze().await.unwrap();
    let begin = Instant::now();
    for _ in 0..10 {
        let guard = one.lock("a").lease(LONG).try_acquire().await.unwrap().expect("free");
        let held = other.lock("a").lease(LONG).try_acquire().await.unwrap();
        assert!(held.is_none(), "the lock is held");
        guard.release().await.unwrap();
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    let begin = Instant::now();
    let guard = one.lock("b").lease(LEASE).acquire().await.unwrap();
    let acquiring = begin.elapsed();
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held(), "{guard:?}");
    let begin = Instant::now();
    guard.release().await.unwrap();
    let releasing = begin.elapsed();
    assert!(acquiring < LEASE && releasing < LEASE, "{acquiring:?}, {releasing:?}");
    nodes.saboteur(1).thaw().await.unwrap();
    // Nothing that the node did while it caught up is left.
    until("the node has caught up", || !nodes.has_key(1, "a") && !nodes.has_key(1, "b")).await;
}

/// The holder has two of three servers, of which one does not answer: a majority answers, of which a minority knows it.
#[tokio::test]
async fn a_holder_is_not_taken_for_nobody_while_its_servers_are_silent() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.backend().await, nodes.locks().await);
    let held = claim("jobs/a");
    nodes.saboteur(0).kill().await.unwrap();
    grant(&one, &held).await;
    nodes.saboteur(0).heal().await.unwrap();
    assert!(!nodes.has_key(0, "jobs/a") && nodes.has_key(2, "jobs/a"));
    let claims = |holders: Vec<Holder>| holders.iter().map(|holder| holder.claim).collect::<Vec<_>>();
    assert_eq!(claims(other.holders("jobs/a").await.unwrap()), [Some(held.id)]);
    nodes.saboteur(1).kill().await.unwrap();
    for asked in [other.holders("jobs/a").await, other.list("jobs/").await] {
        let Err(Error::Unavailable { source, .. }) = &asked else { panic!("{asked:?}") };
        assert!(source.to_string().contains("\"jobs/a\""), "{source}");
    }
    // Nobody can hold these: no server that answers has a key of theirs.
    assert!(other.holders("jobs/b").await.unwrap().is_empty());
    assert!(other.list("other/").await.unwrap().is_empty());
}

#[tokio::test]
async fn node_restarted_empty() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    nodes.saboteur(0).restart_empty().await.unwrap();
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        assert!(
            other.lock("a").try_acquire().await.unwrap().is_none(),
            "two of three servers know the holder"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(guard.is_held(), "{guard:?}");
    // The last attempt may still be giving back what that server granted. A key of the holder's would stay.
    until("no renewal brought a key back", || !nodes.has_key(0, "a")).await;
    // A second one, before the leases of before have run out: now a majority has forgotten the holder.
    nodes.saboteur(1).restart_empty().await.unwrap();
    let next = other.lock("a").wait(LONG).acquire().await.unwrap();
    assert!(next.token() > guard.token(), "{} follows {}", next.token(), guard.token());
    tokio::time::timeout(LEASE, guard.lost()).await.expect("lost within the lease");
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// A server that was away does not know the holder, and votes for everybody who asks. Who waits does not ask the more
/// often for it, and is told of the release.
#[tokio::test]
async fn a_returned_node_is_asked_no_more_than_others() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let guard = one.lock("a").acquire().await.unwrap();
    nodes.tell::<()>(0, &["DEL", "tenure:a"]);
    let waiter = tokio::spawn(async move { other.lock("a").wait(LONG).acquire().await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, begin) = (nodes.scripts_called(1), Instant::now());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (calls, passed) = (nodes.scripts_called(1) - before, begin.elapsed());
    assert!(u128::from(calls) <= passed.as_millis() / 500, "asked {calls} times in {passed:?}");
    until("it goes on asking", || nodes.scripts_called(1) > before).await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), waiter).await.expect("soon").unwrap().unwrap();
    next.release().await.unwrap();
}

/// The vote of such a server may come too late to be heard. Who waits does not take that for the end of the contest, and
/// begin it anew.
#[tokio::test]
async fn a_returned_node_that_answers_late_is_asked_no_more_than_others() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    nodes.tell::<()>(0, &["DEL", "tenure:a"]);
    // Its vote comes first, unless it is late.
    for node in [1, 2] {
        nodes.saboteur(node).delay(Direction::Replies, Duration::from_millis(20)).await.unwrap();
    }
    let waiter = tokio::spawn(async move { other.lock("a").wait(LONG).acquire().await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    nodes.saboteur(0).delay(Direction::Replies, Duration::from_millis(400)).await.unwrap();
    let before = nodes.scripts_called(0);
    // Among three calls there is an attempt, and its withdrawal.
    until("decided without it", || nodes.scripts_called(0) >= before + 3).await;
    nodes.saboteur(0).mend().await.unwrap();
    let (before, begin) = (nodes.scripts_called(1), Instant::now());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (calls, passed) = (nodes.scripts_called(1) - before, begin.elapsed());
    // One each 1.2 seconds at most; how long one takes is the machine's affair.
    assert!(u128::from(calls) <= passed.as_millis() / 1200 + 1, "asked {calls} times in {passed:?}");
    until("it goes on asking", || nodes.scripts_called(1) > before).await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), waiter).await.expect("soon").unwrap().unwrap();
    next.release().await.unwrap();
}

/// Servers that are down say so before the others answer. What these say decides whether the lock is held or the servers
/// are unavailable.
#[tokio::test]
async fn a_lock_that_is_held_is_not_called_unavailable() {
    let nodes = Nodes::start(5).await;
    let backend = nodes.backend().await;
    for node in [0, 2, 3] {
        nodes.tell::<()>(node, &["SET", "tenure:a", "foreign", "PX", "60000"]);
    }
    for node in [1, 4] {
        nodes.saboteur(node).kill().await.unwrap();
    }
    // Their answers come one after the other, and after the others' silence.
    for (node, late) in [(0, 200), (2, 400), (3, 600)] {
        nodes.saboteur(node).delay(Direction::Replies, Duration::from_millis(late)).await.unwrap();
    }
    let attempt = backend.try_acquire(&claim("a")).await;
    assert!(matches!(attempt, Ok(Attempt::Busy { expires_in: Some(_) })), "{attempt:?}");
}

#[tokio::test]
async fn a_lapsed_key_is_not_renewed() {
    let nodes = Nodes::start(3).await;
    let backend = nodes.backend().await;
    let held = grant(&backend, &claim("a")).await;
    for node in [0, 1] {
        assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        nodes.tell::<()>(node, &["DEL", "tenure:a"]);
    }
    assert!(matches!(backend.renew(std::slice::from_ref(&held)).await.unwrap()[..], [Renewal::Lost(_)]));
    assert!(!nodes.has_key(0, "a") && !nodes.has_key(1, "a"));
}

/// Who renews waits a sixth of the lease for the answer. What a majority has decided comes before that, though of another
/// lease a server has yet to tell that hangs.
#[tokio::test]
async fn a_lease_that_is_not_decided_costs_no_other_its_renewal() {
    let nodes = Nodes::start(3).await;
    let options = nodes.options().node_timeout(LONG / 10);
    let backend =
        RedlockBackend::connect(options.each(|server| server.response_timeout(LONG / 10))).await.unwrap();
    // So long that between what is decided and the sixth there are two seconds.
    let lease = Duration::from_secs(36);
    let short = |name| Claim { lease, ..claim(name) };
    let (decided, open) = (grant(&backend, &short("a")).await, grant(&backend, &short("b")).await);
    nodes.tell::<()>(0, &["DEL", "tenure:b"]);
    nodes.saboteur(2).freeze().await.unwrap();
    let renewal = tokio::time::timeout(lease / 6, backend.renew(&[decided, open])).await;
    assert_eq!(renewal.expect("in time").unwrap(), [Renewal::Renewed, Renewal::Unanswered]);
}

/// A server on which another program has the name counts as one that voted no.
#[tokio::test]
async fn foreign_clients_exclude_by_majority() {
    let nodes = Nodes::start(3).await;
    let backend = nodes.backend().await;
    nodes.tell::<()>(0, &["SET", "tenure:a", "foreign", "PX", "60000"]);
    let held = grant(&backend, &claim("a")).await;
    backend.release(&held).await.unwrap();
    nodes.tell::<()>(2, &["SET", "tenure:a", "foreign", "PX", "60000"]);
    let Attempt::Busy { expires_in } = backend.try_acquire(&claim("a")).await.unwrap() else {
        panic!("a majority is another's")
    };
    let left = expires_in.expect("told");
    assert!(left > Duration::from_secs(50) && left <= Duration::from_mins(1), "{left:?}");
    until("the one that was free is given back", || !nodes.has_key(1, "a")).await;
}
