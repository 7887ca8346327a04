//! Renewals of several leases, of which the server refuses some.

use crate::{server::Server, until};
use std::time::Duration;
use tenure_core::{Guard, Locks, LossCause};
use tenure_redis::{RedisBackend, RedisOptions};

/// Long enough for a machine that is busy for some seconds.
const LEASE: Duration = Duration::from_secs(6);

async fn locks_as(server: &Server, rules: &[&str]) -> Locks {
    let user = ["ACL", "SETUSER", "app", "on", ">secret", "~tenure:*", "&*", "+@all"];
    server.tell::<()>(&[&user, rules].concat());
    let options = RedisOptions::from_url(&format!("redis://app:secret@127.0.0.1:{}", server.port)).unwrap();
    let options = options.response_timeout(Duration::from_secs(5));
    Locks::with_lease(RedisBackend::connect(options).await.unwrap(), LEASE).unwrap()
}

/// Waits until a lease has been renewed.
async fn until_renewed(guard: &Guard) {
    let first = guard.deadline().expect("it is held");
    until("it is renewed", || guard.deadline().expect("it is held") > first).await;
}

/// The user may do less than when it acquired them.
#[tokio::test]
async fn refused_batch_costs_the_refused_lease_alone() {
    let server = Server::start();
    let locks = locks_as(&server, &[]).await;
    let kept = [locks.lock("a1").acquire().await.unwrap(), locks.lock("a2").acquire().await.unwrap()];
    let refused = locks.lock("b").acquire().await.unwrap();
    server.tell::<()>(&["ACL", "SETUSER", "app", "resetkeys", "~tenure:a*"]);
    assert_eq!(refused.lost().await, LossCause::Expired);
    // They would have been lost before that one, since they were acquired before it.
    for guard in kept {
        assert!(guard.is_held(), "{:?}", guard.loss());
        guard.release().await.unwrap();
    }
}

/// As services do that keep names on several servers behind one address.
#[tokio::test]
async fn names_in_several_shards_behind_one_address_are_renewed() {
    let server = Server::cluster(&[]).await;
    // The client would find out that it is a node, and refuse it.
    let locks = locks_as(&server, &["-info"]).await;
    let several = locks.all(["c", "d"]).try_acquire().await.unwrap();
    let single = [locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap()];
    for guard in &single {
        until_renewed(guard).await;
    }
    assert!(several.expect("they are free, and asked for one by one").is_held());
}
