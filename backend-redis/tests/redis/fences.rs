//! Keys of users that refuse stale holders.

use crate::server::Server;
use tenure_core::Token;
use tenure_redis::{Fence, FenceError};

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

async fn connection(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, FenceError>, than: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(&error, FenceError::Refused { greatest, .. } if greatest == than), "{error:?}");
    assert!(error.to_string().contains("later token"), "{error}");
}

#[tokio::test]
async fn the_overtaken_is_refused_and_writes_nothing() {
    let server = Server::start();
    let mut connection = connection(&server).await;
    let fence = Fence::new("order:fence");
    fence.set(&mut connection, token(8), "order", "by 8").await.unwrap();
    fence.set(&mut connection, token(8), "order", "by 8 again").await.unwrap();
    refused(fence.set(&mut connection, token(7), "order", "by 7").await, "8");
    assert_eq!(server.tell::<String>(&["GET", "order"]), "by 8 again");
    fence.raise(&mut connection, token(9)).await.unwrap();
    refused(fence.raise(&mut connection, token(8)).await, "9");
    // Not by the first digit, and not by a rounded number.
    fence.set(&mut connection, token(10), "order", "by 10").await.unwrap();
    refused(fence.set(&mut connection, token(9), "order", "by 9").await, "10");
    let last = Token::MAX.get();
    fence.raise(&mut connection, token(last)).await.unwrap();
    refused(fence.raise(&mut connection, token(last - 1)).await, &last.to_string());
    assert_eq!(server.tell::<String>(&["GET", "order"]), "by 10");
}

#[tokio::test]
async fn a_script_has_its_own_keys_and_arguments() {
    let server = Server::start();
    let mut connection = connection(&server).await;
    let fence = Fence::new("order:fence");
    let script = "return {#KEYS, KEYS[1], #ARGV, redis.call('HINCRBY', KEYS[2], ARGV[1], ARGV[2])}";
    let answer: (u32, String, u32, i64) =
        fence.run(&mut connection, token(3), script, &["one", "counts"], &["sent", "5"]).await.unwrap();
    assert_eq!(answer, (2, "one".to_owned(), 2, 5));
    let late = fence.run::<()>(&mut connection, token(2), script, &["one", "counts"], &["sent", "5"]).await;
    refused(late, "3");
    assert_eq!(server.tell::<String>(&["HGET", "counts", "sent"]), "5");
}

#[tokio::test]
async fn a_key_that_is_no_fence_lets_nobody_through() {
    let server = Server::start();
    let mut connection = connection(&server).await;
    let fence = Fence::new("order:fence");
    for foreign in ["", "0", "-1", "abc", "1e3", "12 "] {
        server.tell::<()>(&["SET", "order:fence", foreign]);
        let error = fence.set(&mut connection, token(9), "order", "by 9").await.unwrap_err();
        assert!(matches!(error, FenceError::Redis(_)), "{foreign:?}: {error:?}");
        assert!(error.to_string().contains("order:fence"), "{error}");
    }
    server.tell::<()>(&["DEL", "order:fence"]);
    server.tell::<()>(&["LPUSH", "order:fence", "1"]);
    let error = fence.set(&mut connection, token(9), "order", "by 9").await.unwrap_err();
    assert!(matches!(error, FenceError::Redis(_)), "{error:?}");
    assert_eq!(server.tell::<Option<String>>(&["GET", "order"]), None);
}
