//! Fair mode: the queue, and how a lock is handed over.

use crate::{NO_POLL, NO_SHOW_UP, claim, give_back, grant, proxy::Proxy, server::Server, typical, until};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tenure_core::{Attempt, Backend, Claim, Grant, Guard, Locks, Name, Release, Standing};
use tenure_redis::{RedisBackend, RedisOptions};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(20);
const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";
const WAITERS: &str = "tenure:a\u{1f}{tenure:a}w";

async fn fair(server: &Server) -> RedisBackend {
    RedisBackend::connect(server.options().fair(true)).await.unwrap()
}

fn waiting(server: &Server) -> u64 {
    server.tell(&["ZCARD", QUEUE])
}

/// A client of its own that waits for the lock, once it stands in the queue.
async fn waiter(server: &Server) -> JoinHandle<(Instant, Guard)> {
    let (before, locks) = (waiting(server), Locks::new(fair(server).await));
    let task = tokio::spawn(async move {
        let guard = locks.lock("a").acquire().await.unwrap();
        (Instant::now(), guard)
    });
    until("it stands in the queue", || waiting(server) == before + 1).await;
    task
}

/// A client that stands in the queue and then does nothing any more, though its connections are open.
async fn frozen(server: &Server) -> (RedisBackend, Claim) {
    let (before, backend, claim) = (waiting(server), fair(server).await, claim("a", LEASE));
    let task = tokio::spawn({
        let (backend, claim) = (backend.clone(), claim.clone());
        async move { backend.acquire(&claim).await.map(drop) }
    });
    until("it stands in the queue", || waiting(server) == before + 1).await;
    // Without a withdrawal, since there is nothing above the backend.
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    (backend, claim)
}

/// Has a waiter that does nothing any more count as alive for longer than its 2.5 s: a busy machine may need those.
fn keep_alive(server: &Server, claim: &Claim) {
    let claim = claim.id.to_string();
    let known: String = server.tell(&["HGET", WAITERS, &claim]);
    let (_till, rest) = known.split_once(' ').unwrap();
    server.tell::<()>(&["HSET", WAITERS, &claim, &format!("9999999999999 {rest}")]);
}

#[tokio::test]
async fn first_come_first_served() {
    let server = Server::start();
    let (mut served, mut took) = (Vec::new(), Duration::MAX);
    // A waiter that stands still for two seconds loses its place, also where the machine stalls; a queue without order goes
    // wrong every time.
    for _ in 0..3 {
        (served, took) = served_in_turn(&server).await;
        if served == [0, 1, 2, 3, 4, 5] && took < Duration::from_millis(3500) {
            return;
        }
    }
    panic!("served in the order {served:?}, in {took:?}");
}

/// Who is served after whom, and how long all of them take.
async fn served_in_turn(server: &Server) -> (Vec<i32>, Duration) {
    let holder = Locks::new(fair(server).await).lock("a").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (task, order) = (waiter(server).await, Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let (_, guard) = task.await.unwrap();
            order.lock().unwrap().push((number, guard.token()));
            give_back(guard).await;
        }));
        // So each shows up 0.8 s after the one before it, and the six take four seconds if they are told nothing.
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    // The last shows up again too.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let released = Instant::now();
    holder.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let took = released.elapsed();
    let served = order.lock().unwrap().clone();
    assert!(served.is_sorted_by(|(_, one), (_, next)| one < next), "{served:?}");
    until("nothing is left", || server.tell::<u64>(&["EXISTS", "tenure:a", QUEUE, WAITERS]) == 0).await;
    (served.into_iter().map(|(number, _)| number).collect(), took)
}

