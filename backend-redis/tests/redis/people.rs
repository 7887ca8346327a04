//! Who holds what.

use crate::{LEASE, claim, grant, server::Server};
use std::sync::Arc;
use tenure_core::{Backend, Claim, HolderInfo, Name};
use tenure_redis::RedisBackend;

#[tokio::test]
async fn holders_are_told_with_what_is_known() {
    let server = Server::start();
    let backend = server.backend().await;
    let name = Name::new("orders/42").unwrap();
    assert_eq!(backend.holders(&name).await.unwrap(), []);
    let info = HolderInfo { label: Some("nightly  backup é".into()), host: "some host".into(), pid: 42 };
    let claim = Claim { holder: Arc::new(info), ..claim("orders/42", LEASE) };
    let held = grant(&backend, &claim).await;
    let [seen] = &backend.holders(&name).await.unwrap()[..] else { panic!("one holder") };
    assert_eq!((seen.claim, seen.token), (Some(claim.id), Some(held.token)));
    assert_eq!(seen.info.label.as_deref(), Some("nightly  backup é"));
    assert_eq!((seen.info.host.as_str(), seen.info.pid), ("some_host", 42));
    backend.release(&held).await.unwrap();
    server.tell::<()>(&["SET", "tenure:orders/42", "foreign"]);
    let [seen] = &backend.holders(&name).await.unwrap()[..] else { panic!("one holder") };
    assert_eq!((seen.claim, seen.token, seen.left), (None, None, None));
}

#[tokio::test]
async fn a_list_is_of_a_prefix_and_in_order() {
    let server = Server::start();
    let backend = server.backend().await;
    let names = ["a*1", "a*2", "ab", "a[b]", "a?", "a\\", "b", "a{x}y", "é", "A"];
    for name in names {
        grant(&backend, &claim(name, LEASE)).await;
    }
    for number in 0..700 {
        server.tell::<()>(&["SET", &format!("tenure:many/{number:03}"), "foreign"]);
    }
    server.tell::<()>(&["LPUSH", "tenure:no lock", "x"]);
    server.tell::<()>(&["SET", "other:a", "x"]);
    let list = async |prefix: &str| {
        let holders = backend.list(prefix).await.unwrap();
        holders.into_iter().map(|holder| holder.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("a").await, ["a*1", "a*2", "a?", "a[b]", "a\\", "ab", "a{x}y"]);
    assert_eq!(list("a*").await, ["a*1", "a*2"]);
    assert_eq!(list("a[b").await, ["a[b]"]);
    assert_eq!(list("a?").await, ["a?"]);
    assert_eq!(list("a\\").await, ["a\\"]);
    assert_eq!(list("none").await, [""; 0]);
    let many = list("many/").await;
    assert!(many.len() == 700 && many.is_sorted(), "{}", many.len());
    assert_eq!(list("").await.len(), 700 + names.len());
}

#[tokio::test]
async fn without_a_prefix_only_what_looks_like_a_lock_is_listed() {
    let server = Server::start();
    let backend = RedisBackend::connect(server.options().prefix("")).await.unwrap();
    grant(&backend, &claim("ours", LEASE)).await;
    server.tell::<()>(&["SET", "foreign", "x", "PX", "10000"]);
    server.tell::<()>(&["SET", "data", "x"]);
    let listed = backend.list("").await.unwrap();
    assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["foreign", "ours"]);
}
