//! Servers that are down, hang, or come back empty.

use crate::nodes::{LONG, Nodes, PATIENCE, claim, grant, in_time, until, until_renewed};
use std::time::Duration;
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
    until_renewed(&guard).await;
    until_renewed(&before).await;
    assert!(other.lock("a").try_acquire().await.unwrap().is_none(), "the lock is held");
    assert_eq!(other.holders("a").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    before.release().await.unwrap();
    // New clients connect all the same.
    drop(nodes.locks().await.lock("a").try_acquire().await.unwrap().expect("free"));
}

#[tokio::test]
async fn majority_down() {
    let nodes = Nodes::start(3).await;
    let options = nodes.options().node_timeout(PATIENCE).each(|server| server.response_timeout(LONG));
    let patient = async || Locks::new(RedlockBackend::connect(options.clone()).await.unwrap());
    let (one, other) = (patient().await, patient().await);
    let held = one.lock("held").lease(LEASE).acquire().await.unwrap();
    for node in [0, 2] {
        nodes.saboteur(node).kill().await.unwrap();
    }
    let refusals = async {
        for _ in 0..4 {
            let error = other.lock("a").lease(LONG).try_acquire().await.unwrap_err();
            let Error::Unavailable { source, .. } = &error else { panic!("{error:?}") };
            assert!(source.to_string().contains("no majority of the 3 servers"), "{source}");
        }
    };
    in_time("those that are down", refusals).await;
    until("what one server granted is taken back", || !nodes.has_key(1, "a")).await;
    assert_eq!(in_time("the loss", held.lost()).await, LossCause::Expired);
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
    nodes.saboteur(2).heal().await.unwrap();
    in_time("the grant", waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_node_hangs() {
    let nodes = Nodes::start(3).await;
    let options = nodes.options().node_timeout(PATIENCE).each(|server| server.response_timeout(LONG));
    let patient = async || Locks::new(RedlockBackend::connect(options.clone()).await.unwrap());
    let (one, other) = (patient().await, patient().await);
    nodes.saboteur(1).freeze().await.unwrap();
    let turns = async {
        for _ in 0..10 {
            let guard = one.lock("a").lease(LONG).try_acquire().await.unwrap().expect("free");
            let held = other.lock("a").lease(LONG).try_acquire().await.unwrap();
            assert!(held.is_none(), "the lock is held");
            guard.release().await.unwrap();
        }
        let guard = one.lock("b").lease(LEASE).acquire().await.unwrap();
        until_renewed(&guard).await;
        guard.release().await.unwrap();
    };
    in_time("who waits for the node that hangs", turns).await;
    nodes.saboteur(1).thaw().await.unwrap();
    // Nothing that the node did while it caught up is left.
    until("the node has caught up", || !nodes.has_key(1, "a") && !nodes.has_key(1, "b")).await;
}

/// The holder has two of three servers, of which one does not answer: a majority answers, of which a minority knows it.
#[tokio::test]
async fn name_is_not_called_free_while_its_servers_are_silent() {
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
    // These are free: a majority answers, and none of it has their keys.
    assert!(other.holders("jobs/b").await.unwrap().is_empty());
    assert!(other.list("other/").await.unwrap().is_empty());
}

#[tokio::test]
async fn node_restarted_empty() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.locks().await, nodes.locks().await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    nodes.saboteur(0).restart_empty().await.unwrap();
    for _ in 0..2 {
        let busy = other.lock("a").try_acquire().await.unwrap();
        assert!(busy.is_none(), "two of three servers know the holder");
        until_renewed(&guard).await;
    }
    // The last attempt may still be giving back what that server granted. A key of the holder's would stay.
    until("no renewal brought a key back", || !nodes.has_key(0, "a")).await;
    // A second one, before the leases of before have run out: now a majority has forgotten the holder.
    nodes.saboteur(1).restart_empty().await.unwrap();
    let next = in_time("the grant", other.lock("a").acquire()).await.unwrap();
    assert!(next.token() > guard.token(), "{} follows {}", next.token(), guard.token());
    in_time("the loss", guard.lost()).await;
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// A server that was away does not know the holder, and votes for everybody who asks. Its vote may also come too late to be
/// heard. A waiter does not take either for the end of the contest, and ask more often.
#[tokio::test]
async fn returned_node_is_asked_no_more_than_others() {
    for is_late in [false, true] {
        let nodes = Nodes::start(3).await;
        let (one, other) = (nodes.locks().await, nodes.locks().await);
        let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
        nodes.tell::<()>(0, &["DEL", "tenure:a"]);
        if is_late {
            for node in [1, 2] {
                nodes.saboteur(node).delay(Direction::Replies, Duration::from_millis(20)).await.unwrap();
            }
        }
        let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
        let asked = async |times| {
            let before = nodes.scripts_called(1);
            until("it asks", || nodes.scripts_called(1) >= before + times).await;
        };
        // It waits.
        asked(3).await;
        if is_late {
            nodes.saboteur(0).delay(Direction::Replies, Duration::from_millis(400)).await.unwrap();
            let before = nodes.scripts_called(0);
            // Among three calls there is an attempt, and its withdrawal.
            until("decided without it", || nodes.scripts_called(0) >= before + 3).await;
            nodes.saboteur(0).mend().await.unwrap();
        }
        // Each asking takes two calls, and comes 1.2 s after the last. A stall makes that longer.
        let begun = nodes.time(1);
        asked(6).await;
        let passed = nodes.time(1).saturating_sub(begun);
        assert!(passed > Duration::from_millis(1500), "asked six times in {passed:?}, late: {is_late}");
        guard.release().await.unwrap();
        in_time("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A renewal waits a sixth of the lease for the answers. The client reports a majority's decision before that, even if
/// another lease depends on a server that hangs.
#[tokio::test]
async fn undecided_lease_costs_no_other_its_renewal() {
    let nodes = Nodes::start(3).await;
    let options = nodes.options().node_timeout(PATIENCE).each(|server| server.response_timeout(LONG));
    let backend = RedlockBackend::connect(options).await.unwrap();
    let short = |name| Claim { lease: Duration::from_secs(36), ..claim(name) };
    let (decided, open) = (grant(&backend, &short("a")).await, grant(&backend, &short("b")).await);
    nodes.tell::<()>(0, &["DEL", "tenure:b"]);
    nodes.saboteur(2).freeze().await.unwrap();
    let renewals = async {
        for _ in 0..4 {
            let renewal = backend.renew(&[decided.clone(), open.clone()]).await;
            assert_eq!(renewal.unwrap(), [Renewal::Renewed, Renewal::Unanswered]);
        }
    };
    in_time("what is decided", renewals).await;
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
