//! Tenure writes and reads its keys as the page on formats says.

use crate::{claim_in, server::Server};
use std::sync::Arc;
use tenure_conformance::{
    format::{Page, Scene, token_ahead},
    pause,
};
use tenure_core::{Backend, Mode};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");

/// A key as the command that makes it; nothing if it has expired. Where it expires, `PX` is the lease, or a day for what is
/// remembered.
fn command(server: &Server, key: &str) -> Option<String> {
    let kind: String = server.tell(&["TYPE", key]);
    let left: i64 = server.tell(&["PTTL", key]);
    let quoted = |words: Vec<String>| format!(" '{}'", words.join("' '"));
    let command = match &*kind {
        "string" => {
            let expiry = match left {
                ..=600_000 => 600_000,
                // By a machine that stalls.
                86_000_000..=86_400_000 => 86_400_000,
                other => other,
            };
            let value = server.tell::<Option<String>>(&["GET", key])?;
            format!("SET{} PX {expiry}", quoted(vec![key.to_owned(), value]))
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
        _ => return None,
    };
    // A latch is there until it is removed.
    assert_eq!(left == -1, key.ends_with("}l"), "{key:?} expires in {left} ms");
    Some(command)
}

/// All keys. The waiter's expire if it does not show up for seconds, which happens on a machine that stalls.
async fn commands(server: &Server) -> Vec<String> {
    let mut commands = Vec::new();
    for _ in 0..1000 {
        let mut keys: Vec<String> = server.tell(&["KEYS", "*"]);
        keys.sort();
        commands = keys.iter().filter_map(|key| command(server, key)).collect();
        if PARTS_OF_THE_WAITER.iter().all(|begin| commands.iter().any(|command| command.starts_with(begin))) {
            break;
        }
        pause::look_again().await;
    }
    commands
}

/// The queue and the description in it.
const PARTS_OF_THE_WAITER: [&str; 2] = ["ZADD 'tenure:queue\u{1f}", "HSET 'tenure:queue\u{1f}"];

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_written_as_the_page_says() {
    let server = Server::start();
    let [client, other] = [server.fair().await, server.fair().await];
    let scene = Scene::play(&client, Arc::new(other)).await.unwrap();
    Page::of(PAGE, "Redis").check(&scene, &commands(&server).await).unwrap();
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
    let (key, later) = ("tenure:a\u{1f}{tenure:a}r", "format 2 fields of a later version");
    for client in server.both().await {
        for mode in [Mode::Exclusive, Mode::Shared] {
            server.tell::<()>(&["SET", key, later]);
            let claim = claim_in(mode, "a");
            let error = client.try_acquire(&claim).await.unwrap_err();
            assert!(!error.is_unavailable() && format!("{error:?}").contains("has format 2"), "{error:?}");
            assert_eq!(server.tell::<Option<String>>(&["GET", "tenure:a"]), None);
            client.withdraw(&claim).await.unwrap();
            assert!(client.force_release(&claim.name).await.unwrap().is_empty());
            server.tell::<()>(&["SET", "tenure:a", "theirs", "PX", "600000"]);
            let error = client.force_release(&claim.name).await.unwrap_err();
            assert!(format!("{error:?}").contains("has format 2"), "{error:?}");
            assert_eq!(server.tell::<String>(&["GET", "tenure:a"]), "theirs");
            assert_eq!(server.tell::<String>(&["GET", key]), later);
            server.tell::<()>(&["DEL", "tenure:a"]);
        }
    }
}
