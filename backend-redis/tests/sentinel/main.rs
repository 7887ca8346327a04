//! Masters that change, and replicas that must have a grant.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tenure_conformance::saboteur::Saboteur;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Error, HolderInfo, Locks, LossCause, Mode, Name};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::{Kind, Member, Server};

const LEASE: Duration = Duration::from_secs(20);
/// In which a failover ends: the sentinels need a second to find the master dead, some to agree, and ten more each time that
/// they do not. One that stood still for two seconds, at work or waiting for the disk, does nothing for thirty.
const FAILOVER: Duration = Duration::from_secs(75);
/// What a waiter that is told nothing lets pass at least until it asks again.
const ASKS_AGAIN: Duration = Duration::from_millis(1200);
/// How long an answer may take, also while connecting, which nobody tries again. A busy machine may stand still for two
/// seconds.
const ANSWER: Duration = Duration::from_secs(3);

fn options(server: &Server) -> RedisOptions {
    // Half of the time to connect is for the sentinels.
    RedisOptions::from_url(&server.url()).unwrap().connect_timeout(ANSWER * 2).response_timeout(ANSWER)
}

async fn backend(server: &Server) -> RedisBackend {
    RedisBackend::connect(options(server)).await.unwrap()
}

async fn locks(server: &Server) -> Locks {
    Locks::new(backend(server).await)
}

fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(name).unwrap(),
        mode: Mode::Exclusive,
        lease: LEASE,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

/// The whole of what a person is told.
fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", said(source)),
        None => error.to_string(),
    }
}

/// A connection to one member past tenure. It is patient, because a busy machine is no fault.
async fn connect(member: &Member) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let client = redis::Client::open(member.direct_url())?;
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(LEASE));
    client.get_multiplexed_async_connection_with_config(&config.set_response_timeout(Some(LEASE))).await
}

async fn try_tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> redis::RedisResult<T> {
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connect(member).await?).await
}

/// Asks one member something past tenure.
async fn tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> T {
    try_tell(member, words).await.unwrap()
}

/// Whether each of the servers is a master; `None` while one of them does not say. A sentinel that gives a server another
/// part ends all connections to it, also that of whoever asks just then.
async fn masters(server: &Server) -> Option<Vec<bool>> {
    let mut masters = Vec::new();
    for member in server.members().into_iter().take(3) {
        let info: String = try_tell(&member, &["INFO", "replication"]).await.ok()?;
        masters.push(info.contains("role:master"));
    }
    Some(masters)
}

/// The member that is the master, and those that are replicas.
async fn roles(server: &Server) -> (Member, Vec<Member>) {
    let masters = masters(server).await.expect("no failover is under way");
    assert_eq!(masters.iter().filter(|is_master| **is_master).count(), 1, "{masters:?}");
    let (master, replicas): (Vec<_>, _) =
        server.members().into_iter().zip(masters).partition(|(_, is_master)| *is_master);
    let only = |members: Vec<(Member, bool)>| members.into_iter().map(|(member, _)| member);
    (only(master).next().unwrap(), only(replicas).collect())
}

/// Waits until every replica has what the master has now.
async fn replicated(master: &Member) {
    // A write, because a connection waits for its own.
    let mut connection = connect(master).await.unwrap();
    let () = redis::cmd("SET").arg("after").arg("all").query_async(&mut connection).await.unwrap();
    let had: u32 = redis::cmd("WAIT").arg(2).arg(10_000).query_async(&mut connection).await.unwrap();
    assert_eq!(had, 2);
}

