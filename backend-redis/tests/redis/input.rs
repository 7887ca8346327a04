//! Wrong settings and servers.

use crate::{
    LEASE, claim, grant, in_time,
    rights::{documented, permit},
    server::Server,
    until,
};
use std::{error::Error as _, net::TcpListener, time::Duration};
use tenure_core::{Backend, Error, Release, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};

/// The whole of what a person is told.
fn said(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += ": ";
        text += &next.to_string();
        cause = next.source();
    }
    text
}

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
    grant(&backend, &claim("a", LEASE)).await;
    assert_eq!(backend.store(), format!("redis://127.0.0.1:{}/2", server.port));
    assert!(!format!("{backend:?}").contains("right"));
}

#[tokio::test]
async fn a_user_with_rights_to_the_prefix_alone() {
    let server = Server::start();
    // The error for what a user may not do leads to the crate's documentation.
    let crate_page = include_str!("../../src/lib.rs").replace("//! ", "");
    assert!(crate_page.contains(documented()), "src/lib.rs has other rules than docs/redis.md");
    permit(&server);
    let options = || RedisOptions::from_url(&server.tcp_url()).unwrap().credentials("app", "zq7k2");
    let client = async |fair| RedisBackend::connect(options().fair(fair)).await.unwrap();
    for fair in [false, true] {
        let (one, other) = (client(fair).await, client(fair).await);
        let (held, waits) = (grant(&one, &claim("a{b}c}", LEASE)).await, claim("a{b}c}", LEASE));
        assert_eq!(one.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        assert_eq!(one.list("").await.unwrap().len(), 1);
        let told = if fair { "tenure:\u{1f}*" } else { "tenure:a{b}c}" };
        let waiter = tokio::spawn({
            let (other, waits) = (other.clone(), waits.clone());
            async move { other.acquire(&waits).await }
        });
        let listening = || !server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", told]).is_empty();
        until("it listens", listening).await;
        assert!(matches!(one.release(&held).await.unwrap(), Release::Released { .. }));
        in_time("the grant", waiter).await.unwrap().unwrap();
        other.withdraw(&waits).await.unwrap();
        grant(&one, &claim("a{b}c}", LEASE)).await;
        assert_eq!(one.force_release(&held.name).await.unwrap().len(), 1);
        other.close().await;
    }
    let one = client(false).await;
    let (error, text) = refusal_with(options().prefix("other:")).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("denies this user"), "{text}");
    // Without the right to the channels, a release is a release all the same.
    server.tell::<()>(&["ACL", "SETUSER", "app", "resetchannels"]);
    let held = grant(&one, &claim("a", LEASE)).await;
    assert!(matches!(one.release(&held).await.unwrap(), Release::Released { .. }));
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
async fn a_read_only_replica() {
    let (master, replica) = (Server::start(), Server::start());
    replica.tell::<()>(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    let (error, text) = refusal(&replica.tcp_url()).await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("read-only replica"), "{text}");
}

#[tokio::test]
async fn a_node_of_a_cluster() {
    let server = Server::node(&[]);
    let (error, text) = refusal(&server.tcp_url()).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("redis+cluster:"), "{text}");
}

#[tokio::test]
async fn from_a_client() {
    let server = Server::start();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/1", server.port)).unwrap();
    let backend = RedisBackend::from_client(client, RedisOptions::default().prefix("app:")).await.unwrap();
    grant(&backend, &claim("a", LEASE)).await;
    let mut connection = server.connection();
    redis::cmd("SELECT").arg(1).exec(&mut connection).unwrap();
    assert!(redis::cmd("EXISTS").arg("app:a").query::<bool>(&mut connection).unwrap());
}
