//! Many keys.

use crate::{claim, granted, keys, server::Server};
use etcd_client::{Txn, TxnOp};
use tenure_core::{AttemptAll, Backend};
use tenure_etcd::EtcdBackend;

/// More than one page, and among keys of other programs.
#[tokio::test]
async fn list_takes_several_pages() {
    const MANY: usize = 1_300;
    const TOGETHER: usize = 100;
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (server.backend().await, server.eyes().await);
    let value = r#"{"mode":"exclusive","host":"web1","pid":1,"since":0}"#;
    for begin in (0..MANY).step_by(TOGETHER) {
        let keys = (begin..begin + TOGETHER)
            .map(|n| format!("tenure/many.{n:05}/{}", claim("a").id.as_uuid().simple()));
        let puts: Vec<_> = keys.map(|key| TxnOp::put(key, value, None)).collect();
        eyes.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    for key in ["tenure", "tenure/", "tenure/many", "tenure0", "tenure/%latches/many.1", "other/many.1/x"] {
        eyes.put(key, value, None).await.unwrap();
    }
    granted(&backend, &claim("many.00500.5")).await;
    let holders = backend.list("many.").await.unwrap();
    assert_eq!(holders.len(), MANY + 1);
    assert!(holders.is_sorted_by(|one, other| one.name < other.name));
    assert_eq!(backend.list("many.0001").await.unwrap().len(), 10);
    assert_eq!(backend.list("").await.unwrap().len(), MANY + 1);
    assert_eq!(backend.list("none").await.unwrap(), []);
}

#[tokio::test]
async fn empty_prefix_lists_all_keys_that_are_locks() {
    let Some(server) = Server::start() else { return };
    let backend = EtcdBackend::connect(server.options().prefix("")).await.unwrap();
    let mut eyes = server.eyes().await;
    granted(&backend, &claim("a")).await;
    eyes.put("alone", "", None).await.unwrap();
    assert_eq!(backend.list("").await.unwrap().len(), 1);
    assert_eq!(keys(&mut eyes, "a/").await.len(), 1);
}

/// A transaction has 128 operations at most.
#[tokio::test]
async fn several_names_are_acquired_together_or_apart() {
    let Some(server) = Server::start() else { return };
    let backend = server.backend().await;
    let claims = |count: usize| (0..count).map(|n| claim(&format!("{count}.{n:03}"))).collect::<Vec<_>>();
    assert!(matches!(backend.try_acquire_all(&claims(41)).await.unwrap(), AttemptAll::Apart));
    let all = claims(40);
    let AttemptAll::Granted(grants) = backend.try_acquire_all(&all).await.unwrap() else { panic!("busy") };
    assert!(grants.iter().all(|grant| grant.token == grants[0].token));
    let AttemptAll::Granted(again) = backend.try_acquire_all(&all).await.unwrap() else { panic!("busy") };
    assert_eq!(again[39].token, grants[39].token);
    assert!(matches!(backend.try_acquire_all(&claims(40)).await.unwrap(), AttemptAll::Busy));
    assert_eq!(backend.list("").await.unwrap().len(), 40);
}
