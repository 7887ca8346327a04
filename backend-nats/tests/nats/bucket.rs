//! The bucket, as others made it or lost it.

use crate::{RELEASED, claim, granted, server::Server};
use async_nats::jetstream::stream::{Config, StorageType};
use std::time::Duration;
use tenure_core::{Backend, LossCause, Renewal};
use tenure_nats::NatsBackend;

fn bucket() -> Config {
    Config {
        name: "KV_locks".to_owned(),
        subjects: vec!["$KV.locks.>".to_owned()],
        max_messages_per_subject: 5,
        ..Config::default()
    }
}

#[tokio::test]
async fn list_omits_old_revisions_of_a_history() {
    let Some(server) = Server::start().await else { return };
    server.eyes().await.create_stream(bucket()).await.unwrap();
    let (one, other) = (server.backend().await, server.backend().await);
    for _ in 0..10 {
        let grant = granted(&one, &claim("a")).await;
        assert_eq!(other.list("").await.unwrap().len(), 1);
        assert_eq!(one.release(&grant).await.unwrap(), RELEASED);
    }
    assert!(other.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn bucket_with_ttl_is_refused() {
    let Some(server) = Server::start().await else { return };
    let config = Config { max_age: Duration::from_hours(1), ..bucket() };
    server.eyes().await.create_stream(config).await.unwrap();
    let error = server.refuses(server.options()).await.to_string();
    assert!(error.contains("\"locks\"") && error.contains("TTL"), "{error}");
}

#[tokio::test]
async fn bucket_that_discards_held_locks_is_refused() {
    let Some(server) = Server::start().await else { return };
    let config = Config { max_bytes: 1_000_000, ..bucket() };
    server.eyes().await.create_stream(config).await.unwrap();
    let error = server.refuses(server.options()).await.to_string();
    assert!(error.contains("\"locks\" discards"), "{error}");
}

#[tokio::test]
async fn unreadable_entry_hides_no_other() {
    let Some(server) = Server::start().await else { return };
    let backend = server.backend().await;
    granted(&backend, &claim("a")).await;
    let eyes = server.eyes().await;
    let damaged = eyes.publish("$KV.locks.tenure.lock/b", vec![0xff].into()).await.unwrap();
    damaged.await.unwrap();
    let listed = backend.list("").await.unwrap();
    assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn bucket_in_memory_is_used() {
    let Some(server) = Server::start().await else { return };
    let config = Config { storage: StorageType::Memory, ..bucket() };
    server.eyes().await.create_stream(config).await.unwrap();
    granted(&server.backend().await, &claim("a")).await;
}

#[tokio::test]
async fn more_replicas_than_servers_are_an_error() {
    let Some(server) = Server::start().await else { return };
    let error = server.refuses(server.options().replicas(3)).await.to_string();
    assert!(error.contains("replicas"), "{error}");
}

/// Its locks are lost, and tokens still rise.
#[tokio::test]
async fn deleted_bucket_is_created_again() {
    let Some(server) = Server::start().await else { return };
    let backend = server.backend().await;
    let grant = granted(&backend, &claim("a")).await;
    server.eyes().await.delete_stream("KV_locks").await.unwrap();
    assert!(backend.try_acquire(&claim("a")).await.unwrap_err().is_unavailable());
    let next = granted(&backend, &claim("a")).await;
    assert!(grant.token < next.token);
    assert!(matches!(backend.renew(&[grant]).await.unwrap()[..], [Renewal::Lost(LossCause::TakenOver)]));
}

#[tokio::test]
async fn own_client_survives_close() {
    let Some(server) = Server::start().await else { return };
    let client = async_nats::connect(server.host()).await.unwrap();
    let backend = NatsBackend::connect_with(client.clone(), server.options()).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    backend.close().await;
    client.flush().await.unwrap();
}

#[tokio::test]
async fn server_without_jetstream_is_an_error() {
    let Some(server) = Server::with("accounts { A { users: [{ user: a, password: b }] } }").await else {
        return;
    };
    let error = server.refuses(server.options().user("a", "b")).await.to_string();
    assert!(error.contains("JetStream") || error.contains("jetstream"), "{error}");
}
