//! Upgrades that the server forgets, or that its replicas do not have yet.

use crate::{HANG, LEASE, claim_in, grant, proxy_to, server::Server, until};
use std::time::Duration;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Backend, Conversion, Error, Locks, LossCause, Mode};
use tenure_redis::RedisBackend;

/// As after a crash between the upgrade and its way to the disk. The extension asks as each renewal does.
#[tokio::test]
async fn forgotten_upgrade_is_lost_at_the_next_renewal() {
    let server = Server::start();
    for backend in server.both().await {
        let locks = Locks::with_lease(backend, LEASE).unwrap();
        let mut writer = locks.rw("a").read().acquire().await.unwrap();
        let before: String = server.tell(&["GET", "tenure:a"]);
        assert!(writer.try_upgrade().await.unwrap());
        writer.extend(LEASE).await.unwrap();
        server.tell::<()>(&["SET", "tenure:a", &before, "KEEPTTL"]);
        let reader = locks.rw("a").read().try_acquire().await.unwrap().expect("it knows readers alone");
        let extended = writer.extend(LEASE).await;
        assert!(matches!(extended, Err(Error::Lost { cause: LossCause::Forgotten, .. })), "{extended:?}");
        assert_eq!(writer.lost().await, LossCause::Forgotten);
        assert!(reader.is_held() && !writer.is_held());
        reader.release().await.unwrap();
        server.tell::<()>(&["DEL", "tenure:a"]);
    }
}

#[tokio::test]
async fn upgrade_counts_only_once_replicas_have_it() {
    let (server, replica) = (Server::with(&["--repl-diskless-sync-delay", "0"]), Server::start());
    let (way, _) = proxy_to(&server).await;
    replica.tell::<()>(&["REPLICAOF", "127.0.0.1", &way.address().port().to_string()]);
    until("the replica follows", || server.tell::<String>(&["INFO", "replication"]).contains("state=online"))
        .await;
    let client = async |response: Duration| {
        RedisBackend::connect(server.options().replicas(1).response_timeout(response)).await.unwrap()
    };
    let patient = client(HANG * 2).await;
    let held = grant(&patient, &claim_in(Mode::Shared, "a")).await;
    way.set(Direction::Replies, Flow::Hold);
    // The second finds the upgrade made, on a connection that wrote nothing before.
    for _ in 0..2 {
        let upgraded = client(Duration::from_secs(4)).await.convert(&held, Mode::Exclusive).await;
        assert!(upgraded.as_ref().is_err_and(tenure_core::StoreError::is_unavailable), "{upgraded:?}");
    }
    way.set(Direction::Replies, Flow::Pass);
    assert_eq!(patient.convert(&held, Mode::Exclusive).await.unwrap(), Conversion::Converted);
}
