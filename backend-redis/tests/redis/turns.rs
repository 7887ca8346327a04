//! Fair mode: the queue, and how a lock is handed over.

use crate::{LEASE, acquires, claim, claim_in, granted, in_time, permits, proxy_to, server::Server, until};
use std::time::Duration;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Backend, Claim, Conversion, Grant, Locks, Mode, Name, Release, Standing, StoreError};
use tenure_redis::RedisBackend;
use tokio::task::JoinHandle;

const KEY: &str = "tenure:a";
const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";
const WAITERS: &str = "tenure:a\u{1f}{tenure:a}w";

fn waiting(server: &Server) -> u64 {
    server.tell(&["ZCARD", QUEUE])
}

/// Has a waiter count as alive until then, however long it does not show up.
fn alive_until(server: &Server, id: &str, millis: &str) {
    let known: String = server.tell(&["HGET", WAITERS, id]);
    let (_till, rest) = known.split_once(' ').unwrap();
    server.tell::<()>(&["HSET", WAITERS, id, &format!("{millis} {rest}")]);
}

/// A busy machine may need longer than the 2.5 s that a waiter has to show up.
fn keep_alive(server: &Server, id: &str) {
    alive_until(server, id, "9999999999999");
}

/// A waiter of a client of its own, once it stands in the queue.
struct Queued {
    backend: RedisBackend,
    claim: Claim,
    task: JoinHandle<Result<Grant, StoreError>>,
}

impl Queued {
    async fn new(server: &Server, backend: RedisBackend, mode: Mode) -> Self {
        let (before, claim) = (waiting(server), Claim { waits: true, ..claim_in(mode, "a") });
        let task = acquires(&backend, &claim);
        until("it stands in the queue", || waiting(server) == before + 1).await;
        let queued = Self { backend, claim, task };
        keep_alive(server, &queued.id());
        queued
    }

    async fn in_mode(server: &Server, mode: Mode) -> Self {
        Self::new(server, server.fair().await, mode).await
    }

    /// It does nothing any more, though its connections are open. Nothing is withdrawn, since there is nothing above the
    /// backend.
    async fn frozen(server: &Server) -> Self {
        let mut queued = Self::in_mode(server, Mode::Exclusive).await;
        queued.task.abort();
        assert!((&mut queued.task).await.unwrap_err().is_cancelled());
        keep_alive(server, &queued.id());
        queued
    }

    fn id(&self) -> String {
        self.claim.id.to_string()
    }

    /// Gives up, or gives back what it was handed, which is over soon in any case.
    async fn leave(self) {
        self.task.abort();
        self.backend.withdraw(&self.claim).await.unwrap();
    }
}

/// From the moment that the lock comes free for it, the server says so to the waiter, and answers nothing that it asks.
#[tokio::test]
async fn turn_is_pushed_however_the_lock_comes_free() {
    let server = Server::start();
    let one = server.fair().await;
    let name = Name::new("a").unwrap();
    for freed in ["release", "force", "withdrawal", "downgrade", "attempt", "reader's writer"] {
        let readers = matches!(freed, "downgrade" | "reader's writer");
        let held_in = if freed == "reader's writer" { Mode::Shared } else { Mode::Exclusive };
        let held = granted(&one, &claim_in(held_in, "a")).await;
        let before = match freed {
            "withdrawal" | "reader's writer" => Some(Queued::in_mode(&server, Mode::Exclusive).await),
            _ => None,
        };
        let (proxy, options) = proxy_to(&server).await;
        let options = options.response_timeout(LEASE).fair(true);
        let backend = RedisBackend::connect(options).await.unwrap();
        let mode = if readers { Mode::Shared } else { Mode::Exclusive };
        let next = Queued::new(&server, backend, mode).await;
        proxy.set(Direction::Requests, Flow::Hold);
        keep_alive(&server, &next.id());
        match freed {
            "release" => drop(one.release(&held).await.unwrap()),
            "force" => assert_eq!(one.force_release(&name).await.unwrap().len(), 1),
            "downgrade" => {
                assert_eq!(one.convert(&held, Mode::Shared).await.unwrap(), Conversion::Converted);
            }
            // As a client without a queue does it, or the end of a lease.
            "attempt" => {
                server.tell::<()>(&["DEL", KEY]);
                let attempt = one.try_acquire(&claim("a")).await.unwrap();
                assert!(matches!(attempt, tenure_core::Attempt::Busy { .. }), "{attempt:?}");
            }
            // The one before it is handed the lock, and gives up in that moment.
            "withdrawal" => {
                one.release(&held).await.unwrap();
                before.unwrap().leave().await;
            }
            _ => before.unwrap().leave().await,
        }
        let Queued { task, backend, claim } = next;
        let granted = in_time(freed, task).await.unwrap().unwrap();
        assert!(granted.claim == claim.id && granted.token > held.token, "{freed}");
        proxy.set(Direction::Requests, Flow::Pass);
        backend.withdraw(&claim).await.unwrap();
        one.withdraw(&Claim { id: held.claim, ..claim_in(held_in, "a") }).await.unwrap();
        until("nothing is left", || server.tell::<u64>(&["EXISTS", KEY, QUEUE, WAITERS]) == 0).await;
    }
}