async fn failover_while_holding_and_waiting(lose: impl AsyncFn(&dyn Saboteur)) {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let guard = one.lock("a").lease(FAILOVER).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) }
    });
    let (master, _) = roles(&server).await;
    replicated(&master).await;
    lose(&*master.saboteur()).await;
    let begin = Instant::now();
    // A lock that is free can be had from the new master.
    let another = other.lock("b").wait(FAILOVER).acquire().await.unwrap();
    println!("a new master after {:?}", begin.elapsed());
    another.release().await.unwrap();
    assert!(guard.is_held() && !waiter.is_finished(), "the new master knows the holder");
    let (first, released) = (guard.token(), Instant::now());
    guard.release().await.unwrap();
    let (when, next) = waiter.await.unwrap().unwrap();
    println!("handed over after {:?}", when.duration_since(released));
    // The holder may first find that the old master does not answer, and ask for the new one.
    assert!(when.duration_since(released) < ANSWER + Duration::from_secs(7));
    assert!(next.token() > first);
    // The waiters' connection has followed too (W7): of these waiters one at least is told, before it would ask again.
    // Were it not told, none could have the lock sooner than that after it began to wait.
    let mut fastest = Duration::MAX;
    let mut held = next;
    for _ in 0..5 {
        let begun = Instant::now();
        let waiter = tokio::spawn({
            let lock = one.lock("a");
            async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        held.release().await.unwrap();
        let (when, guard) = waiter.await.unwrap().unwrap();
        fastest = fastest.min(when.duration_since(begun));
        guard.release().await.unwrap();
        held = other.lock("a").acquire().await.unwrap();
    }
    assert!(fastest < ASKS_AGAIN, "{fastest:?}");
    held.release().await.unwrap();
    master.saboteur().heal().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_killed() {
    failover_while_holding_and_waiting(async |master| master.kill().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_frozen() {
    failover_while_holding_and_waiting(async |master| master.freeze().await.unwrap()).await;
}

/// A master that lives is put down. It goes on for ten seconds, or for twenty, until the sentinels make it a replica and end
/// its connections; then the new one is asked. Renewals until then are no use there: the lease is longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_after_failover() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let locks = locks(&server).await;
    let guard = locks.lock("a").lease(2 * FAILOVER).acquire().await.unwrap();
    let (master, _) = roles(&server).await;
    replicated(&master).await;
    let sentinel = &server.members()[3];
    tell::<()>(sentinel, &["SENTINEL", "FAILOVER", "tenure"]).await;
    let another = locks.lock("b").wait(FAILOVER).acquire().await.unwrap();
    let begin = Instant::now();
    let new = loop {
        // The first was the master.
        match masters(&server).await.as_deref() {
            Some([false, true, false]) => break 1,
            Some([false, false, true]) => break 2,
            now => assert!(begin.elapsed() < FAILOVER, "{now:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Whatever it held when the old master was put down, from now on all is well.
    let _ = another.release().await;
    let third = locks.lock("c").wait(FAILOVER).acquire().await.unwrap();
    // Nobody gives the new master another part, so its connections last.
    assert_eq!(tell::<u64>(&server.members()[new], &["EXISTS", "tenure:c"]).await, 1);
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
    third.release().await.unwrap();
    server.stop().await.unwrap();
}

/// A master that was put down and has not heard of it goes on for ten seconds, unless it is to have replicas. Then it refuses,
/// and the sentinels are asked for the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_replicas_is_left() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let locks = locks(&server).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let (master, _) = roles(&server).await;
    tell::<()>(&master, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    tell::<()>(&server.members()[3], &["SENTINEL", "FAILOVER", "tenure"]).await;
    let begin = Instant::now();
    let state = async || tell::<String>(&master, &["INFO", "replication"]).await;
    while !state().await.contains("connected_slaves:0") {
        assert!(begin.elapsed() < FAILOVER, "{}", state().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(state().await.contains("role:master"), "it has heard of it");
    let guard = locks.lock("b").wait(FAILOVER).acquire().await.unwrap();
    assert!(state().await.contains("role:master"), "it was left because it heard of it");
    assert_eq!(tell::<Vec<String>>(&master, &["KEYS", "tenure:b"]).await.len(), 0);
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

/// What the dead master had not passed on is forgotten; the holder learns it, and the token rises all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_replica_had_is_lost() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let (master, _) = roles(&server).await;
    // From now on it passes nothing on.
    tell::<()>(&master, &["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    tell::<u64>(&master, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    // Longer than the failover, or it ends by itself. A third of it passes until the holder asks.
    let lease = FAILOVER + Duration::from_secs(15);
    let guard = one.lock("a").lease(lease).acquire().await.unwrap();
    master.saboteur().kill().await.unwrap();
    let next = other.lock("a").wait(FAILOVER).acquire().await.unwrap();
    assert!(next.token() > guard.token());
    let cause = tokio::time::timeout(lease, guard.lost()).await.expect("lost within the lease");
    assert!(matches!(cause, LossCause::TakenOver | LossCause::Forgotten), "{cause:?}");
    assert!(next.is_held());
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    // A quarter of it is for the replicas.
    let patience = Duration::from_secs(16);
    let patient = || options(&server).response_timeout(patience);
    let with = async |count| RedisBackend::connect(patient().replicas(count)).await.unwrap();
    let (master, replicas) = roles(&server).await;
    let (two, three) = (with(2).await, with(3).await);
    let Attempt::Granted(grant) = two.try_acquire(&claim("a")).await.unwrap() else { panic!("it is free") };
    for replica in &replicas {
        assert_eq!(tell::<u64>(replica, &["EXISTS", "tenure:a"]).await, 1, "acknowledged and missing");
    }
    let begin = Instant::now();
    let error = three.try_acquire(&claim("b")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("2 of 3 replicas had the grant"), "{error}");
    assert!(begin.elapsed() < patience, "{:?}", begin.elapsed());
    assert_eq!(tell::<u64>(&master, &["EXISTS", "tenure:b"]).await, 0, "taken back");
    // Many at once do not stand behind each other, and releases and renewals behind none.
    replicas[0].saboteur().freeze().await.unwrap();
    let locks = Locks::new(two.clone());
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let lock = locks.lock(format!("many {number}"));
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    let renewing = Instant::now();
    two.renew(std::slice::from_ref(&grant)).await.unwrap();
    assert!(renewing.elapsed() < Duration::from_secs(3), "{:?}", renewing.elapsed());
    for attempt in attempts {
        let error = attempt.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(said(&error).contains("1 of 2 replicas had the grant"), "{}", said(&error));
    }
    assert!(begin.elapsed() < patience * 4, "{:?}", begin.elapsed());
    // A waiter goes on asking, and has the lock once the replica is back.
    let waiter = tokio::spawn({
        let lock = locks.lock("c").wait(FAILOVER);
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished());
    replicas[0].saboteur().thaw().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    two.release(&grant).await.unwrap();
    locks.close().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_may_get_wrong() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let refusal = async |url: &str| {
        let begin = Instant::now();
        // Half of it is for the sentinels, which may be busy.
        let options = RedisOptions::from_url(url).unwrap().connect_timeout(Duration::from_secs(4));
        let error = RedisBackend::connect(options).await.expect_err(url);
        assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        let text = said(&error);
        (error, text)
    };
    let (error, text) = refusal(&server.url().replace("/tenure", "/another")).await;
    assert!(matches!(error, Error::Store { .. }), "{text}");
    assert!(text.contains("no sentinel knows this service") && text.contains("\"another\""), "{text}");
    let (master, replicas) = roles(&server).await;
    let (error, text) = refusal(&format!("redis+sentinel://{}/tenure", master.address())).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("it is not a sentinel"), "{text}");
    let (error, text) = refusal("redis+sentinel://127.0.0.1:1/tenure").await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("127.0.0.1:1"), "{text}");
    let (error, text) = refusal(&replicas[0].url()).await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("redis+sentinel:"), "{text}");
    // One that does not answer is no hindrance.
    let sentinels = &server.members()[3..];
    sentinels[0].saboteur().freeze().await.unwrap();
    let begin = Instant::now();
    let patience = Duration::from_secs(10);
    let patient = options(&server).connect_timeout(patience).response_timeout(patience);
    let backend = RedisBackend::connect(patient).await.unwrap();
    // Half of it is for the sentinels.
    assert!(begin.elapsed() < patience / 2, "{:?}", begin.elapsed());
    assert_eq!(backend.store(), server.url().trim_end_matches('/'));
    server.stop().await.unwrap();
}