#[tokio::test]
async fn a_hand_over_costs_no_request_of_its_own() {
    let server = Server::start();
    let (one, proxy) = (fair(&server).await, Proxy::to(server.port).await);
    let options = RedisOptions::from_url(&proxy.url()).unwrap().fair(true);
    let other = Locks::new(RedisBackend::connect(options).await.unwrap());
    // From now on a release is one call, because the server has heard of the script.
    one.release(&grant(&one, &claim("a", LEASE)).await).await.unwrap();
    let held = grant(&one, &claim("a", LEASE)).await;
    let task = tokio::spawn(async move { other.lock("a").acquire().await.unwrap() });
    until("it stands in the queue", || waiting(&server) == 1).await;
    // It renews once what it was handed has been looked at. Were it not told, it would not come at all.
    let held_up = proxy.hold_all();
    let mut called = server.scripts_called();
    let before = called();
    assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: false });
    let guard = tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    assert_eq!(called() - before, 1, "the release alone");
    assert!(guard.token() > held.token);
    assert!(guard.deadline().unwrap().left() < Duration::from_secs(1), "until it is renewed");
    held_up.let_go();
    until("it is renewed", || server.tell::<i64>(&["PTTL", "tenure:a"]) > 10_000).await;
    until("its holder knows", || guard.deadline().unwrap().left() > Duration::from_secs(10)).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn those_who_wait_are_told_in_order_and_without_the_dead() {
    let (server, name) = (Server::start(), Name::new("a").unwrap());
    let one = fair(&server).await;
    let told = async || {
        let waiters = one.waiting(&name).await.unwrap();
        waiters.into_iter().map(|waiter| (waiter.claim, waiter.info.pid)).collect::<Vec<_>>()
    };
    let held = grant(&one, &claim("a", LEASE)).await;
    assert!(told().await.is_empty());
    let (_backend, dead) = frozen(&server).await;
    keep_alive(&server, &dead);
    let task = waiter(&server).await;
    let both = told().await;
    assert_eq!((both.len(), both[0]), (2, (Some(dead.id), dead.holder.pid)));
    assert_eq!(both[1].1, std::process::id());
    // It has not shown up in time.
    let silent = "1700000000000 20000 1 alone\n7 host\ninbox";
    server.tell::<()>(&["HSET", WAITERS, &dead.id.to_string(), silent]);
    assert_eq!(told().await, both[1..]);
    one.release(&held).await.unwrap();
    let (_, guard) = task.await.unwrap();
    assert_eq!(both[1].0, Some(guard.claim()));
    assert!(told().await.is_empty());
    guard.release().await.unwrap();
    let unfair = server.backend().await.waiting(&name).await.unwrap_err();
    assert!(unfair.to_string().contains("fair=true"), "{unfair}");
}

