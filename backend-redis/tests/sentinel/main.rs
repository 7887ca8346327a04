//! Masters that change, and replicas that must have a grant.

use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{
    Attempt, Backend, Claim, ClaimId, Error, HolderInfo, Locks, LossCause, Mode, Name, Renewal,
};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::{Kind, Member, Server};

/// Longer than any test takes: nothing is gone by itself.
const LEASE: Duration = Duration::from_mins(10);
/// In which everything comes that comes at all. In a failover the sentinels need a second to find the master dead, some to
/// agree, and ten more each time that they do not. One that stood still for two seconds does nothing for thirty.
const HANG: Duration = Duration::from_mins(2);
/// The time for an answer, also while connecting, which the tests try once. A busy machine may stand still for two
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
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(HANG));
    client.get_multiplexed_async_connection_with_config(&config.set_response_timeout(Some(HANG))).await
}

async fn try_tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> redis::RedisResult<T> {
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connect(member).await?).await
}

/// Asks one member something past tenure.
async fn tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> T {
    try_tell(member, words).await.unwrap()
}

/// Whether each of the servers is a master; `None` while one of them does not say. A sentinel that gives a server
/// another part ends all connections to it, also the one that asks.
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

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Looks again and again until something is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !so().await {
            pause::look_again().await;
        }
    };
    in_time(what, waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_dies_costs_no_lock_that_replicas_have() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let (one, other, listens) = (locks(&server).await, locks(&server).await, backend(&server).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await }
    });
    let (master, replicas) = roles(&server).await;
    replicated(&master).await;
    master.saboteur().kill().await.unwrap();
    // A lock that is free can be had from the new master, which knows the holder.
    in_time("a new master", other.lock("b").acquire()).await.unwrap().release().await.unwrap();
    assert!(guard.is_held() && !waiter.is_finished());
    let first = guard.token();
    guard.release().await.unwrap();
    let next = in_time("the waiter's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > first);
    // Once a request has found the new master, the waiters' connection follows too (W7). This wait asks nothing, so a push
    // alone ends it.
    until("it is found", async || listens.holders(&claim("a").name).await.is_ok()).await;
    let waiter = tokio::spawn(async move { listens.wait_for_release(&claim("a"), HANG * 2).await });
    until("it listens at the new master", async || {
        let mut listeners = 0;
        for member in &replicas {
            let (_, count): (String, u64) = tell(member, &["PUBSUB", "NUMSUB", "tenure:a"]).await;
            listeners += count;
        }
        listeners > 0
    })
    .await;
    next.release().await.unwrap();
    in_time("the news", waiter).await.unwrap().unwrap();
    server.stop().await.unwrap();
}

