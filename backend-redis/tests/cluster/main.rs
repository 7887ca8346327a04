//! Slots that move, and masters that die.

use std::time::{Duration, Instant};
use tenure_conformance::servers::{Member, Server};
use tenure_core::{Backend, Error, Locks, Name};
use tenure_redis::{RedisBackend, RedisOptions};

/// In which a failover ends: the nodes need two seconds to find a master dead, and some to vote.
const FAILOVER: Duration = Duration::from_secs(30);
const SLOTS: u64 = 16_384;

async fn backend(server: &Server) -> RedisBackend {
    let options = RedisOptions::from_url(&server.url()).unwrap();
    RedisBackend::connect(options.response_timeout(Duration::from_secs(1))).await.unwrap()
}

async fn locks(server: &Server) -> Locks {
    Locks::new(backend(server).await)
}

/// Asks one member something past tenure.
async fn tell<T: redis::FromRedisValue>(member: &Member, words: &[&str]) -> T {
    let client = redis::Client::open(member.direct_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
}

/// Which of the three masters keeps a name, as they were made: each a third of the slots.
async fn master_of(server: &Server, name: &str) -> usize {
    let slot: u64 = tell(&server.members()[0], &["CLUSTER", "KEYSLOT", &format!("tenure:{name}")]).await;
    (0..3)
        .rev()
        .find(|number| SLOTS * number / 3 <= slot)
        .map(|number| usize::try_from(number).unwrap())
        .unwrap()
}

/// A name that this master keeps.
async fn name_at(server: &Server, master: usize) -> String {
    for number in 0.. {
        let name = format!("name {number}");
        if master_of(server, &name).await == master {
            return name;
        }
    }
    unreachable!()
}

async fn is_there(member: &Member, name: &str) -> bool {
    tell::<Vec<String>>(member, &["KEYS", &format!("tenure:{name}")]).await.len() == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_slot_moved() {
    let server = Server::redis_cluster().await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let guard = one.lock("{x}a").lease(Duration::from_secs(3)).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("{x}a");
        async move { lock.acquire().await }
    });
    let from = &members[master_of(&server, "{x}").await];
    let to = &members[(master_of(&server, "{x}").await + 1) % 3];
    assert!(is_there(from, "{x}a").await);
    let slot = tell::<u64>(from, &["CLUSTER", "KEYSLOT", "{x}"]).await.to_string();
    let (from_id, to_id): (String, String) =
        (tell(from, &["CLUSTER", "MYID"]).await, tell(to, &["CLUSTER", "MYID"]).await);
    tell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    tell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    // A node that receives a slot serves no script about two keys of which one is missing there.
    let error = one.lock("{x}b").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(guard.is_held() && other.holders("{x}a").await.unwrap().len() == 1);
    let keys: Vec<String> = tell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
    let place = redis::Client::open(to.direct_url()).unwrap();
    let place = place.get_connection_info().addr().to_string();
    let (host, port) = place.rsplit_once(':').unwrap();
    let mut migrate = vec!["MIGRATE", host, port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.iter().map(String::as_str));
    tell::<()>(from, &migrate).await;
    // Through the node that still has the slot, to the one that has the keys.
    assert_eq!(other.holders("{x}a").await.unwrap().len(), 1);
    for member in [to, from] {
        tell::<()>(member, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    }
    assert!(is_there(to, "{x}a").await && !is_there(from, "{x}a").await);
    let another = one.lock("{x}b").wait(FAILOVER).acquire().await.unwrap();
    // Renewed at its new place, and longer than its lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(guard.is_held() && !waiter.is_finished(), "{:?}", guard.loss());
    let (first, released) = (guard.token(), Instant::now());
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    assert!(next.token() > first);
    next.release().await.unwrap();
    another.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_master_killed() {
    let server = Server::redis_cluster().await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let names = [name_at(&server, 0).await, name_at(&server, 1).await, name_at(&server, 2).await];
    let held = one.lock(&names[0]).lease(FAILOVER).acquire().await.unwrap();
    let short = one.lock(&names[1]).lease(Duration::from_secs(2)).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock(&names[0]);
        async move { lock.acquire().await }
    });
    let had: u64 = tell(&members[0], &["WAIT", "1", "1000"]).await;
    assert_eq!(had, 1);
    members[0].saboteur().kill().await.unwrap();
    let begin = Instant::now();
    // The others go on, without a pause.
    let guard = other.lock(&names[2]).try_acquire().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    // Once the cluster has a new master the holder still holds.
    held.extend(FAILOVER).await.unwrap_or_else(|error| println!("not yet: {error}"));
    while one.holders(&names[0]).await.is_err() {
        assert!(begin.elapsed() < FAILOVER, "no new master");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("a new master after {:?}", begin.elapsed());
    assert!(held.is_held() && short.is_held() && !waiter.is_finished(), "{:?}", short.loss());
    let (first, released) = (held.token(), Instant::now());
    held.release().await.unwrap();
    let next = tokio::time::timeout(FAILOVER, waiter).await.unwrap().unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    assert!(next.token() > first);
    next.release().await.unwrap();
    short.release().await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_may_get_wrong() {
    let server = Server::redis_cluster().await.unwrap();
    let refusal = async |url: &str| {
        let error = RedisBackend::connect(RedisOptions::from_url(url).unwrap()).await.expect_err(url);
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        (format!("{error}: {source}"), error)
    };
    let (text, error) = refusal(&server.members()[0].url()).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("write redis+cluster:"), "{text}");
    let single = Server::redis().await.unwrap();
    let (text, error) =
        refusal(&single.url().replace("redis://", "redis+cluster://").replace("/0", "")).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("write redis:"), "{text}");
    // One member is enough to find the others, also a replica.
    let replica = format!("redis+cluster://{}", server.members()[4].address());
    let backend = RedisBackend::connect(RedisOptions::from_url(&replica).unwrap()).await.unwrap();
    assert_eq!(backend.store(), replica);
    let locks = Locks::new(backend.clone());
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.lock(format!("list/{number:02}")).acquire().await.unwrap());
    }
    let listed: Vec<Name> =
        backend.list("list/").await.unwrap().into_iter().map(|holder| holder.name).collect();
    assert_eq!(listed.len(), 20);
    assert!(listed.is_sorted(), "{listed:?}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    server.stop().await.unwrap();
}
