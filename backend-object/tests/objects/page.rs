//! Tenure writes and reads its objects as the page on formats says.

use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use std::sync::Arc;
use tenure_conformance::format::{Page, Scene, token_ahead};
use tenure_object::{ObjectBackend, ObjectOptions};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");
const BEGIN: &str = "tenure/";

async fn backend(store: &Arc<InMemory>) -> ObjectBackend {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    ObjectBackend::connect_with(store, ObjectOptions::new("locks")).await.unwrap()
}

/// The objects below the prefix that have a text, each with it.
async fn entries(store: &InMemory) -> Vec<String> {
    let mut paths: Vec<Path> = store.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
    paths.sort();
    let mut entries = Vec::new();
    for path in paths {
        let content = store.get(&path).await.unwrap().bytes().await.unwrap();
        let content = String::from_utf8(content.to_vec()).unwrap();
        let key = path.as_ref().strip_prefix(BEGIN).unwrap().replace("=20", " ");
        if let Some((text, nonce)) = content.split_once('\n') {
            assert!(nonce.len() == 32 && nonce.chars().all(|c| c.is_ascii_hexdigit()), "{content}");
            entries.push(format!("{key}: {text}"));
        }
    }
    entries
}

#[tokio::test]
async fn records_are_written_as_the_page_says() {
    let store = Arc::new(InMemory::new());
    let client = backend(&store).await;
    let scene = Scene::play(&client, Arc::new(client.clone())).await.unwrap();
    Page::of(PAGE, "Record stores").check(&scene, &entries(&store).await).unwrap();
}

#[tokio::test]
async fn records_of_the_page_are_read() {
    let store = Arc::new(InMemory::new());
    let client = backend(&store).await;
    let entries = Page::of(PAGE, "Record stores").entries(token_ahead()).unwrap();
    for line in &entries.lines {
        let (key, text) = line.split_once(": ").unwrap();
        let path = Path::from(format!("{BEGIN}{}", key.replace(' ', "=20")));
        store.put(&path, format!("{text}\n").into()).await.unwrap();
    }
    entries.read(&client).await.unwrap();
}