#[tokio::test]
async fn a_waiter_that_is_gone_delays_nobody() {
    let server = Server::start();
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    for _ in 0..3 {
        let (backend, _) = frozen(&server).await;
        backend.close().await;
    }
    let listening = || server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", "tenure:\u{1f}*"]).len();
    until("their connections are closed", || listening() == 0).await;
    let task = waiter(&server).await;
    let released = Instant::now();
    one.release(&held).await.unwrap();
    let (when, guard) = task.await.unwrap();
    let waited = when.duration_since(released);
    // Each of the three would have it for 0.9 s.
    assert!(waited < Duration::from_millis(2500), "{waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_is_frozen_delays_the_others_by_a_second_at_most() {
    let server = Server::start();
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let (_open, asleep) = frozen(&server).await;
    keep_alive(&server, &asleep);
    let task = waiter(&server).await;
    let mut connection = server.connection();
    let mut told = connection.as_pubsub();
    told.psubscribe("tenure:\u{1f}*").unwrap();
    told.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let released = Instant::now();
    one.release(&held).await.unwrap();
    assert_eq!(server.tell::<String>(&["GET", "tenure:a"]), asleep.id.to_string(), "it was the first");
    let mut told = || told.get_message().unwrap().get_payload::<String>().unwrap();
    assert!(told().starts_with(&format!("turn {} ", asleep.id)));
    let look = told();
    assert!(look.starts_with("look ") && look.ends_with(" 900"), "the second knows when to look: {look}");
    let (when, guard) = task.await.unwrap();
    let waited = when.duration_since(released);
    assert!(waited > Duration::from_millis(800) && waited < Duration::from_secs(4), "{waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_dead_leave_the_queue() {
    let server = Server::start();
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(frozen(&server).await);
    }
    // Nobody showed up for as long as a waiter counts as alive.
    tokio::time::sleep(Duration::from_millis(2600)).await;
    let task = waiter(&server).await;
    let released = Instant::now();
    one.release(&held).await.unwrap();
    let (when, guard) = task.await.unwrap();
    // Each of the five would have it for 0.9 s.
    assert!(when.duration_since(released) < Duration::from_secs(4));
    assert_eq!(waiting(&server), 0);
    guard.release().await.unwrap();
    // A queue of the dead alone goes by itself.
    let held = grant(&one, &claim("a", LEASE)).await;
    let (_open, _) = frozen(&server).await;
    assert!(server.tell::<i64>(&["PTTL", QUEUE]) > 0 && server.tell::<i64>(&["PTTL", WAITERS]) > 0);
    one.release(&held).await.unwrap();
}

/// The new holder believes in the lock no longer than the store keeps it.
#[tokio::test]
async fn a_holder_that_is_cut_off_after_the_hand_over_knows_in_time() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let options = RedisOptions::from_url(&proxy.url()).unwrap().fair(true);
    let locks = Locks::new(RedisBackend::connect(options).await.unwrap());
    let task = tokio::spawn(async move { locks.lock("a").renew(false).acquire().await.unwrap() });
    until("it stands in the queue", || waiting(&server) == 1).await;
    // From now on it is told things, and tells nothing.
    let _held_up = proxy.hold();
    one.release(&held).await.unwrap();
    let first = task.await.unwrap();
    assert!(first.is_held());
    let next = Locks::new(fair(&server).await).lock("a").acquire().await.unwrap();
    assert!(!first.is_held(), "two hold the lock");
    assert!(next.token() > first.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn whoever_gives_up_leaves_the_queue() {
    let server = Server::start();
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let locks = Locks::new(fair(&server).await);
    let waits = locks.lock("a").wait(Duration::from_millis(300));
    assert!(waits.acquire().await.is_err());
    until("the queue is empty", || waiting(&server) == 0).await;
    assert_eq!(server.tell::<u64>(&["EXISTS", WAITERS]), 0);
    one.release(&held).await.unwrap();
    // So does a claim that was handed the lock in the same moment.
    let (mut delays, mut handed_over) = (Vec::new(), 0);
    for _ in 0..3 {
        let held = grant(&one, &claim("a", LEASE)).await;
        let (backend, given_up) = frozen(&server).await;
        keep_alive(&server, &given_up);
        let task = waiter(&server).await;
        one.release(&held).await.unwrap();
        let holder = server.tell::<Option<String>>(&["GET", "tenure:a"]);
        handed_over += u32::from(holder == Some(given_up.id.to_string()));
        let withdrawn = Instant::now();
        backend.withdraw(&given_up).await.unwrap();
        let (when, guard) = task.await.unwrap();
        delays.push(when.duration_since(withdrawn));
        give_back(guard).await;
    }
    assert!(handed_over > 1 && typical(delays) < NO_SHOW_UP, "handed over {handed_over} times");
}

#[tokio::test]
async fn a_lock_that_comes_free_in_another_way_goes_to_the_first_in_the_queue() {
    let server = Server::start();
    let one = fair(&server).await;
    let (mut by_an_attempt, mut by_force) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        grant(&one, &claim("a", LEASE)).await;
        let task = waiter(&server).await;
        // As a client without a queue does it, or the end of a lease.
        server.tell::<()>(&["DEL", "tenure:a"]);
        let asked = Instant::now();
        let attempt = one.try_acquire(&claim("a", LEASE)).await.unwrap();
        assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
        let (when, guard) = task.await.unwrap();
        by_an_attempt.push(when.duration_since(asked));
        let task = waiter(&server).await;
        let forced = Instant::now();
        assert_eq!(one.force_release(&Name::new("a").unwrap()).await.unwrap().len(), 1);
        let (when, next) = task.await.unwrap();
        by_force.push(when.duration_since(forced));
        assert!(next.token() > guard.token());
        give_back(next).await;
    }
    assert!(typical(by_an_attempt) < NO_SHOW_UP);
    assert!(typical(by_force) < NO_SHOW_UP);
}

#[tokio::test]
async fn clients_with_and_without_a_queue_exclude_each_other() {
    let server = Server::start();
    let (with, without) = (Locks::new(fair(&server).await), server.locks().await);
    let listeners = || server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", "tenure:a"]).1;
    let mut delays = Vec::new();
    for _ in 0..3 {
        let guard = with.lock("a").acquire().await.unwrap();
        assert!(without.lock("a").try_acquire().await.unwrap().is_none());
        let task = tokio::spawn({
            let lock = without.lock("a");
            async move { lock.acquire().await.unwrap() }
        });
        until("it listens", || listeners() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (first, released) = (guard.token(), Instant::now());
        guard.release().await.unwrap();
        let next = task.await.unwrap();
        delays.push(released.elapsed());
        assert!(next.token() > first && with.lock("a").try_acquire().await.unwrap().is_none());
        next.release().await.unwrap();
        until("the channel is left", || listeners() == 0).await;
    }
    assert!(typical(delays) < NO_POLL);
    let guard = without.lock("a").acquire().await.unwrap();
    let task = waiter(&server).await;
    guard.release().await.unwrap();
    // Only with the next time that it shows up.
    let (_, next) = tokio::time::timeout(Duration::from_secs(6), task).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_killed_subscription_costs_no_more_than_a_moment() {
    let server = Server::start();
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let task = waiter(&server).await;
    assert_eq!(server.tell::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    one.release(&held).await.unwrap();
    let (_, guard) = tokio::time::timeout(Duration::from_secs(6), task).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_late_request_of_a_withdrawn_claim_is_not_queued() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let one = fair(&server).await;
    let held = grant(&one, &claim("a", LEASE)).await;
    let options = RedisOptions::from_url(&proxy.url()).unwrap().fair(true);
    let backend = RedisBackend::connect(options.response_timeout(Duration::from_secs(3))).await.unwrap();
    let given_up = claim("a", LEASE);
    let task = tokio::spawn({
        let (backend, claim) = (backend.clone(), given_up.clone());
        async move { backend.acquire(&claim).await.map(drop) }
    });
    until("it stands in the queue", || waiting(&server) == 1).await;
    let held_up = proxy.hold();
    assert!(task.await.unwrap().unwrap_err().is_unavailable());
    backend.withdraw(&given_up).await.unwrap();
    assert_eq!(waiting(&server), 0);
    let before = server.calls(&["evalsha"]);
    held_up.let_go();
    until("the late request comes", || server.calls(&["evalsha"]) > before).await;
    // Should it stand in the queue after all, it is not served.
    let task = waiter(&server).await;
    let released = Instant::now();
    one.release(&held).await.unwrap();
    let (when, guard) = task.await.unwrap();
    assert!(when.duration_since(released) < NO_SHOW_UP);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_the_store_hands_over_stands_for_less_than_a_second() {
    let server = Server::start();
    let (one, other) = (fair(&server).await, fair(&server).await);
    for lease in [LEASE, Duration::from_millis(300)] {
        let held = grant(&one, &claim("a", LEASE)).await;
        let next = claim("a", lease);
        let task = tokio::spawn({
            let (backend, claim) = (other.clone(), next.clone());
            async move { backend.acquire(&claim).await.unwrap() }
        });
        until("it stands in the queue", || waiting(&server) == 1).await;
        one.release(&held).await.unwrap();
        let Grant { standing, claim, .. } = task.await.unwrap();
        let Standing::Lease { stands, .. } = standing else { panic!("a lease") };
        assert_eq!((stands, claim), (lease.min(Duration::from_millis(900)), next.id));
        assert!(server.tell::<i64>(&["PTTL", "tenure:a"]) <= i64::try_from(stands.as_millis()).unwrap());
        other.withdraw(&next).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_waiting_tasks_send_a_command_a_second_at_most() {
    let server = Server::start();
    let (holder, locks) = (fair(&server).await, Locks::new(fair(&server).await));
    grant(&holder, &claim("a", LEASE)).await;
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let lock = locks.lock("a");
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    until("one of them stands in the queue", || waiting(&server) == 1).await;
    let (before, begin) = (server.calls(&["evalsha"]), Instant::now());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (sent, passed) = (server.calls(&["evalsha"]) - before, begin.elapsed());
    assert!(sent > 0, "a waiter shows up now and then");
    assert!(u128::from(sent) <= passed.as_millis() / 1000 + 1, "{sent} in {passed:?}");
    for task in tasks {
        task.abort();
    }
    locks.close().await;
}
