//! Upgrades that replicas do not have yet.

use crate::{HANG, claim_in, granted, proxy_to, server::Server, until};
use std::time::Duration;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Backend, Conversion, Mode};
use tenure_redis::RedisBackend;

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
    let held = granted(&patient, &claim_in(Mode::Shared, "a")).await;
    way.set(Direction::Replies, Flow::Hold);
    // The second finds the upgrade made, on a connection that wrote nothing before.
    for _ in 0..2 {
        let upgraded = client(Duration::from_secs(4)).await.convert(&held, Mode::Exclusive).await;
        assert!(upgraded.as_ref().is_err_and(tenure_core::StoreError::is_unavailable), "{upgraded:?}");
    }
    way.set(Direction::Replies, Flow::Pass);
    assert_eq!(patient.convert(&held, Mode::Exclusive).await.unwrap(), Conversion::Converted);
}