/// A deposed master goes on answering until a sentinel makes it a replica, which here never happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deposed_master_is_left_when_the_new_one_is_announced() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let locks = locks(&server).await;
    let guard = locks.lock("a").lease(LEASE).acquire().await.unwrap();
    let (master, _) = roles(&server).await;
    replicated(&master).await;
    tell::<()>(&master, &["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]).await;
    tell::<()>(&server.members()[3], &["SENTINEL", "FAILOVER", "tenure"]).await;
    until("a grant of the new master", async || {
        let next = locks.lock("b").acquire().await.unwrap();
        let granted_by_old: u64 = tell(&master, &["EXISTS", "tenure:b"]).await;
        // Its master may have been deposed meanwhile.
        let _ = next.release().await;
        granted_by_old == 0
    })
    .await;
    assert!(tell::<String>(&master, &["INFO", "replication"]).await.contains("role:master"));
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

/// A deposed master that must have replicas refuses writes, and the client asks the sentinels for the new one. It does not hear
/// of the failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_without_replicas_is_left() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    for sentinel in &server.members()[3..] {
        tell::<()>(sentinel, &["ACL", "SETUSER", "default", "-subscribe"]).await;
    }
    let locks = locks(&server).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let (master, _) = roles(&server).await;
    tell::<()>(&master, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    tell::<()>(&server.members()[3], &["SENTINEL", "FAILOVER", "tenure"]).await;
    let state = async || tell::<String>(&master, &["INFO", "replication"]).await;
    until("its replicas have left it", async || state().await.contains("connected_slaves:0")).await;
    assert!(state().await.contains("role:master"), "it has heard of it");
    let guard = in_time("a new master", locks.lock("b").acquire()).await.unwrap();
    assert!(state().await.contains("role:master"), "it was left because it heard of it");
    assert_eq!(tell::<Vec<String>>(&master, &["KEYS", "tenure:b"]).await.len(), 0);
    guard.release().await.unwrap();
    server.stop().await.unwrap();
}

/// Grants that the dead master had not passed on are lost. The holder learns it, and the token still rises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_that_no_replica_had_is_lost() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let (master, _) = roles(&server).await;
    // From now on it passes nothing on.
    tell::<()>(&master, &["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    tell::<u64>(&master, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    master.saboteur().kill().await.unwrap();
    let next = in_time("a new master", other.lock("a").acquire()).await.unwrap();
    assert!(next.token() > guard.token());
    // The holder asks as a renewal does, a third of a lease later.
    let extended = guard.extend(LEASE).await;
    assert!(
        matches!(&extended, Err(Error::Lost { cause: LossCause::TakenOver | LossCause::Forgotten, .. })),
        "{extended:?}"
    );
    assert!(next.is_held() && !guard.is_held());
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_that_too_few_replicas_have_is_taken_back() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    // A quarter of it is for the replicas, and 50 attempts one after the other would take longer than all may.
    let patience = Duration::from_secs(16);
    let patient = || options(&server).response_timeout(patience);
    let with = async |count| RedisBackend::connect(patient().replicas(count)).await.unwrap();
    let (master, replicas) = roles(&server).await;
    let (two, three) = (with(2).await, with(3).await);
    let Attempt::Granted(grant) = two.try_acquire(&claim("a")).await.unwrap() else { panic!("it is free") };
    for replica in &replicas {
        assert_eq!(tell::<u64>(replica, &["EXISTS", "tenure:a"]).await, 1, "acknowledged and missing");
    }
    let error = three.try_acquire(&claim("b")).await.unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("2 of 3 replicas confirmed the grant"),
        "{error}"
    );
    assert_eq!(tell::<u64>(&master, &["EXISTS", "tenure:b"]).await, 0, "taken back");
    replicas[0].saboteur().freeze().await.unwrap();
    // No renewal stands behind an attempt.
    let slow = RedisBackend::connect(options(&server).response_timeout(LEASE).replicas(2)).await.unwrap();
    let attempt = tokio::spawn({
        let slow = slow.clone();
        async move { slow.try_acquire(&claim("slow")).await }
    });
    until("it counts replicas", async || tell::<u64>(&master, &["EXISTS", "tenure:slow"]).await == 1).await;
    let renewed = in_time("a renewal", slow.renew(std::slice::from_ref(&grant))).await.unwrap();
    assert_eq!(renewed, [Renewal::Renewed]);
    attempt.abort();
    // Many attempts do not stand behind each other.
    let locks = Locks::new(two.clone());
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let lock = locks.lock(format!("many {number}"));
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    let all = async {
        for attempt in attempts {
            let error = attempt.await.unwrap().unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            assert!(said(&error).contains("1 of 2 replicas confirmed the grant"), "{}", said(&error));
        }
    };
    in_time("an answer to all", all).await;
    // A waiter goes on asking, and has the lock once the replica is back.
    let waiter = tokio::spawn({
        let lock = locks.lock("c");
        async move { lock.acquire().await }
    });
    replicas[0].saboteur().thaw().await.unwrap();
    in_time("the grant", waiter).await.unwrap().unwrap().release().await.unwrap();
    two.release(&grant).await.unwrap();
    locks.close().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_may_get_wrong() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let refusal = async |url: &str| {
        // Half of it is for the sentinels, which may be busy.
        let options = RedisOptions::from_url(url).unwrap().connect_timeout(Duration::from_secs(4));
        let error = in_time("a refusal", RedisBackend::connect(options)).await.expect_err(url);
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
    let patient = options(&server).connect_timeout(LEASE).response_timeout(LEASE);
    let backend = in_time("the other sentinels", RedisBackend::connect(patient)).await.unwrap();
    assert_eq!(backend.store(), server.url().trim_end_matches('/'));
    server.stop().await.unwrap();
}
