//! Tenure writes and reads its keys as the page on formats says.

use crate::{keys, server::Server};
use etcd_client::PutOptions;
use std::sync::Arc;
use tenure_conformance::format::{Page, Scene};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");
/// Tokens are numbers of the cluster's own, and these are below them.
const NO_TOKEN: u64 = 0;
const ON_LEASE: &str = "--lease=SESSION";

#[tokio::test]
async fn keys_are_written_as_the_page_says() {
    let Some(server) = Server::start() else { return };
    let [client, other] = [server.backend().await, server.backend().await];
    let scene = Scene::play(&client, Arc::new(other)).await.unwrap();
    let found = keys(&mut server.eyes().await, "tenure/").await;
    let entry = |key: &etcd_client::KeyValue| {
        let lease = if key.lease() == 0 { String::new() } else { format!("{ON_LEASE} ") };
        let (key, value) = (key.key_str().unwrap(), key.value_str().unwrap());
        format!("put {lease}{key} {value}").trim_end().to_owned()
    };
    let entries: Vec<_> = found.iter().map(entry).collect();
    Page::of(PAGE, "etcd").check(&scene, &entries).unwrap();
}

#[tokio::test]
async fn keys_of_the_page_are_read() {
    let Some(server) = Server::start() else { return };
    let mut eyes = server.eyes().await;
    let lease = eyes.lease_grant(600, None).await.unwrap().id();
    let entries = Page::of(PAGE, "etcd").entries(NO_TOKEN).unwrap();
    for line in &entries.lines {
        let line = line.strip_prefix("put ").unwrap();
        let (on, rest) = line.strip_prefix(ON_LEASE).map_or((0, line), |rest| (lease, rest.trim_start()));
        let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
        eyes.put(key, value, Some(PutOptions::new().with_lease(on))).await.unwrap();
    }
    entries.read(&server.backend().await).await.unwrap();
}
