//! Who holds what, and whose it is.

use crate::{
    Scene, claim,
    modes::{granted, wait},
    server::ONE,
    try_grant,
};
use std::{
    error::Error as _,
    sync::Arc,
    time::{Duration, Instant},
};
use tenure_core::{Backend, Error, Locks, Mode};
use tenure_zk::ZkBackend;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

#[tokio::test]
async fn holders_are_told_with_what_they_said() {
    let Some(scene) = Scene::on(&ONE, "told").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.lock("a/b").label("nightly").acquire().await.unwrap();
    let holder = other.holders("a/b").await.unwrap().remove(0);
    assert_eq!((holder.claim, holder.token), (Some(guard.claim()), Some(guard.token())));
    assert_eq!(holder.info.label.as_deref(), Some("nightly"));
    assert_eq!(holder.info.pid, std::process::id());
    assert!(holder.since.is_some() && holder.age.is_some() && holder.left.is_none());
    let listed = other.list("a/").await.unwrap();
    assert_eq!((&listed[0].name, listed[0].claim, listed.len()), (&holder.name, holder.claim, 1));
    assert!(other.list("b").await.unwrap().is_empty());
    assert!(other.holders("a").await.unwrap().is_empty());
    guard.release().await.unwrap();
    assert!(other.holders("a/b").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_foreign_holder_is_told_too() {
    let Some(scene) = Scene::on(&ONE, "foreigner").await else { return };
    let locks = scene.locks().await;
    scene.keep("a").await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let base = format!("{}/_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-lock-", scene.path("a"));
    scene.eyes.create(&base, b"10.0.0.7", &options).await.unwrap();
    let holder = locks.holders("a").await.unwrap().remove(0);
    assert_eq!((holder.claim, holder.token), (None, None));
    assert!(holder.since.is_some());
    assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
    locks.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn those_who_wait_are_told_in_order_foreign_ones_too() {
    let Some(scene) = Scene::on(&ONE, "waiters").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    assert!(other.waiting("a").await.unwrap().is_empty());
    let guard = one.lock("a").acquire().await.unwrap();
    assert!(other.waiting("a").await.unwrap().is_empty());
    let reader = wait(&scene, "a", other.rw("a").read().label("reads"), 2).await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let base = format!("{}/_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-lock-", scene.path("a"));
    scene.eyes.create(&base, b"10.0.0.7", &options).await.unwrap();
    let told = one.waiting("a").await.unwrap();
    let who: Vec<_> = told.iter().map(|waiter| (waiter.info.label.as_deref(), waiter.mode)).collect();
    assert_eq!(who, [(Some("reads"), Mode::Shared), (None, Mode::Exclusive)]);
    assert!(told.iter().all(|waiter| waiter.since.is_some() && waiter.age.is_some()));
    guard.release().await.unwrap();
    let reader = granted(reader).await;
    assert_eq!((told[0].claim, told[1].claim), (Some(reader.claim()), None));
    let rest = one.waiting("a").await.unwrap();
    assert_eq!(rest.iter().map(|waiter| waiter.claim).collect::<Vec<_>>(), [None]);
    reader.release().await.unwrap();
    // The foreign client's turn has come.
    assert!(one.waiting("a").await.unwrap().is_empty());
}

#[tokio::test]
async fn only_the_same_user_changes_a_users_nodes() {
    let Some(scene) = Scene::on(&ONE, "users").await else { return };
    let mine = Locks::new(ZkBackend::connect(scene.options().digest("me", "secret")).await.unwrap());
    let guard = mine.lock("a").acquire().await.unwrap();
    let strange = scene.locks().await;
    assert_eq!(strange.holders("a").await.unwrap()[0].claim, Some(guard.claim()));
    for error in [
        strange.force_release("a").await.map(drop).unwrap_err(),
        strange.lock("a").try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Store { .. }), "{error:?}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains(&format!("no permission on {}", scene.path("a"))), "{source}");
    }
    assert!(guard.is_held());
    let again = Locks::new(ZkBackend::connect(scene.options().digest("me", "secret")).await.unwrap());
    assert_eq!(again.force_release("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lock_that_may_not_be_read_hides_no_other() {
    let Some(scene) = Scene::on(&ONE, "unreadable").await else { return };
    let locks = scene.locks().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    // Of an address that nobody here has.
    let acl = [Acl::new(Permission::ALL, AuthId::new("ip", "192.0.2.1"))];
    let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
    scene.eyes.create(&scene.path("b"), b"", &options).await.unwrap();
    assert!(matches!(locks.lock("b").try_acquire().await, Err(Error::Store { .. })), "it lets somebody in");
    let listed = locks.list("").await.unwrap();
    let listed: Vec<_> = listed.iter().map(|holder| (&*holder.name, holder.claim)).collect();
    assert_eq!(listed, [("a", Some(guard.claim())), ("b", None)]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_chroot_is_a_root_of_its_own() {
    let Some(scene) = Scene::on(&ONE, "chroot").await else { return };
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let chroot = &scene.prefix;
    scene.eyes.create(chroot, b"", &options).await.unwrap();
    let inside = scene.options().chroot(chroot).prefix("/");
    let inside = Locks::new(ZkBackend::connect(inside).await.unwrap());
    assert!(inside.store().ends_with(chroot.as_str()));
    let guard = inside.lock("zookeeper").acquire().await.unwrap();
    assert_eq!(scene.eyes.list_children(chroot).await.unwrap(), ["zookeeper"]);
    assert_eq!(inside.list("").await.unwrap()[0].claim, Some(guard.claim()));
    guard.release().await.unwrap();

    let root = Locks::new(ZkBackend::connect(scene.options().prefix("/")).await.unwrap());
    let guard = root.lock("zookeeper").acquire().await.unwrap();
    assert!(scene.eyes.list_children("/").await.unwrap().contains(&"%7Aookeeper".to_owned()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn closing_ends_the_session() {
    let Some(scene) = Scene::on(&ONE, "closing").await else { return };
    let backend = scene.backend().await;
    try_grant(&backend, &claim("a")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), backend.close()).await.unwrap();
    // Nobody released it, and the session's timeout is 30 s.
    let closed = Instant::now();
    scene.until_nodes("a", 0).await;
    assert!(closed.elapsed() < Duration::from_secs(15), "the session went on");
    backend.close().await;

    let locks = scene.locks().await;
    drop(locks.lock("a").acquire().await.unwrap());
    locks.close().await;
    assert!(scene.nodes("a").await.is_empty());
    locks.close().await;
}

#[tokio::test]
async fn closing_ends_no_session_that_another_client_uses() {
    let Some(scene) = Scene::on(&ONE, "closing-one").await else { return };
    let backend = scene.backend().await;
    goes_on(&scene, &Locks::new(backend.clone()), &Locks::new(backend)).await;
    // There are no clones of this one.
    let Some(scene) = Scene::on(&ONE, "closing-shared").await else { return };
    let backend = Arc::new(scene.backend().await);
    goes_on(&scene, &Locks::new(Arc::clone(&backend)), &Locks::new(backend)).await;
}

/// What one holds and waits for stays when the other closes.
async fn goes_on(scene: &Scene, one: &Locks, other: &Locks) {
    let first = scene.locks().await.lock("b").acquire().await.unwrap();
    let held = one.lock("a").acquire().await.unwrap();
    let waiting = wait(scene, "b", one.lock("b"), 2).await;
    other.lock("c").acquire().await.unwrap().release().await.unwrap();
    let before = [scene.node("a", 0).await, scene.node("b", 1).await];
    other.close().await;
    assert!(held.is_held(), "{:?}", held.loss());
    assert_eq!([scene.node("a", 0).await, scene.node("b", 1).await], before);
    first.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
    held.release().await.unwrap();
    one.close().await;
}

#[tokio::test]
async fn closing_cuts_off_no_release_of_another_client() {
    let Some(scene) = Scene::on(&ONE, "closing-release").await else { return };
    let backend = scene.backend().await;
    let (one, other) = (Locks::new(backend.clone()), Locks::new(backend));
    let held = one.lock("a").acquire().await.unwrap();
    let (released, ()) = tokio::join!(held.release(), other.close());
    released.unwrap();
    one.close().await;
}

#[tokio::test]
async fn closing_cuts_off_no_forced_release_of_another_client() {
    let Some(scene) = Scene::on(&ONE, "closing-force").await else { return };
    let backend = scene.backend().await;
    let (one, other) = (Locks::new(backend.clone()), Locks::new(backend));
    let _held = scene.locks().await.lock("a").acquire().await.unwrap();
    let (released, ()) = tokio::join!(one.force_release("a"), other.close());
    assert_eq!(released.unwrap().len(), 1);
    one.close().await;
}
