//! What stands in Redis is what the page says, and this build reads it.

use crate::{LEASE, claim, server::Server};
use std::sync::Arc;
use tenure_conformance::format::{Page, Scene, token_ahead};
use tenure_core::Backend;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");

/// A key as the command that makes it. Where it expires, `PX` is the lease, or a day for what is remembered.
fn command(server: &Server, key: &str) -> String {
    let kind: String = server.tell(&["TYPE", key]);
    let quoted = |words: Vec<String>| format!(" '{}'", words.join("' '"));
    match &*kind {
        "string" => {
            let left: i64 = server.tell(&["PTTL", key]);
            let expiry = match left {
                ..0 => "",
                0..=600_000 => " PX 600000",
                _ => " PX 86400000",
            };
            format!("SET{}{expiry}", quoted(vec![key.to_owned(), server.tell(&["GET", key])]))
        }
        "hash" => {
            let mut fields: Vec<(String, String)> = server.tell(&["HGETALL", key]);
            fields.sort();
            let fields = fields.into_iter().flat_map(|(field, value)| [field, value]);
            format!("HSET{}", quoted([key.to_owned()].into_iter().chain(fields).collect()))
        }
        "zset" => {
            let members: Vec<(String, String)> = server.tell(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
            let members = members.into_iter().flat_map(|(member, score)| [score, member]);
            format!("ZADD{}", quoted([key.to_owned()].into_iter().chain(members).collect()))
        }
        _ => panic!("{key:?} is a {kind}"),
    }
}

#[tokio::test]
async fn keys_are_written_as_the_page_says() {
    let server = Server::start();
    let [client, other] = [server.fair().await, server.fair().await];
    let scene = Scene::play(&client, Arc::new(other)).await.unwrap();
    let mut keys: Vec<String> = server.tell(&["KEYS", "*"]);
    keys.sort();
    let commands: Vec<_> = keys.iter().map(|key| command(&server, key)).collect();
    Page::of(PAGE, "Redis").check(&scene, &commands).unwrap();
}

#[tokio::test]
async fn keys_of_the_page_are_read() {
    for fair in [false, true] {
        let server = Server::start();
        let entries = Page::of(PAGE, "Redis").entries(token_ahead()).unwrap();
        for line in &entries.lines {
            // Every other part is quoted.
            let parts = line.split('\'').enumerate();
            let words: Vec<&str> = parts
                .flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                })
                .collect();
            server.tell::<redis::Value>(&words);
        }
        let client = if fair { server.fair().await } else { server.backend().await };
        entries.read(&client).await.unwrap();
    }
}

#[tokio::test]
async fn later_format_is_named_and_lets_nobody_in() {
    let server = Server::start();
    for client in server.both().await {
        server.tell::<()>(&["SET", "tenure:a\u{1f}{tenure:a}r", "format 2 whatever follows"]);
        let error = client.try_acquire(&claim("a", LEASE)).await.unwrap_err();
        assert!(!error.is_unavailable() && format!("{error:?}").contains("has format 2"), "{error:?}");
        assert_eq!(server.tell::<Option<String>>(&["GET", "tenure:a"]), None);
    }
}
