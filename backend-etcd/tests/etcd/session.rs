//! The lease, and the keys on it.

use crate::{RELEASED, claim, granted, in_time, is_busy, keys, name, server::Server, until, waits};
use etcd_client::{AlarmAction, AlarmType, CompactionOptions, PutOptions};
use std::time::Duration;
use tenure_core::{Backend, Grant, Locks, LossCause, Release, Standing};
use tenure_etcd::EtcdBackend;

/// As short as a machine that stands still for some seconds allows, so that heartbeats come often.
const SHORT: Duration = Duration::from_secs(8);

async fn with_heartbeats(server: &Server) -> EtcdBackend {
    EtcdBackend::connect(server.options().session_timeout(SHORT)).await.unwrap()
}

async fn lost(grant: &Grant) -> LossCause {
    let Standing::Session(liveness) = &grant.standing else { panic!("a session") };
    in_time("the loss", liveness.ended()).await
}

#[tokio::test]
async fn revoked_lease_ends_all_grants() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (with_heartbeats(&server).await, server.eyes().await);
    let grants = [granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await];
    let lease = keys(&mut eyes, "tenure/a/").await[0].lease();
    eyes.lease_client().revoke(lease).await.unwrap();
    for grant in &grants {
        assert_eq!(lost(grant).await, LossCause::SessionEnded);
    }
    // The next session is another lease.
    let grant = granted(&backend, &claim("a")).await;
    assert!(grant.token > grants[0].token);
    assert_ne!(keys(&mut eyes, "tenure/a/").await[0].lease(), lease);
}

#[tokio::test]
async fn forced_release_ends_one_grant() {
    let Some(server) = Server::start() else { return };
    let (backend, other) = (with_heartbeats(&server).await, server.backend().await);
    let [one, kept] = [granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await];
    assert_eq!(other.force_release(&name("a")).await.unwrap().len(), 1);
    assert_eq!(lost(&one).await, LossCause::Forced);
    assert_eq!(backend.release(&kept).await.unwrap(), RELEASED);
}

/// Such a request may have been on its way when its claim was withdrawn.
#[tokio::test]
async fn key_without_a_claim_is_deleted() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (with_heartbeats(&server).await, server.eyes().await);
    let grant = granted(&backend, &claim("a")).await;
    let lease = keys(&mut eyes, "tenure/a/").await[0].lease();
    let late = format!("tenure/b/{}", claim("b").id.as_uuid().simple());
    eyes.put(late, "", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    until("it is deleted", async || keys(&mut eyes, "tenure/b/").await.is_empty()).await;
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn waiter_survives_compaction_and_a_restart() {
    let Some(mut server) = Server::start() else { return };
    let backend = server.backend().await;
    let held = granted(&backend, &claim("a")).await;
    let waiter = waits(&backend, claim("a"));
    let mut eyes = server.eyes().await;
    until("it waits", async || keys(&mut eyes, "tenure/a/").await.len() == 2).await;
    for n in 0..20 {
        eyes.put("other", n.to_string(), None).await.unwrap();
    }
    let last = eyes.get("other", None).await.unwrap().header().unwrap().revision();
    eyes.compact(last, Some(CompactionOptions::new().with_physical())).await.unwrap();
    server.restart();
    until("it serves", async || eyes.get("other", None).await.is_ok()).await;
    assert_eq!(backend.release(&held).await.unwrap(), RELEASED);
    let next = in_time("the lock", waiter).await.unwrap();
    assert!(next.token > held.token);
}

#[tokio::test]
async fn close_revokes_the_lease() {
    let Some(server) = Server::start() else { return };
    let (backend, other) = (server.backend().await, server.backend().await);
    granted(&backend, &claim("a")).await;
    assert!(is_busy(&other, "a").await);
    backend.close().await;
    // It does not wait for the answer for long.
    until("it is revoked", async || !is_busy(&other, "a").await).await;
}

/// A client that only looks takes no lease.
#[tokio::test]
async fn looking_opens_no_session() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (server.backend().await, server.eyes().await);
    backend.holders(&name("a")).await.unwrap();
    backend.list("").await.unwrap();
    backend.withdraw(&claim("a")).await.unwrap();
    assert!(eyes.leases().await.unwrap().leases().is_empty());
    granted(&backend, &claim("a")).await;
    assert_eq!(eyes.leases().await.unwrap().leases().len(), 1);
}

/// Its request may still be on its way, perhaps twice.
#[tokio::test]
async fn claim_released_by_force_gets_no_key_again() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (server.backend().await, server.eyes().await);
    let [tries, waits] = [claim("a"), claim("b")];
    granted(&backend, &tries).await;
    backend.acquire(&waits).await.unwrap();
    for text in ["a", "b"] {
        assert_eq!(backend.force_release(&name(text)).await.unwrap().len(), 1);
    }
    assert!(backend.try_acquire(&tries).await.unwrap_err().spends_claim());
    assert!(backend.acquire(&waits).await.unwrap_err().spends_claim());
    assert!(keys(&mut eyes, "tenure/a/").await.is_empty() && keys(&mut eyes, "tenure/b/").await.is_empty());
    // The marks go with the session.
    assert_eq!(keys(&mut eyes, "tenure/%spent/").await.len(), 2);
    backend.close().await;
    until("they are gone", async || keys(&mut eyes, "tenure/").await.is_empty()).await;
}

/// The policy asks again while the first request goes on: that is no loss.
#[tokio::test]
async fn release_that_is_asked_for_twice_is_not_forced() {
    let Some(server) = Server::start() else { return };
    let backend = server.backend().await;
    let grant = granted(&backend, &claim("a")).await;
    let (one, other) = tokio::join!(backend.release(&grant), backend.release(&grant));
    let mut both = [one.unwrap(), other.unwrap()];
    both.sort_by_key(|release| *release != RELEASED);
    assert_eq!(both, [RELEASED, Release::Lost(LossCause::Forgotten)]);
}

#[tokio::test]
async fn backend_goes_on_after_its_last_client_has_closed() {
    let Some(server) = Server::start() else { return };
    let backend = server.backend().await;
    for _ in 0..2 {
        let locks = Locks::new(backend.clone());
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        locks.close().await;
    }
}

#[tokio::test]
async fn full_database_keeps_no_lock_held() {
    let Some(server) = Server::start() else { return };
    let (backend, mut eyes) = (server.backend().await, server.eyes().await);
    let [one, other] = [granted(&backend, &claim("a")).await, granted(&backend, &claim("b")).await];
    eyes.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await.unwrap();
    let refused = backend.try_acquire(&claim("c")).await.unwrap_err();
    assert!(!refused.is_unavailable() && refused.to_string().contains("database is full"), "{refused}");
    assert_eq!(backend.release(&one).await.unwrap(), RELEASED);
    assert_eq!(backend.force_release(&other.name).await.unwrap().len(), 1);
    eyes.alarm(AlarmAction::Deactivate, AlarmType::Nospace, None).await.unwrap();
    granted(&backend, &claim("b")).await;
}