/// One release is one call. It lets in the first waiters that may share, in their order, and none behind another waiter.
#[tokio::test]
async fn release_lets_in_all_who_are_next_together() {
    let server = Server::start();
    let one = server.fair().await;
    for (modes, let_in) in [
        (&[Mode::Shared, Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Shared][..], 3),
        (&[permits(1, 3), permits(2, 3), permits(1, 3)], 2),
        (&[permits(3, 3), permits(1, 3)], 1),
    ] {
        let held = granted(&one, &claim("a")).await;
        let mut queue = Vec::new();
        for mode in modes {
            queue.push(Queued::in_mode(&server, *mode).await);
        }
        one.release(&held).await.unwrap();
        let value: String = server.tell(&["GET", KEY]);
        let holders: Vec<_> = value.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        let expected: Vec<_> = queue.iter().take(let_in).map(Queued::id).collect();
        assert_eq!(holders, expected, "{modes:?}");
        for queued in queue {
            queued.leave().await;
        }
        server.tell::<()>(&["DEL", KEY]);
    }
}

#[tokio::test]
async fn handed_over_lock_stands_for_less_than_a_second() {
    let server = Server::start();
    let (one, other) = (server.fair().await, server.fair().await);
    for lease in [LEASE, Duration::from_millis(300)] {
        let held = granted(&one, &claim("a")).await;
        let next = Claim { lease, ..claim("a") };
        let task = acquires(&other, &next);
        until("it stands in the queue", || waiting(&server) == 1).await;
        one.release(&held).await.unwrap();
        let Grant { standing, claim, .. } = task.await.unwrap().unwrap();
        let Standing::Lease { stands, .. } = standing else { panic!("a lease") };
        assert_eq!((stands, claim), (lease.min(Duration::from_millis(900)), next.id));
        assert!(server.tell::<i64>(&["PTTL", KEY]) <= i64::try_from(stands.as_millis()).unwrap());
        other.withdraw(&next).await.unwrap();
    }
}

#[tokio::test]
async fn frozen_waiter_is_handed_the_lock_for_a_moment() {
    let server = Server::start();
    let one = server.fair().await;
    let held = granted(&one, &claim("a")).await;
    let (asleep, next) = (Queued::frozen(&server).await, Queued::in_mode(&server, Mode::Exclusive).await);
    let mut connection = server.connection();
    let mut told = connection.as_pubsub();
    told.psubscribe("tenure:\u{1f}*").unwrap();
    one.release(&held).await.unwrap();
    let mut told = || told.get_message().unwrap().get_payload::<String>().unwrap();
    assert!(told().starts_with(&format!("turn {} ", asleep.id())), "it was the first");
    let look = told();
    assert!(look.starts_with("look ") && look.ends_with(" 900"), "the second knows when to look: {look}");
    let granted = in_time("the second's turn", next.task).await.unwrap().unwrap();
    assert!(granted.claim == next.claim.id && granted.token > held.token);
}

