//! Users, and what they may do.

use crate::{RELEASED, claim, granted, server::Server};
use tenure_core::{Backend, Error};

/// The permissions of the page, without this subject.
fn lines(without: &str) -> String {
    let page = include_str!("../../../docs/nats.md");
    let permissions = page.split("```\n").find(|block| block.starts_with("publish:")).unwrap();
    let permissions = permissions.replace(&format!("{without:?},"), "");
    format!("authorization {{ users: [{{ user: app, password: b, permissions: {{\n{permissions}\n}} }}] }}")
}

#[tokio::test]
async fn documented_permissions_suffice() {
    let Some(server) = Server::with(&lines("nothing")).await else { return };
    let open = async || tenure_nats::NatsBackend::connect(server.options().user("app", "b")).await.unwrap();
    let (one, other) = (open().await, open().await);
    let grant = granted(&one, &claim("a")).await;
    assert_eq!(other.list("").await.unwrap().len(), 1);
    let waiting = tokio::spawn(async move { other.acquire(&claim("a")).await.unwrap() });
    assert_eq!(one.release(&grant).await.unwrap(), RELEASED);
    crate::in_time("the waiter", waiting).await.unwrap();
}

#[tokio::test]
async fn missing_right_is_named() {
    let Some(server) = Server::with(&lines("$JS.API.STREAM.MSG.GET.KV_locks")).await else { return };
    let app = tenure_nats::NatsBackend::connect(server.options().user("app", "b")).await.unwrap();
    let error = app.try_acquire(&claim("a")).await.unwrap_err();
    let said = error.to_string();
    assert!(!error.is_unavailable() && said.contains("STREAM.MSG.GET"), "{said}");
}

#[tokio::test]
async fn refused_user_is_an_error_without_the_password() {
    let Some(server) = Server::with(&lines("nothing")).await else { return };
    let error = server.refuses(server.options().user("app", "zq-secret")).await;
    let said = format!("{error} {error:?}");
    assert!(matches!(error, Error::Store { .. }) && said.contains("authorization"), "{said}");
    assert!(!said.contains("zq-secret"), "{said}");
}

#[tokio::test]
async fn server_without_jetstream_is_told_from_a_dead_one() {
    let Some(server) = Server::without_jetstream().await else { return };
    let said = server.refuses(server.options()).await.to_string();
    assert!(said.contains("JetStream does not answer; if it is off"), "{said}");
    let dead = tenure_nats::NatsOptions::new(["127.0.0.1:1"], "locks");
    let said = server.refuses(dead).await.to_string();
    assert!(said.contains("no connection: Connection refused"), "{said}");
}
