//! A look-up of slots holds up no renewal and no other request.

use crate::{LEASE, begin_to_move, claim, end_move, granted, in_time, master_of, move_keys, name_at};
use std::{future::poll_fn, task::Poll};
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Backend, Name, Release, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::{Kind, Member, Server};

/// A client that has asked for `{x}a`, whose slot has a key since.
async fn patient(server: &Server) -> RedisBackend {
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let options = options.connect_timeout(LEASE).response_timeout(LEASE);
    let backend = RedisBackend::connect(options).await.unwrap();
    let held = granted(&backend, "{x}a").await;
    backend.release(&held).await.unwrap();
    backend
}

async fn moved(from: &Member, to: &Member) {
    begin_to_move("{x}", from, to).await;
    move_keys("{x}", from, to).await;
    end_move("{x}", from, to).await;
}

/// From now on the client doubts what it knows of the slots.
async fn finds_out(backend: &RedisBackend) {
    assert_eq!(backend.holders(&Name::new("{x}a").unwrap()).await.unwrap(), []);
}

/// A look-up lasts until a majority has answered, or all have had their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_up_that_takes_long_costs_no_lease_its_renewal() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let (members, backend) = (server.members(), patient(&server).await);
    let from = master_of(&server, "{x}").await;
    let held = granted(&backend, &name_at(&server, from).await).await;
    moved(&members[from], &members[(from + 1) % 3]).await;
    // Half of those that are asked: the replicas, which the URL names too. All slots are served.
    for replica in &members[3..] {
        replica.saboteur().hurt(Hurt::Freeze).await.unwrap();
    }
    finds_out(&backend).await;
    let renewal = in_time("nodes that it does not need", backend.renew(std::slice::from_ref(&held))).await;
    assert_eq!(renewal.unwrap(), [Renewal::Renewed]);
    server.stop().await.unwrap();
}

/// As in a `select!` in a loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_not_polled_during_a_look_up_holds_up_no_other() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let (members, backend) = (server.members(), patient(&server).await);
    let mut at = master_of(&server, "{x}").await;
    for polls in 1..=4 {
        let to = (at + 1) % 3;
        moved(&members[at], &members[to]).await;
        at = to;
        finds_out(&backend).await;
        let left = claim(&format!("left {polls}"));
        let (mut attempt, mut to_come) = (backend.try_acquire(&left), polls);
        poll_fn(|context| {
            to_come -= 1;
            let is_done = attempt.as_mut().poll(context).is_ready();
            if is_done || to_come == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let held_up = format!("held up by one that was polled {polls} times");
        let held = in_time(&held_up, granted(&backend, "other")).await;
        let released = in_time(&held_up, backend.release(&held)).await;
        assert!(matches!(released.unwrap(), Release::Released { .. }));
    }
    server.stop().await.unwrap();
}