/// Whether its connections are closed, or it has not shown up in time.
#[tokio::test]
async fn dead_waiters_are_passed_and_not_shown() {
    let (server, name) = (Server::start(), Name::new("a").unwrap());
    let one = server.fair().await;
    let told = async || {
        let waiters = one.waiting(&name).await.unwrap();
        waiters.into_iter().map(|waiter| waiter.claim.unwrap().to_string()).collect::<Vec<_>>()
    };
    let held = granted(&one, &claim("a")).await;
    assert!(told().await.is_empty());
    let (closed, silent) = (Queued::frozen(&server).await, Queued::frozen(&server).await);
    let alive = Queued::in_mode(&server, Mode::Exclusive).await;
    assert_eq!(told().await, [closed.id(), silent.id(), alive.id()]);
    alive_until(&server, &silent.id(), "1700000000000");
    assert_eq!(told().await, [closed.id(), alive.id()]);
    let listening = || server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", "tenure:\u{1f}*"]).len();
    let before = listening();
    closed.backend.close().await;
    until("its connections are closed", || listening() == before - 1).await;
    one.release(&held).await.unwrap();
    assert_eq!(server.tell::<String>(&["GET", KEY]), alive.id());
    let queue: Vec<String> = server.tell(&["ZRANGE", QUEUE, "0", "-1"]);
    assert!(!queue.contains(&silent.id()), "it has left the queue");
    alive.leave().await;
    let unfair = server.backend().await.waiting(&name).await.unwrap_err();
    assert!(unfair.to_string().contains("fair=true"), "{unfair}");
    // A queue of the dead alone goes by itself.
    let _held = granted(&one, &claim("a")).await;
    let _frozen = Queued::frozen(&server).await;
    assert!(server.tell::<i64>(&["PTTL", QUEUE]) > 0 && server.tell::<i64>(&["PTTL", WAITERS]) > 0);
}

/// The new holder believes in the lock no longer than the store keeps it.
#[tokio::test]
async fn holder_cut_off_after_the_hand_over_knows_in_time() {
    let server = Server::start();
    let one = server.fair().await;
    let held = granted(&one, &claim("a")).await;
    let (proxy, options) = proxy_to(&server).await;
    let locks = Locks::new(RedisBackend::connect(options.fair(true)).await.unwrap());
    let task = tokio::spawn(async move { locks.lock("a").renew(false).acquire().await.unwrap() });
    until("it stands in the queue", || waiting(&server) == 1).await;
    // From now on it is told things, and tells nothing.
    proxy.set(Direction::Requests, Flow::Hold);
    keep_alive(&server, &server.tell::<Vec<String>>(&["ZRANGE", QUEUE, "0", "-1"])[0]);
    one.release(&held).await.unwrap();
    let first = in_time("its turn", task).await.unwrap();
    let next = Locks::new(server.fair().await).lock("a").acquire().await.unwrap();
    assert!(!first.is_held(), "two hold the lock");
    assert!(next.token() > first.token());
}

#[tokio::test]
async fn clients_with_and_without_a_queue_wake_each_other() {
    let server = Server::start();
    let [without, with] = server.both().await;
    let held = granted(&with, &claim("a")).await;
    let listener = tokio::spawn({
        let without = without.clone();
        async move { without.wait_for_release(&claim("a"), LEASE).await }
    });
    until("it listens", || server.listeners("a") == 1).await;
    assert_eq!(with.release(&held).await.unwrap(), Release::Released { awaited: true });
    in_time("the news", listener).await.unwrap().unwrap();
    let held = granted(&without, &claim("a")).await;
    let next = Queued::in_mode(&server, Mode::Exclusive).await;
    without.release(&held).await.unwrap();
    // With the next time that it shows up.
    let granted = in_time("its turn", next.task).await.unwrap().unwrap();
    assert!(granted.token > held.token);
}
