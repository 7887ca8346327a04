//! Members that keep silent. Their requests are sent to another one, too, and may be carried out late.

use crate::{RELEASED, claim, granted, is_busy, keys, server::Server, until};
use std::time::Duration;
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Attempt, Backend};
use tenure_etcd::{EtcdBackend, EtcdOptions};

/// For both members: a silent one is left after half of it.
const PATIENCE: Duration = Duration::from_secs(6);

/// Long enough for a heartbeat that fails, and for one on a new connection; too short for the connection's own pings to tell.
const SESSION: Duration = Duration::from_secs(16);

/// A client with a session, and its two ways to the server.
async fn client(server: &Server) -> (EtcdBackend, [Proxy; 2]) {
    let upstream = server.host().parse().unwrap();
    let ways = [Proxy::start(upstream).await.unwrap(), Proxy::start(upstream).await.unwrap()];
    let hosts = ways.each_ref().map(|way| way.address().to_string());
    let backend = EtcdBackend::connect(EtcdOptions::new(hosts).response_timeout(PATIENCE)).await.unwrap();
    let first = granted(&backend, &claim("first")).await;
    assert_eq!(backend.release(&first).await.unwrap(), RELEASED);
    (backend, ways)
}

/// Keeps back all that the client says on the way that it uses.
fn hold(ways: &[Proxy; 2]) {
    let used = ways.iter().find(|way| !way.connections().is_empty());
    used.expect("a way that is used").set(Direction::Requests, Flow::Hold);
}

#[tokio::test]
async fn released_claim_is_marked_if_a_copy_may_arrive() {
    let Some(server) = Server::start() else { return };
    let mut eyes = server.eyes().await;
    for waits in [false, true] {
        let (backend, ways) = client(&server).await;
        hold(&ways);
        let claim = claim(if waits { "waits" } else { "tries" });
        let grant =
            if waits { backend.acquire(&claim).await.unwrap() } else { granted(&backend, &claim).await };
        assert!(keys(&mut eyes, "tenure/%spent/").await.is_empty());
        assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
        let mark = format!("tenure/%spent/{}", claim.id.as_uuid().simple());
        assert_eq!(keys(&mut eyes, &mark).await.len(), 1);
        backend.close().await;
        until("all is gone", async || keys(&mut eyes, "tenure/").await.is_empty()).await;
    }
}

#[tokio::test]
async fn refused_claim_is_marked_if_a_copy_may_arrive() {
    let Some(server) = Server::start() else { return };
    let (backend, ways) = client(&server).await;
    let (holder, mut eyes) = (server.backend().await, server.eyes().await);
    granted(&holder, &claim("a")).await;
    assert!(is_busy(&backend, "a").await);
    assert!(keys(&mut eyes, "tenure/%spent/").await.is_empty());
    hold(&ways);
    let refused = claim("a");
    assert!(matches!(backend.try_acquire(&refused).await.unwrap(), Attempt::Busy { .. }));
    let mark = format!("tenure/%spent/{}", refused.id.as_uuid().simple());
    until("it is marked", async || keys(&mut eyes, &mark).await.len() == 1).await;
}

/// The client's own connection is broken without a word, and a new one would work. The heartbeats find out in time, although
/// each waits for less than a request does.
#[tokio::test]
async fn session_survives_a_connection_that_falls_silent() {
    let Some(server) = Server::start() else { return };
    let way = Proxy::start(server.host().parse().unwrap()).await.unwrap();
    let options = EtcdOptions::new([way.address().to_string()]);
    let options = options.session_timeout(SESSION).response_timeout(SESSION * 5 / 12);
    let backend = EtcdBackend::connect(options).await.unwrap();
    let held = granted(&backend, &claim("a")).await;
    for connection in way.connections() {
        connection.set(Direction::Requests, Flow::Hold);
        connection.set(Direction::Replies, Flow::Hold);
    }
    let mut eyes = server.eyes().await;
    let lease = keys(&mut eyes, "tenure/a/").await[0].lease();
    let mut left = i64::MAX;
    until("its lease is renewed", async || {
        let before = left;
        left = eyes.lease_client().time_to_live(lease, None).await.unwrap().ttl();
        assert!(left >= 0, "the lease has ended");
        left > before
    })
    .await;
    assert_eq!(held.loss(), None);
    assert_eq!(backend.release(&held).await.unwrap(), RELEASED);
}
