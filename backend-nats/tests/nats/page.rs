//! Tenure writes and reads its keys as the page on formats says.

use crate::server::Server;
use async_nats::jetstream::stream::Stream;
use futures_util::TryStreamExt;
use std::sync::Arc;
use tenure_conformance::format::{Page, Scene, token_ahead};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");
const BEGIN: &str = "$KV.locks.tenure.";

/// The keys below the prefix, each with its value.
async fn entries(stream: &Stream) -> Vec<String> {
    let info = stream.info_with_subjects(format!("{BEGIN}>")).await.unwrap();
    let mut subjects: Vec<_> = info.map_ok(|(subject, _)| subject).try_collect().await.unwrap();
    subjects.sort();
    let mut entries = Vec::new();
    for subject in subjects {
        let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        let text = String::from_utf8(message.payload.to_vec()).unwrap();
        entries.push(format!("{}: {text}", subject.strip_prefix(BEGIN).unwrap().replace("=20", " ")));
    }
    entries
}

#[tokio::test]
async fn records_are_written_as_the_page_says() {
    let Some(server) = Server::start().await else { return };
    // One client, whose times rise from request to request.
    let client = server.backend().await;
    let scene = Scene::play(&client, Arc::new(client.clone())).await.unwrap();
    let found = entries(&server.eyes().await.get_stream("KV_locks").await.unwrap()).await;
    Page::of(PAGE, "Record stores").check(&scene, &found).unwrap();
}

#[tokio::test]
async fn records_of_the_page_are_read() {
    let Some(server) = Server::start().await else { return };
    let (client, eyes) = (server.backend().await, server.eyes().await);
    let entries = Page::of(PAGE, "Record stores").entries(token_ahead()).unwrap();
    for line in &entries.lines {
        let (key, text) = line.split_once(": ").unwrap();
        let subject = format!("{BEGIN}{}", key.replace(' ', "=20"));
        eyes.publish(subject, text.to_owned().into()).await.unwrap().await.unwrap();
    }
    entries.read(&client).await.unwrap();
}
