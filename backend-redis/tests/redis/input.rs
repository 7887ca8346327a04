//! What a person may get wrong.

use crate::{
    NO_SHOW_UP, claim, give_back, grant,
    server::{Server, free_port},
    typical, until,
};
use std::{
    error::Error as _,
    net::TcpListener,
    time::{Duration, Instant},
};
use tenure_core::{Backend, Error, Locks};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);

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

/// Connects in vain, and soon.
async fn refusal(url: &str) -> (Error, String) {
    refusal_with(RedisOptions::from_url(url).unwrap()).await
}

pub(crate) async fn refusal_with(options: RedisOptions) -> (Error, String) {
    let begin = Instant::now();
    let options = options.connect_timeout(Duration::from_secs(2)).response_timeout(Duration::from_secs(2));
    let error = RedisBackend::connect(options).await.expect_err("a refusal");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
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
    // What docs/redis.md says.
    let page = include_str!("../../../docs/redis.md");
    let rules = page.split("```").find_map(|block| block.trim().strip_prefix("ACL SETUSER")).expect("rules");
    // The error for what a user may not do leads to the crate's documentation.
    let crate_page = include_str!("../../src/lib.rs").replace("//! ", "");
    assert!(crate_page.contains(rules.trim()), "src/lib.rs has other rules than docs/redis.md");
    let rules = rules.replace("SECRET", "zq7k2");
    let rules: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rules.split_whitespace()).collect();
    server.tell::<()>(&rules);
    let options = || RedisOptions::from_url(&server.tcp_url()).unwrap().credentials("app", "zq7k2");
    let client = async |fair| Locks::new(RedisBackend::connect(options().fair(fair)).await.unwrap());
    for fair in [false, true] {
        let (one, other) = (client(fair).await, client(fair).await);
        let mut guard = one.lock("a{b}c}").lease(Duration::from_secs(6)).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        // More than is left of it by itself.
        until("it is renewed", || server.tell::<i64>(&["PTTL", "tenure:a{b}c}"]) > 3000).await;
        assert_eq!(one.list("").await.unwrap().len(), 1);
        let told = if fair { "tenure:\u{1f}*" } else { "tenure:a{b}c}" };
        let mut delays = Vec::new();
        for _ in 0..3 {
            let waiter = tokio::spawn({
                let lock = other.lock("a{b}c}");
                async move { lock.acquire().await }
            });
            until("it listens", || !server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", told]).is_empty())
                .await;
            // It asks once more before it waits.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let released = Instant::now();
            guard.release().await.unwrap();
            let next = waiter.await.unwrap().unwrap();
            delays.push(released.elapsed());
            give_back(next).await;
            guard = one.lock("a{b}c}").acquire().await.unwrap();
        }
        assert!(typical(delays) < NO_SHOW_UP, "it was not told");
        assert_eq!(one.force_release("a{b}c}").await.unwrap().len(), 1);
        drop(guard);
        other.close().await;
    }
    let one = client(false).await;
    let (error, text) = refusal_with(options().prefix("other:")).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("denies this user"), "{text}");
    // Without the right to the channels, a release is a release all the same.
    server.tell::<()>(&["ACL", "SETUSER", "app", "resetchannels"]);
    one.lock("a").acquire().await.unwrap().release().await.unwrap();
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
async fn wrong_type_at_the_key() {
    let server = Server::start();
    let locks = server.locks().await;
    server.tell::<()>(&["LPUSH", "tenure:a", "x"]);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    let text = said(&error);
    assert!(
        matches!(error, Error::Store { .. })
            && text.contains("\"tenure:a\" holds something that is not a lock"),
        "{text}"
    );
    let error = locks.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
    assert!(matches!(locks.force_release("a").await.unwrap_err(), Error::Store { .. }));
    // Nobody can have it, so it is not shown as free.
    assert!(matches!(locks.holders("a").await.unwrap_err(), Error::Store { .. }));
    assert_eq!(server.tell::<u64>(&["LLEN", "tenure:a"]), 1);
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
    let server = Server::with(&["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]);
    let (error, text) = refusal(&server.tcp_url()).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("redis+cluster:"), "{text}");
}

#[tokio::test]
async fn a_full_server() {
    let server = Server::start();
    let locks = server.locks().await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.tell::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    let text = said(&error);
    assert!(matches!(error, Error::Store { .. }) && text.contains("no memory left"), "{text}");
    assert_eq!(server.tell::<u64>(&["EXISTS", "tenure:a"]), 0);
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
