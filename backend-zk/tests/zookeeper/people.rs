//! Who holds what, and what is said when something is wrong.

use crate::{Scene, server};
use std::{error::Error as _, time::Duration};
use tenure_core::{Error, Locks};
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, CreateMode};

#[tokio::test]
async fn holders_are_told_with_what_they_said() {
    let Some(scene) = scene("told").await else { return };
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
    let Some(scene) = scene("foreigner").await else { return };
    let locks = scene.locks().await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
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
async fn only_the_same_user_changes_a_users_nodes() {
    let Some(scene) = scene("users").await else { return };
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
        assert!(source.contains("no permission on /users/a"), "{source}");
    }
    assert!(guard.is_held());
    let again = Locks::new(ZkBackend::connect(scene.options().digest("me", "secret")).await.unwrap());
    assert_eq!(again.force_release("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let Some(scene) = scene("wrong").await else { return };
    let error =
        ZkBackend::connect(scene.options().chroot("/nowhere").digest("me", "secret")).await.unwrap_err();
    let said = format!("{error} {}", error.source().unwrap());
    assert!(
        matches!(error, Error::Store { .. }) && said.contains("chroot /nowhere does not exist"),
        "{said}"
    );
    assert!(!said.contains("secret") && !format!("{error:?}").contains("secret"), "{error:?}");

    let nobody = ZkOptions::new([format!("127.0.0.1:{}", server::free_port())]);
    let error = ZkBackend::connect(nobody).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");

    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    scene.eyes.create("/wrong", b"", &options).await.unwrap();
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    scene.eyes.create("/wrong/a", b"another's", &options).await.unwrap();
    let error = scene.locks().await.lock("a").try_acquire().await.unwrap_err();
    let source = error.source().unwrap().to_string();
    assert!(source.contains("/wrong/a is another client's ephemeral node"), "{source}");
}

#[tokio::test]
async fn a_chroot_is_a_root_of_its_own() {
    let Some(scene) = scene("chroot").await else { return };
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    scene.eyes.create("/chrooted", b"", &options).await.unwrap();
    let inside = scene.options().chroot("/chrooted").prefix("/");
    let inside = Locks::new(ZkBackend::connect(inside).await.unwrap());
    assert!(inside.store().ends_with("/chrooted"));
    let guard = inside.lock("zookeeper").acquire().await.unwrap();
    assert_eq!(scene.eyes.list_children("/chrooted").await.unwrap(), ["zookeeper"]);
    assert_eq!(inside.list("").await.unwrap()[0].claim, Some(guard.claim()));
    guard.release().await.unwrap();

    let root = Locks::new(ZkBackend::connect(scene.options().prefix("/")).await.unwrap());
    let guard = root.lock("zookeeper").acquire().await.unwrap();
    assert!(scene.eyes.list_children("/").await.unwrap().contains(&"%7Aookeeper".to_owned()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn closing_ends_the_session() {
    let Some(scene) = scene("closing").await else { return };
    let locks = scene.locks().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let (_, stat) = scene.eyes.get_data(&scene.node("a", 0).await).await.unwrap();
    let session = format!("0x{:x}", stat.ephemeral_owner);
    assert!(server::shared().command("cons").unwrap().contains(&session));
    drop(guard);
    tokio::time::timeout(Duration::from_secs(10), locks.close()).await.unwrap();
    assert!(!server::shared().command("cons").unwrap().contains(&session));
    locks.close().await;
    assert!(scene.nodes("a").await.is_empty());
}

async fn scene(test: &str) -> Option<Scene> {
    if !server::available() {
        return None;
    }
    Some(Scene::on(server::shared(), test).await)
}
