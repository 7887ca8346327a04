//! Slots that move, and masters that die.

mod looking;
mod waking;

use futures_util::future::join_all;
use std::time::Duration;
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Backend, Error, Grant, Locks, Release, Renewal};
use tenure_redis::{RedisBackend, RedisOptions};
use tenure_testbed::claims::{HANG, LEASE, claim, in_time, said, until, waits};
use tenure_testbed::{Kind, Member, Server};
use waking::listeners;

const SLOTS: u64 = 16_384;

/// Connects as a user who has only the rights that docs/redis.md lists.
async fn backend(server: &Server) -> RedisBackend {
    let page = include_str!("../../../docs/redis.md");
    let rules = page.split("```").find(|block| block.trim().starts_with("ACL SETUSER")).unwrap();
    for member in server.members() {
        tell::<()>(&member, &rules.split_whitespace().collect::<Vec<_>>()).await;
    }
    let options = RedisOptions::from_url(&server.url()).unwrap().credentials("app", "SECRET");
    RedisBackend::connect(options.response_timeout(Duration::from_secs(3))).await.unwrap()
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

/// Waits until the replica has what its master has now.
async fn replicated(master: &Member, name: &str) {
    // A write to that slot, because a connection waits for its own.
    let (after, mut connection) = (format!("{{tenure:{name}}}after"), connect(master).await);
    let () = redis::cmd("SET").arg(after).arg("all").query_async(&mut connection).await.unwrap();
    let had: u64 = redis::cmd("WAIT").arg(1).arg(10_000).query_async(&mut connection).await.unwrap();
    assert_eq!(had, 1);
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

/// So many names that this master keeps.
async fn names_at<const COUNT: usize>(server: &Server, master: usize) -> [String; COUNT] {
    let mut names = Vec::new();
    for number in 0.. {
        if names.len() == COUNT {
            break;
        }
        let name = format!("name {number}");
        if master_of(server, &name).await == master {
            names.push(name);
        }
    }
    names.try_into().unwrap()
}

/// A name that this master keeps.
async fn name_at(server: &Server, master: usize) -> String {
    let [name] = names_at(server, master).await;
    name
}

async fn granted(backend: &RedisBackend, name: &str) -> Grant {
    tenure_testbed::claims::granted(backend, &claim(name)).await
}

async fn is_there(member: &Member, name: &str) -> bool {
    tell::<Vec<String>>(member, &["KEYS", &format!("tenure:{name}")]).await.len() == 1
}

/// Has one master begin to hand the slot of a key over to another.
async fn begin_to_move(key: &str, from: &Member, to: &Member) {
    let (slot, from_id, to_id) = (slot_of(from, key).await, id_of(from).await, id_of(to).await);
    tell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    tell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
}

/// Takes the keys of that slot there whose names have this in them.
async fn move_keys(key: &str, from: &Member, to: &Member) {
    let slot = slot_of(from, key).await;
    let mut keys: Vec<String> = tell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
    keys.retain(|it| it.contains(key));
    let place = redis::Client::open(to.direct_url()).unwrap();
    let place = place.get_connection_info().addr().to_string();
    let (host, port) = place.rsplit_once(':').unwrap();
    let mut migrate = vec!["MIGRATE", host, port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.iter().map(String::as_str));
    tell::<()>(from, &migrate).await;
}

/// From now on the other keeps the slot.
async fn end_move(key: &str, from: &Member, to: &Member) {
    let (slot, to_id) = (slot_of(from, key).await, id_of(to).await);
    for member in [to, from] {
        tell::<()>(member, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    }
}

async fn slot_of(member: &Member, key: &str) -> String {
    tell::<u64>(member, &["CLUSTER", "KEYSLOT", key]).await.to_string()
}

async fn id_of(member: &Member) -> String {
    tell(member, &["CLUSTER", "MYID"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_slot_moved() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let guard = one.lock("{x}a").lease(Duration::from_secs(8)).acquire().await.unwrap();
    let at = master_of(&server, "{x}").await;
    let (from, to) = (&members[at], &members[(at + 1) % 3]);
    let waiter = waits(locks(&server).await.lock("{x}a"));
    until("it listens", async || listeners(from, "{x}a").await == 1).await;
    assert!(is_there(from, "{x}a").await);
    begin_to_move("{x}", from, to).await;
    // A node that receives a slot serves no script about two keys of which one is missing there.
    let error = one.lock("{x}b").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(guard.is_held() && other.holders("{x}a").await.unwrap().len() == 1);
    move_keys("{x}", from, to).await;
    // Through the node that still has the slot, to the one that has the keys.
    assert_eq!(other.holders("{x}a").await.unwrap().len(), 1);
    end_move("{x}", from, to).await;
    let moved = guard.deadline();
    assert!(is_there(to, "{x}a").await && !is_there(from, "{x}a").await);
    // The waiter takes the server's word that its slot has moved.
    until("it listens there", async || listeners(to, "{x}a").await == 1).await;
    assert_eq!(listeners(from, "{x}a").await, 0);
    in_time("another lock of the slot", one.lock("{x}b").acquire()).await.unwrap().release().await.unwrap();
    until("it is renewed at its new place", async || guard.deadline() > moved || !guard.is_held()).await;
    assert!(guard.is_held() && !waiter.is_finished(), "{:?}", guard.loss());
    let first = guard.token();
    guard.release().await.unwrap();
    let next = in_time("the waiter's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
    server.stop().await.unwrap();
}

/// Where a move was interrupted, a slot may stay half moved. That costs no lock of it its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_half_moved_slot_are_renewed_and_released() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let at = master_of(&server, "{x}").await;
    let (from, to) = (&members[at], &members[(at + 1) % 3]);
    let (one, options) = (backend(&server).await, RedisOptions::from_url(&server.url()).unwrap().fair(true));
    let fair = Locks::new(RedisBackend::connect(options).await.unwrap());
    let mut grants = Vec::new();
    for name in ["{x}a", "{x}b"] {
        grants.push(granted(&one, name).await);
    }
    let stays = fair.lock("{x}c").acquire().await.unwrap();
    let goes = fair.lock("{x}d").acquire().await.unwrap();
    begin_to_move("{x}", from, to).await;
    for name in ["{x}a", "{x}d"] {
        move_keys(name, from, to).await;
    }
    assert!(is_there(to, "{x}a").await && is_there(from, "{x}b").await);
    // Both in one request, as one client renews what one slot has.
    assert_eq!(one.renew(&grants).await.unwrap(), [Renewal::Renewed, Renewal::Renewed]);
    // Without queues, which would have to be there.
    for guard in [stays, goes] {
        in_time("a release before the end of the move", guard.release()).await.unwrap();
    }
    assert!(!is_there(from, "{x}c").await && !is_there(to, "{x}d").await);
    for grant in &grants {
        assert!(matches!(one.release(grant).await.unwrap(), Release::Released { .. }));
    }
    server.stop().await.unwrap();
}

/// A renewal waits a sixth of the lease for answers. The client reports a node's answer before that, even if
/// another lease's slot has moved to a node that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_at_a_node_that_hangs_costs_no_other_its_renewal() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let options = options.connect_timeout(LEASE).response_timeout(LEASE);
    let backend = RedisBackend::connect(options).await.unwrap();
    // The node that hangs is waited for longer than this test, unless the lease is thought of.
    let (lease, [stays, moves]) = (Duration::from_secs(36), names_at(&server, 0).await);
    let mut grants = Vec::new();
    for name in [&stays, &moves] {
        grants.push(Grant { lease, ..granted(&backend, name).await });
    }
    assert_eq!(backend.renew(&grants).await.unwrap(), [Renewal::Renewed, Renewal::Renewed]);
    let (from, to) = (&members[0], &members[1]);
    let slot_of =
        async |name| -> u64 { tell(from, &["CLUSTER", "KEYSLOT", &format!("tenure:{name}")]).await };
    assert_ne!(slot_of(&stays).await, slot_of(&moves).await);
    let (key, slot) = (format!("tenure:{moves}"), slot_of(&moves).await.to_string());
    // A node does not let go of a slot that has keys.
    for key in tell::<Vec<String>>(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await {
        tell::<()>(from, &["DEL", &key]).await;
    }
    end_move(&key, from, to).await;
    to.saboteur().hurt(Hurt::Freeze).await.unwrap();
    let renewal = tokio::time::timeout(lease / 6, backend.renew(&grants)).await;
    assert_eq!(renewal.expect("in time").unwrap(), [Renewal::Renewed, Renewal::Unanswered]);
    server.stop().await.unwrap();
}

/// They ask who keeps which slots, and none of them does so after the others: that would take five minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_look_up_answers_all_who_wait_for_it() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let (options, patience) = (RedisOptions::from_url(&server.url()).unwrap(), Duration::from_secs(3));
    let options = options.connect_timeout(patience).response_timeout(patience);
    let backend = RedisBackend::connect(options).await.unwrap();
    for member in &server.members() {
        member.saboteur().hurt(Hurt::Freeze).await.unwrap();
    }
    // Only then does the client doubt what it knows of the slots.
    assert!(backend.try_acquire(&claim("a")).await.unwrap_err().is_unavailable());
    let claims: Vec<_> = (0..100).map(|number| claim(&format!("name {number}"))).collect();
    let all = join_all(claims.iter().map(|claim| backend.try_acquire(claim)));
    for one in in_time("an answer to all", all).await {
        assert!(one.unwrap_err().is_unavailable());
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_dies_costs_no_lock() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let members = server.members();
    let (one, other) = (locks(&server).await, locks(&server).await);
    let names = [name_at(&server, 0).await, name_at(&server, 1).await, name_at(&server, 2).await];
    let held = one.lock(&names[0]).lease(LEASE).acquire().await.unwrap();
    // While a master is dead all nodes refuse every slot, until there is a new one. A third of it passes between renewals.
    let beside = one.lock(&names[1]).lease(Duration::from_mins(1)).acquire().await.unwrap();
    let waiter = waits(other.lock(&names[0]));
    replicated(&members[0], &names[0]).await;
    // To its clients it is dead. The nodes do not know, so none takes its place meanwhile.
    members[0].saboteur().hurt(Hurt::Refuse).await.unwrap();
    members[0].saboteur().hurt(Hurt::Cut).await.unwrap();
    // The others go on, and do not wait for a new master.
    let guard = other.lock(&names[2]).try_acquire().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
    members[0].saboteur().hurt(Hurt::Kill).await.unwrap();
    until("a new master, which knows the holder", async || {
        one.holders(&names[0]).await.is_ok_and(|holders| holders.len() == 1)
    })
    .await;
    let back = beside.deadline();
    assert!(held.is_held() && !waiter.is_finished(), "{:?}", held.loss());
    let first = held.token();
    held.release().await.unwrap();
    let next = in_time("the waiter's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
    until("it is renewed", async || beside.deadline() > back || !beside.is_held()).await;
    assert!(beside.is_held(), "{:?}", beside.loss());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_may_get_wrong() {
    let server = Server::find(Kind::RedisCluster).await.unwrap();
    let refusal = async |url: &str| {
        let error = RedisBackend::connect(RedisOptions::from_url(url).unwrap()).await.expect_err(url);
        (said(&error), error)
    };
    let (text, error) = refusal(&server.members()[0].url()).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("write redis+cluster:"), "{text}");
    let single = Server::find(Kind::Redis).await.unwrap();
    let (text, error) =
        refusal(&single.url().replace("redis://", "redis+cluster://").replace("/0", "")).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("write redis:"), "{text}");
    // One member is enough to find the others, also a replica.
    let replica = format!("redis+cluster://{}", server.members()[4].address());
    let backend = RedisBackend::connect(RedisOptions::from_url(&replica).unwrap()).await.unwrap();
    assert_eq!(backend.store(), replica);
    Locks::new(backend).lock("found").acquire().await.unwrap().release().await.unwrap();
    server.stop().await.unwrap();
}
