//! The keys of a name, and what is in them.

use crate::{claim, grant, server::Server};
use futures_util::FutureExt;
use std::time::Duration;
use tenure_core::{Attempt, Backend, Claim, LossCause, Mode, Release, Renewal};
use tenure_redis::RedisBackend;

const LEASE: Duration = Duration::from_secs(20);
const RECORD: &str = "tenure:a\u{1f}{tenure:a}r";

#[tokio::test]
async fn the_key_is_prefix_and_name_and_the_value_is_the_claim() {
    let server = Server::start();
    let backend = server.backend().await;
    let claim = claim("a", LEASE);
    let grant = grant(&backend, &claim).await;
    assert_eq!(server.tell::<String>(&["GET", "tenure:a"]), claim.id.to_string());
    let left: i64 = server.tell(&["PTTL", "tenure:a"]);
    assert!((15_000..=20_000).contains(&left), "{left}");
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released { awaited: false });
    let left: Vec<String> = server.tell(&["KEYS", "*"]);
    assert_eq!(left, [RECORD]);
    let remembered: i64 = server.tell(&["TTL", RECORD]);
    assert!((86_000..=86_400).contains(&remembered), "{remembered}");
}

/// It serves all who hold the lock, and so outlasts the longest of their leases.
#[tokio::test]
async fn nobody_with_a_short_lease_shortens_how_long_a_lock_is_remembered() {
    let server = Server::start();
    let long = Duration::from_hours(30 * 24);
    let reader = |lease| Claim { mode: Mode::Shared, ..claim("a", lease) };
    let remembered = || Duration::from_secs(server.tell::<u64>(&["TTL", RECORD]));
    for fair in [false, true] {
        let backend = RedisBackend::connect(server.options().fair(fair)).await.unwrap();
        grant(&backend, &reader(long)).await;
        let short = grant(&backend, &reader(LEASE)).await;
        assert!(remembered() > long, "by another grant, fair: {fair}");
        assert_eq!(backend.renew(std::slice::from_ref(&short)).await.unwrap(), [Renewal::Renewed]);
        assert!(remembered() > long, "by a renewal, fair: {fair}");
        // In doubt, and so withdrawn with a mark.
        let given_up = claim("a", LEASE);
        assert!(backend.try_acquire(&given_up).now_or_never().is_none());
        backend.withdraw(&given_up).await.unwrap();
        assert!(server.tell::<String>(&["GET", RECORD]).contains(&format!("\n-{}", given_up.id)));
        assert!(remembered() > long, "by a mark, fair: {fair}");
        server.tell::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_foreign_client_excludes_and_is_excluded() {
    let server = Server::start();
    let locks = server.locks().await;
    let foreign = |nx: &str| server.tell::<Option<String>>(&["SET", "tenure:a", "foreign", nx, "PX", "3000"]);
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(foreign("NX"), None);
    guard.release().await.unwrap();
    assert_eq!(foreign("NX").as_deref(), Some("OK"));
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let guard = locks.lock("a").wait(LEASE).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ());
    // Without an end, and then deleted without a word.
    server.tell::<()>(&["SET", "tenure:a", "foreign"]);
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    server.tell::<()>(&["DEL", "tenure:a"]);
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_claim_is_granted_again_with_its_token_and_a_fresh_lease() {
    let server = Server::start();
    let backend = server.backend().await;
    let claim = claim("a", LEASE);
    let first = grant(&backend, &claim).await;
    server.tell::<()>(&["PEXPIRE", "tenure:a", "5000"]);
    assert_eq!(grant(&backend, &claim).await.token, first.token);
    assert!(server.tell::<i64>(&["PTTL", "tenure:a"]) > 15_000);
    // Even when the record is gone, the claim that holds the lock gets a token, and one that is not smaller.
    server.tell::<()>(&["DEL", RECORD]);
    assert!(grant(&backend, &claim).await.token > first.token);
}

#[tokio::test]
async fn a_token_is_the_clock_or_one_more_than_the_last() {
    let server = Server::start();
    let backend = server.backend().await;
    let grants = async || {
        let held = grant(&backend, &claim("a", LEASE)).await;
        backend.release(&held).await.unwrap();
        held.token.get()
    };
    let time = || {
        let [seconds, micros] = server.tell::<[u64; 2]>(&["TIME"]);
        seconds * 1_000_000 + micros
    };
    let before = time();
    let first = grants().await;
    assert!(before < first && first < time(), "{before} {first}");
    server.tell::<()>(&["FLUSHALL"]);
    let second = grants().await;
    assert!(first < second && second < time());
    // As if the clock had been set back by years.
    server.tell::<()>(&["SET", RECORD, "4000000000000009 somebody 1 host "]);
    assert_eq!(grants().await, 4_000_000_000_000_010);
    assert_eq!(grants().await, 4_000_000_000_000_011);
}

#[tokio::test]
async fn renewal_tells_of_each_what_became_of_it() {
    let server = Server::start();
    let backend = server.backend().await;
    let names =
        ["kept", "lapsed", "taken", "passed on", "forced", "wrong type", "wiped", "stale", "also {kept} }"];
    let mut grants = Vec::new();
    for name in names {
        grants.push(grant(&backend, &claim(name, LEASE)).await);
    }
    let key = |name: &str| format!("tenure:{name}");
    let record = |name: &str| format!("tenure:{name}\u{1f}{{tenure:{name}}}r");
    server.tell::<()>(&["DEL", &key("lapsed")]);
    server.tell::<()>(&["SET", &key("taken"), "foreign"]);
    backend.withdraw(&claim("passed on", LEASE)).await.unwrap();
    server.tell::<()>(&["DEL", &key("passed on")]);
    let next = grant(&backend, &claim("passed on", LEASE)).await;
    backend.release(&next).await.unwrap();
    backend.force_release(&grants[4].name).await.unwrap();
    server.tell::<()>(&["DEL", &key("wrong type")]);
    server.tell::<()>(&["LPUSH", &key("wrong type"), "x"]);
    server.tell::<()>(&["DEL", &key("wiped"), &record("wiped")]);
    // As if a replica had taken over that had not heard of this grant.
    server.tell::<()>(&["DEL", &key("stale")]);
    server.tell::<()>(&["SET", &record("stale"), "1600000000000000 earlier 1 host "]);
    for name in ["kept", "also {kept} }"] {
        server.tell::<()>(&["PEXPIRE", &key(name), "5000"]);
    }
    server.tell::<()>(&["EXPIRE", &record("kept"), "100"]);
    let answers = backend.renew(&grants).await.unwrap();
    let lost = Renewal::Lost;
    assert_eq!(
        answers,
        [
            Renewal::Renewed,
            lost(LossCause::Expired),
            lost(LossCause::TakenOver),
            lost(LossCause::TakenOver),
            lost(LossCause::Forced),
            lost(LossCause::TakenOver),
            lost(LossCause::Forgotten),
            lost(LossCause::Forgotten),
            Renewal::Renewed,
        ]
    );
    for name in ["kept", "also {kept} }"] {
        assert!(server.tell::<i64>(&["PTTL", &key(name)]) > 15_000);
    }
    assert!(server.tell::<i64>(&["TTL", &record("kept")]) > 80_000);
    for name in ["lapsed", "passed on", "forced", "wiped", "stale"] {
        assert_eq!(server.tell::<u64>(&["EXISTS", &key(name)]), 0, "{name} was made again");
    }
    // A release tells the same.
    let mut causes = Vec::new();
    for lost in &grants[1..8] {
        match backend.release(lost).await.unwrap() {
            Release::Lost(cause) => causes.push(Renewal::Lost(cause)),
            released @ Release::Released { .. } => panic!("{:?}: {released:?}", lost.name),
        }
    }
    assert_eq!(causes, answers[1..8]);
}

#[tokio::test]
async fn a_full_batch_is_renewed_by_one_call() {
    let server = Server::start();
    let backend = server.backend().await;
    let most = backend.capabilities().renew_batch;
    let mut grants = Vec::new();
    for number in 0..most {
        grants.push(grant(&backend, &claim(&format!("lock {number}"), LEASE)).await);
    }
    let before = server.calls(&["evalsha"]);
    let answers = backend.renew(&grants).await.unwrap();
    assert_eq!(answers, vec![Renewal::Renewed; most]);
    // The first call finds that the server does not know the script.
    assert!(server.calls(&["evalsha"]) - before <= 2);
    let before = server.calls(&["evalsha"]);
    backend.renew(&grants).await.unwrap();
    assert_eq!(server.calls(&["evalsha"]) - before, 1);
}

#[tokio::test]
async fn acquire_and_release_are_one_call_each() {
    let server = Server::start();
    let locks = server.locks().await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let before = server.calls(&["evalsha"]);
    for _ in 0..10 {
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.calls(&["evalsha"]) - before, 20);
    assert_eq!(server.calls(&["subscribe"]), 0);
}

#[tokio::test]
async fn a_long_lease_is_remembered_for_longer() {
    let server = Server::start();
    let backend = server.backend().await;
    let week = Duration::from_hours(7 * 24);
    let held = grant(&backend, &claim("a", week)).await;
    let remembered = || server.tell::<u64>(&["TTL", RECORD]);
    assert!(remembered() > week.as_secs());
    server.tell::<()>(&["EXPIRE", RECORD, "100"]);
    backend.renew(&[held]).await.unwrap();
    assert!(remembered() > week.as_secs());
}

#[tokio::test]
async fn the_longest_lease_is_granted() {
    let server = Server::start();
    let backend = server.backend().await;
    let claim = claim("a", tenure_core::lease::MAX_LEASE);
    let held = grant(&backend, &claim).await;
    assert_eq!(backend.renew(&[held]).await.unwrap(), [Renewal::Renewed]);
    assert!(matches!(
        backend.try_acquire(&crate::claim("a", LEASE)).await.unwrap(),
        Attempt::Busy { expires_in: Some(left) } if left > Duration::from_hours(364 * 24)
    ));
}

#[tokio::test]
async fn prefixes_and_databases_do_not_meet() {
    let server = Server::start();
    let one = server.backend().await;
    let held = grant(&one, &claim("a", LEASE)).await;
    for options in
        [server.options().prefix("other:"), server.options().database(3), server.options().prefix("")]
    {
        let other = tenure_redis::RedisBackend::connect(options).await.unwrap();
        let theirs = grant(&other, &claim("a", LEASE)).await;
        other.release(&theirs).await.unwrap();
    }
    one.release(&held).await.unwrap();
}
