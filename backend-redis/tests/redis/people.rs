//! Lists of locks.

use crate::{claim, granted, server::Server};
use tenure_core::Backend;
use tenure_redis::RedisBackend;

#[tokio::test]
async fn a_list_is_of_a_prefix_and_in_order() {
    let server = Server::start();
    let backend = server.backend().await;
    granted(&backend, &claim("b")).await;
    for number in 0..700 {
        server.tell::<()>(&["SET", &format!("tenure:many/{number:03}"), "foreign"]);
    }
    server.tell::<()>(&["LPUSH", "tenure:no lock", "x"]);
    server.tell::<()>(&["SET", "other:a", "x"]);
    let list = async |prefix: &str| {
        let holders = backend.list(prefix).await.unwrap();
        holders.into_iter().map(|holder| holder.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("b").await, ["b"]);
    assert_eq!(list("none").await, [""; 0]);
    let many = list("many/").await;
    assert!(many.len() == 700 && many.is_sorted(), "{}", many.len());
    assert_eq!(list("").await.len(), 701);
}

#[tokio::test]
async fn without_a_prefix_only_what_looks_like_a_lock_is_listed() {
    let server = Server::start();
    let backend = RedisBackend::connect(server.options().prefix("")).await.unwrap();
    granted(&backend, &claim("ours")).await;
    server.tell::<()>(&["SET", "foreign", "x", "PX", "10000"]);
    server.tell::<()>(&["SET", "data", "x"]);
    let listed = backend.list("").await.unwrap();
    assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["foreign", "ours"]);
}
