//! Servers that are down, hang, or come back empty.

use crate::nodes::{LONG, Nodes, claim, granted, in_time, until, until_renewed, waits};
use std::time::Duration;
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Backend, Claim, Error, Holder, Locks, LossCause, Renewal};

const LEASE: Duration = Duration::from_secs(6);

#[tokio::test]
async fn majority_down() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (Locks::new(nodes.patient().await), Locks::new(nodes.patient().await));
    let held = one.lock("held").lease(LEASE).acquire().await.unwrap();
    for node in [0, 2] {
        nodes.saboteur(node).hurt(Hurt::Kill).await.unwrap();
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
    let waiter = waits(other.lock("a"));
    nodes.saboteur(2).heal().await.unwrap();
    in_time("the grant", waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_node_hangs() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (Locks::new(nodes.patient().await), Locks::new(nodes.patient().await));
    nodes.saboteur(1).hurt(Hurt::Freeze).await.unwrap();
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
    nodes.saboteur(1).undo(Hurt::Freeze).await.unwrap();
    // Nothing that the node did while it caught up is left.
    until("the node has caught up", || !nodes.has_key(1, "a") && !nodes.has_key(1, "b")).await;
}

/// The holder has two of three servers, of which one does not answer: a majority answers, of which a minority knows it.
#[tokio::test]
async fn name_is_not_called_free_while_its_servers_are_silent() {
    let nodes = Nodes::start(3).await;
    let (one, other) = (nodes.backend().await, nodes.locks().await);
    let held = claim("jobs/a");
    nodes.saboteur(0).hurt(Hurt::Kill).await.unwrap();
    granted(&one, &held).await;
    nodes.saboteur(0).heal().await.unwrap();
    assert!(!nodes.has_key(0, "jobs/a") && nodes.has_key(2, "jobs/a"));
    let claims = |holders: Vec<Holder>| holders.iter().map(|holder| holder.claim).collect::<Vec<_>>();
    assert_eq!(claims(other.holders("jobs/a").await.unwrap()), [Some(held.id)]);
    nodes.saboteur(1).hurt(Hurt::Kill).await.unwrap();
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
    nodes.saboteur(0).hurt(Hurt::Wipe).await.unwrap();
    for _ in 0..2 {
        let busy = other.lock("a").try_acquire().await.unwrap();
        assert!(busy.is_none(), "two of three servers know the holder");
        until_renewed(&guard).await;
    }
    // The last attempt may still be giving back what that server granted. A key of the holder's would stay.
    until("no renewal brought a key back", || !nodes.has_key(0, "a")).await;
    // A second one, before the leases of before have run out: now a majority has forgotten the holder.
    nodes.saboteur(1).hurt(Hurt::Wipe).await.unwrap();
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
                nodes.saboteur(node).inject(Hurt::DelayReplies.by(Duration::from_millis(20))).await.unwrap();
            }
        }
        let waiter = waits(other.lock("a"));
        let asked = async |times| {
            let before = nodes.scripts_called(1);
            until("it asks", || nodes.scripts_called(1) >= before + times).await;
        };
        // It waits.
        asked(3).await;
        if is_late {
            nodes.saboteur(0).inject(Hurt::DelayReplies.by(Duration::from_millis(400))).await.unwrap();
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
    let backend = nodes.patient().await;
    let short = |name| Claim { lease: Duration::from_secs(36), ..claim(name) };
    let (decided, open) = (granted(&backend, &short("a")).await, granted(&backend, &short("b")).await);
    nodes.tell::<()>(0, &["DEL", "tenure:b"]);
    nodes.saboteur(2).hurt(Hurt::Freeze).await.unwrap();
    let renewals = async {
        for _ in 0..4 {
            let renewal = backend.renew(&[decided.clone(), open.clone()]).await;
            assert_eq!(renewal.unwrap(), [Renewal::Renewed, Renewal::Unanswered]);
        }
    };
    in_time("what is decided", renewals).await;
}
