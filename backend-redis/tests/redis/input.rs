//! Wrong settings and servers.

use crate::{claim, granted, in_time, said, server::Server};
use std::{net::TcpListener, time::Duration};
use tenure_core::{Backend, Error};
use tenure_redis::{RedisBackend, RedisOptions};

/// Connects in vain.
async fn refusal(url: &str) -> (Error, String) {
    refusal_with(RedisOptions::from_url(url).unwrap()).await
}

pub(crate) async fn refusal_with(options: RedisOptions) -> (Error, String) {
    let options = options.connect_timeout(Duration::from_secs(2)).response_timeout(Duration::from_secs(2));
    let error = in_time("a refusal", RedisBackend::connect(options)).await.expect_err("a refusal");
    let text = said(&error);
    assert!(!format!("{error:?} {error:#?}").contains("zq7k2"), "{text}");
    (error, text)
}

#[tokio::test]
async fn wrong_password() {
    let server = Server::with(&["--requirepass", "right"]);
    for url in [
        format!("redis://:zq7k2@127.0.0.1:{}", server.port),
        format!("redis://who:zq7k2@127.0.0.1:{}", server.port),
    ] {
        let (error, text) = refusal(&url).await;
        assert!(matches!(error, Error::Store { .. }), "{text}");
        assert!(text.contains("refused the user or the password"), "{text}");
    }
    for url in [server.tcp_url(), format!("{}/2", server.tcp_url())] {
        let (error, text) = refusal(&url).await;
        assert!(matches!(error, Error::Store { .. }) && text.contains("requires a password"), "{text}");
    }
    let backend = RedisBackend::connect(
        RedisOptions::from_url(&format!("redis://:right@127.0.0.1:{}/2", server.port)).unwrap(),
    );
    let backend = backend.await.unwrap();
    granted(&backend, &claim("a")).await;
    assert_eq!(backend.store(), format!("redis://127.0.0.1:{}/2", server.port));
    assert!(!format!("{backend:?}").contains("right"));
}

#[tokio::test]
async fn wrong_database() {
    let server = Server::start();
    let (error, text) = refusal(&format!("{}/99", server.tcp_url())).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("has no database 99"), "{text}");
}

#[tokio::test]
async fn unreachable() {
    let (error, text) = refusal("redis://127.0.0.1:1").await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("127.0.0.1:1"), "{text}");
    let (error, text) = refusal("redis+unix:/nowhere/redis.sock").await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("/nowhere/redis.sock"), "{text}");
    let (error, text) = refusal("redis://no-such-host.invalid").await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("no-such-host.invalid"), "{text}");
    // A host that accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (error, text) = refusal(&format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port())).await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("did not answer in time"), "{text}");
}

#[tokio::test]
async fn from_a_client() {
    let server = Server::start();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/1", server.port)).unwrap();
    let backend = RedisBackend::from_client(client, RedisOptions::default().prefix("app:")).await.unwrap();
    granted(&backend, &claim("a")).await;
    let mut connection = server.connection();
    redis::cmd("SELECT").arg(1).exec(&mut connection).unwrap();
    assert!(redis::cmd("EXISTS").arg("app:a").query::<bool>(&mut connection).unwrap());
}
