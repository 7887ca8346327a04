//! Errors, as users read them.

use crate::{HANG, Scene, in_time, server::ONE};
use std::time::Duration;
use tenure_core::{Error, Locks};
use tenure_testbed::{claims::said, free_port};
use tenure_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

const PERSISTENT: zookeeper_client::CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: zookeeper_client::CreateOptions<'static> =
    CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// The error of an attempt to take the lock `a`, which a retry would not help.
async fn refusal(options: ZkOptions) -> String {
    let locks = Locks::new(ZkBackend::connect(options).await.unwrap());
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(&error, Error::Store { .. }) && !error.is_retryable(), "{error:?}");
    said(&error)
}

#[tokio::test]
async fn no_server() {
    let hosts = [(); 2].map(|()| format!("127.0.0.1:{}", free_port().unwrap()));
    let options = ZkOptions::new(&hosts).connect_timeout(HANG * 2);
    let error = in_time("a refusal", ZkBackend::connect(options)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for host in &hosts {
        assert!(said(&error).contains(&format!("{host} cannot be reached (Connection refused")), "{error:?}");
    }
}

/// Something listens there, and says nothing.
#[tokio::test]
async fn a_silent_server() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = silent.local_addr().unwrap().to_string();
    let options = ZkOptions::new([&host]).connect_timeout(Duration::from_millis(500));
    let error = in_time("a refusal", ZkBackend::connect(options)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(said(&error).contains(&format!("{host} does not answer")), "{error:?}");
}

#[tokio::test]
async fn a_chroot_that_does_not_exist() {
    let Some(scene) = Scene::on(&ONE, "chroot").await else { return };
    let options = scene.options().chroot("/nowhere").digest("me", "secret");
    let error = ZkBackend::connect(options).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    assert!(said(&error).contains("chroot /nowhere does not exist; create it"), "{error:?}");
    assert!(!format!("{error:?} {error:#?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn no_permission_on_the_prefix() {
    let Some(scene) = Scene::on(&ONE, "forbidden").await else { return };
    let owner = Client::connector().with_auth("digest", b"owner:secret");
    let owner = owner.connect(&scene.hosts[0]).await.unwrap();
    let mut acl = Acls::creator_all().to_vec();
    acl.push(Acl::new(Permission::READ, AuthId::anyone()));
    let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
    owner.create(&scene.prefix, b"", &options).await.unwrap();
    let said = refusal(scene.options()).await;
    assert!(said.contains(&format!("no permission on {}", scene.path("a"))), "{said}");
    let said = refusal(scene.options().prefix(format!("{}/deeper", scene.prefix))).await;
    assert!(said.contains(&format!("no permission on {}/deeper", scene.prefix)), "{said}");
}

#[tokio::test]
async fn another_clients_node_in_the_way() {
    let Some(scene) = Scene::on(&ONE, "way").await else { return };
    scene.eyes.create(&scene.prefix, b"", &PERSISTENT).await.unwrap();
    scene.eyes.create(&scene.path("a"), b"another's", &EPHEMERAL).await.unwrap();
    let said = refusal(scene.options()).await;
    assert!(
        said.contains(&format!("{}, or the node above it, is another client's ephemeral", scene.path("a"))),
        "{said}"
    );
    // One that is the prefix.
    let said = refusal(scene.options().prefix(scene.path("a"))).await;
    assert!(said.contains("or the node above it, is another client's ephemeral node"), "{said}");
    // Any persistent node is a lock's node, and a node below it without a number does not contend.
    scene.eyes.create(&scene.path("b"), b"another's", &PERSISTENT).await.unwrap();
    scene.eyes.create(&format!("{}/settings", scene.path("b")), b"", &PERSISTENT).await.unwrap();
    let guard = scene.locks().await.lock("b").try_acquire().await.unwrap();
    guard.unwrap().release().await.unwrap();
}
