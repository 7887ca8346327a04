//! Masters that change, and replicas that must have a grant.

use futures_util::future::join_all;
use std::time::Duration;
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Backend, Error, Locks, LossCause, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::claims::{HANG, LEASE, claim, granted, in_time, said, until, waits};
use tenure_testbed::{Kind, Member, Server};

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

/// A connection to one member past tenure. It is patient, because a busy machine is no fault.
async fn connect(member: &Member) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(member.direct_url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(HANG));
    let config = config.set_response_timeout(Some(HANG));
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Asks one member something past tenure.
async fn tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connect(member).await).await.unwrap()
}

/// The member that is the master, and those that are replicas.
async fn roles(server: &Server) -> (Member, Vec<Member>) {
    let (mut masters, mut replicas) = (Vec::new(), Vec::new());
    for member in server.members().into_iter().take(3) {
        let info: String = tell(&member, &["INFO", "replication"]).await;
        if info.contains("role:master") { masters.push(member) } else { replicas.push(member) }
    }
    assert_eq!(masters.len(), 1, "no failover is under way");
    (masters.remove(0), replicas)
}

/// Waits until every replica has what the master has now.
async fn replicated(master: &Member) {
    // A write, because a connection waits for its own.
    let mut connection = connect(master).await;
    let () = redis::cmd("SET").arg("after").arg("all").query_async(&mut connection).await.unwrap();
    let had: u32 = redis::cmd("WAIT").arg(2).arg(10_000).query_async(&mut connection).await.unwrap();
    assert_eq!(had, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_dies_costs_no_lock_that_replicas_have() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    let (one, other, listens) = (locks(&server).await, locks(&server).await, backend(&server).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let waiter = waits(other.lock("a"));
    let (master, replicas) = roles(&server).await;
    replicated(&master).await;
    master.saboteur().hurt(Hurt::Kill).await.unwrap();
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
    master.saboteur().hurt(Hurt::Kill).await.unwrap();
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
async fn silent_replica_holds_up_no_renewal_and_no_other_attempt() {
    let server = Server::find(Kind::RedisSentinel).await.unwrap();
    // A quarter of it is for the replicas, and 50 attempts one after the other would take longer than all may.
    let patience = Duration::from_secs(16);
    let with = async |patience| {
        RedisBackend::connect(options(&server).response_timeout(patience).replicas(2)).await.unwrap()
    };
    let (master, replicas) = roles(&server).await;
    let (backend, slow) = (with(patience).await, with(LEASE).await);
    let held = granted(&backend, &claim("a")).await;
    for replica in &replicas {
        assert_eq!(tell::<u64>(replica, &["EXISTS", "tenure:a"]).await, 1, "acknowledged and missing");
    }
    replicas[0].saboteur().hurt(Hurt::Freeze).await.unwrap();
    let attempt = tokio::spawn({
        let slow = slow.clone();
        async move { slow.try_acquire(&claim("slow")).await }
    });
    until("it counts replicas", async || tell::<u64>(&master, &["EXISTS", "tenure:slow"]).await == 1).await;
    let renewed = in_time("a renewal", slow.renew(&[held])).await.unwrap();
    assert_eq!(renewed, [Renewal::Renewed]);
    attempt.abort();
    let claims: Vec<_> = (0..50).map(|number| claim(&format!("many {number}"))).collect();
    let all = join_all(claims.iter().map(|claim| backend.try_acquire(claim)));
    for attempt in in_time("an answer to all", all).await {
        let error = attempt.unwrap_err();
        assert!(
            error.is_unavailable() && error.to_string().contains("1 of 2 replicas confirmed the grant"),
            "{error}"
        );
    }
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
    assert!(matches!(error, Error::Store { .. }) && text.contains("is not a sentinel"), "{text}");
    let (error, text) = refusal("redis+sentinel://127.0.0.1:1/tenure").await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("127.0.0.1:1"), "{text}");
    let (error, text) = refusal(&replicas[0].url()).await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("redis+sentinel:"), "{text}");
    // One that does not answer is no hindrance.
    let sentinels = &server.members()[3..];
    sentinels[0].saboteur().hurt(Hurt::Freeze).await.unwrap();
    let patient = options(&server).connect_timeout(LEASE).response_timeout(LEASE);
    let backend = in_time("the other sentinels", RedisBackend::connect(patient)).await.unwrap();
    assert_eq!(backend.store(), server.url().trim_end_matches('/'));
    server.stop().await.unwrap();
}
