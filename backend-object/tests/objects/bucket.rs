//! The objects, as others made them, or as a store keeps them that cannot keep locks.

use crate::{RELEASED, claim, counted::Counted, granted};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{Backend, Error};
use tenure_object::{ObjectBackend, ObjectOptions};

async fn backend(store: &Arc<InMemory>) -> ObjectBackend {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    ObjectBackend::connect_with(store, ObjectOptions::new("locks").path("team")).await.unwrap()
}

#[tokio::test]
async fn store_without_conditions_is_refused() {
    let store = Arc::new(Counted::without_conditions());
    let refused = ObjectBackend::connect_with(store, ObjectOptions::new("locks")).await.unwrap_err();
    assert!(matches!(refused, Error::Store { .. }), "{refused:?}");
    assert!(refused.to_string().contains("ignores the conditions"), "{refused}");
}

/// The object that it would read then has the date of an earlier probe.
#[tokio::test(start_paused = true)]
async fn probe_that_was_not_put_tells_no_time() {
    let store = Arc::new(Counted::new());
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let backend = ObjectBackend::connect_with(objects, ObjectOptions::new("locks")).await.unwrap();
    store.find_conflicts();
    // Until then, the reading of the start is new enough.
    pause::keep(Duration::from_mins(1)).await;
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("conflict"), "{error}");
}

#[tokio::test]
async fn unreadable_object_hides_no_other() {
    let store = Arc::new(InMemory::new());
    let backend = backend(&store).await;
    granted(&backend, &claim("a")).await;
    let damaged = [&[0xff; 100][..], b"a text by hand, longer than a nonce, without a line"];
    for (name, bytes) in ["b", "c"].into_iter().zip(damaged) {
        let path = Path::from(format!("team/tenure/lock/{name}"));
        store.put(&path, bytes.to_vec().into()).await.unwrap();
        backend.try_acquire(&claim(name)).await.unwrap_err();
    }
    let listed = backend.list("").await.unwrap();
    assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[tokio::test]
async fn names_with_empty_segments_are_listed_by_prefix() {
    let backend = backend(&Arc::new(InMemory::new())).await;
    for name in ["a", "a/", "a//b", "a/b", "a/../c", "ab"] {
        granted(&backend, &claim(name)).await;
    }
    for (prefix, expected) in
        [("a/", &["a/", "a/../c", "a//b", "a/b"][..]), ("a//", &["a//b"]), ("a/b", &["a/b"])]
    {
        let listed = backend.list(prefix).await.unwrap();
        assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), expected, "{prefix}");
    }
}

#[tokio::test]
async fn deleted_object_is_a_free_name() {
    let store = Arc::new(InMemory::new());
    let backend = backend(&store).await;
    let grant = granted(&backend, &claim("a")).await;
    store.delete(&Path::from("team/tenure/lock/a")).await.unwrap();
    let next = granted(&backend, &claim("a")).await;
    assert!(grant.token < next.token);
    assert_eq!(backend.release(&next).await.unwrap(), RELEASED);
}
