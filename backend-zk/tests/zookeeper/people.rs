//! Whose nodes they are, and when a client leaves.

use crate::{LONG_SESSION, Scene, claim, in_time, server::ONE, try_grant};
use tenure_core::{Backend, Error, Guard, Locks};
use tenure_testbed::claims::said;
use tenure_zk::ZkBackend;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

/// Whether this client of another user sees who holds the lock `a`, and changes nothing.
pub(crate) async fn may_only_look(strange: &Locks, guard: &Guard, path: &str) {
    assert_eq!(strange.holders("a").await.unwrap()[0].claim, Some(guard.claim()));
    for error in [
        strange.force_release("a").await.map(drop).unwrap_err(),
        strange.lock("a").try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Store { .. }), "{error:?}");
        assert!(said(&error).contains(&format!("no permission on {path}")), "{error:?}");
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn only_the_same_user_changes_a_users_nodes() {
    let Some(scene) = Scene::on(&ONE, "users").await else { return };
    let mine = Locks::new(ZkBackend::connect(scene.options().digest("me", "secret")).await.unwrap());
    let guard = mine.lock("a").acquire().await.unwrap();
    let strange = scene.locks().await;
    may_only_look(&strange, &guard, &scene.path("a")).await;
    let again = Locks::new(ZkBackend::connect(scene.options().digest("me", "secret")).await.unwrap());
    assert_eq!(again.force_release("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lock_that_may_not_be_read_hides_no_other() {
    let Some(scene) = Scene::on(&ONE, "unreadable").await else { return };
    let locks = scene.locks().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    // No client here has this address.
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
    let backend = ZkBackend::connect(scene.options().session_timeout(LONG_SESSION)).await.unwrap();
    try_grant(&backend, &claim("a")).await.unwrap();
    in_time("closing", backend.close()).await;
    // It was not released, and would outlast this test.
    scene.until_nodes("a", 0).await;
    backend.close().await;
}

#[tokio::test]
async fn closing_cuts_off_no_release_of_another_client() {
    let Some(scene) = Scene::on(&ONE, "closing-release").await else { return };
    for forced in [false, true] {
        let backend = scene.backend().await;
        let (one, other) = (Locks::new(backend.clone()), Locks::new(backend));
        if forced {
            let _held = scene.locks().await.lock("a").acquire().await.unwrap();
            let (released, ()) = tokio::join!(one.force_release("a"), other.close());
            assert_eq!(released.unwrap().len(), 1);
        } else {
            let held = one.lock("a").acquire().await.unwrap();
            let (released, ()) = tokio::join!(held.release(), other.close());
            released.unwrap();
        }
        one.close().await;
    }
}
