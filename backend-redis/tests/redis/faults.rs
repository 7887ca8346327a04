//! The faults that Redis alone has.

use crate::{LEASE, claim, grant, in_time, proxy_to, server::Server};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tenure_core::{Backend, Error, LossCause, Release, Renewal};
use tenure_redis::RedisBackend;

/// A holder learns from its renewals that it was forgotten.
#[tokio::test]
async fn grant_that_the_server_forgot_is_lost() {
    let server = Server::start();
    let (one, other) = (server.locks().await, server.locks().await);
    for is_taken in [true, false] {
        let first = one.lock("a").lease(Duration::from_secs(6)).acquire().await.unwrap();
        let token = first.token();
        server.tell::<()>(&["FLUSHALL"]);
        let second = if is_taken { other.lock("a").try_acquire().await.unwrap() } else { None };
        let cause = in_time("the loss", first.lost()).await;
        assert_eq!(cause, if is_taken { LossCause::TakenOver } else { LossCause::Forgotten });
        assert!(matches!(first.release().await, Err(Error::Lost { .. })));
        if let Some(second) = second {
            assert!(second.is_held() && second.token() > token);
        }
    }
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_told_again() {
    let server = Server::start();
    let backend = server.backend().await;
    let flush = || server.tell::<()>(&["SCRIPT", "FLUSH"]);
    flush();
    let held = grant(&backend, &claim("a", LEASE)).await;
    flush();
    assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
    flush();
    assert_eq!(backend.holders(&held.name).await.unwrap().len(), 1);
    flush();
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released { awaited: false });
    flush();
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Lost(_)));
    flush();
    assert!(grant(&backend, &claim("a", LEASE)).await.token > held.token);
}

/// The connection still leads to the old master, which is a replica now; a new one leads to the new master.
#[tokio::test]
async fn deposed_master_is_left() {
    let (old, new) = (Server::start(), Server::start());
    let (proxy, options) = proxy_to(&old).await;
    let backend = RedisBackend::connect(options).await.unwrap();
    let held = grant(&backend, &claim("a", LEASE)).await;
    // It keeps its data, because that master cannot be reached.
    old.tell::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = backend.renew(&[held]).await.unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("read-only replica"), "{refused}");
    proxy.set_upstream(SocketAddr::from((Ipv4Addr::LOCALHOST, new.port)));
    // Found out by one request or by the other.
    let _ = backend.try_acquire(&claim("b", LEASE)).await;
    let next = claim("c", LEASE);
    grant(&backend, &next).await;
    assert_eq!(new.tell::<u64>(&["EXISTS", "tenure:c"]), 1);
}
