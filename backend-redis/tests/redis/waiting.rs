//! How waiters learn that it is worth asking again, and what they cost.

use crate::{NO_POLL, claim, grant, server::Server, typical, until};
use std::time::{Duration, Instant};
use tenure_core::{Backend, Locks, Release};

const LEASE: Duration = Duration::from_secs(20);
/// Everything a waiting client sends.
const COMMANDS: &[&str] = &["evalsha", "subscribe", "unsubscribe", "ping", "eval", "client"];

fn subscribers(server: &Server, channel: &str) -> u64 {
    server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_client() {
    let server = Server::start();
    let (one, other) = (server.locks().await, server.locks().await);
    let mut delays = Vec::new();
    for _ in 0..5 {
        let guard = one.lock("a").acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = other.lock("a");
            async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) }
        });
        until("the waiter listens", || subscribers(&server, "tenure:a") == 1).await;
        // It asks once more before it waits.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (when, guard) = waiter.await.unwrap().unwrap();
        delays.push(when.duration_since(released));
        guard.release().await.unwrap();
        until("the channel is left", || subscribers(&server, "tenure:a") == 0).await;
    }
    assert!(typical(delays) < NO_POLL);
}

#[tokio::test]
async fn a_release_knows_whether_it_is_awaited() {
    let server = Server::start();
    let (one, other) = (server.backend().await, server.locks().await);
    let held = grant(&one, &claim("a", LEASE)).await;
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
    until("the waiter listens", || subscribers(&server, "tenure:a") == 1).await;
    assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: true });
    let guard = waiter.await.unwrap().unwrap();
    until("the channel is left", || subscribers(&server, "tenure:a") == 0).await;
    guard.release().await.unwrap();
    let held = grant(&one, &claim("a", LEASE)).await;
    assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: false });
}

/// Two clients of one backend share its subscriptions, so the server counts both as one subscriber.
#[tokio::test]
async fn a_release_knows_of_a_waiter_on_the_same_connection() {
    let server = Server::start();
    let one = server.backend().await;
    let other = Locks::new(one.clone());
    let held = grant(&one, &claim("a", LEASE)).await;
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
    until("the waiter listens", || subscribers(&server, "tenure:a") == 1).await;
    assert_eq!(one.release(&held).await.unwrap(), Release::Released { awaited: true });
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_gets_in_soon_after_a_dead_holder() {
    let server = Server::start();
    let (backend, lease) = (server.backend().await, Duration::from_millis(700));
    let begin = Instant::now();
    grant(&backend, &claim("a", lease)).await;
    let guard = server.locks().await.lock("a").acquire().await.unwrap();
    let waited = begin.elapsed();
    // Redis counts whole milliseconds.
    let soonest = lease.saturating_sub(Duration::from_millis(2));
    assert!(waited >= soonest && waited < lease + Duration::from_secs(3), "{waited:?}");
    drop(guard);
}

/// Without the right to the channels it is told nothing, and only asks.
#[tokio::test]
async fn a_waiter_that_cannot_listen_asks_as_soon_as_others() {
    let server = Server::start();
    server.tell::<()>(&["ACL", "SETUSER", "default", "resetchannels"]);
    let (one, mut fastest) = (server.backend().await, Duration::MAX);
    // A machine may stall now and then; who waits for what is not confirmed does so every time.
    for name in ["a", "b", "c"] {
        let other = server.backend().await;
        let begin = Instant::now();
        grant(&one, &claim(name, Duration::from_millis(1400))).await;
        other.acquire(&claim(name, LEASE)).await.unwrap();
        fastest = fastest.min(begin.elapsed());
    }
    // A second later it would wait once more for what is not confirmed.
    assert!(fastest < Duration::from_millis(2400), "{fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_waiting_tasks_send_a_command_a_second_at_most() {
    let server = Server::start();
    let (holder, locks) = (server.locks().await, server.locks().await);
    let guard = holder.lock("a").acquire().await.unwrap();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let lock = locks.lock("a");
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    until("they listen", || subscribers(&server, "tenure:a") == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (before, begin) = (server.calls(COMMANDS), Instant::now());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (sent, passed) = (server.calls(COMMANDS) - before, begin.elapsed());
    assert!(sent > 0, "a waiter asks now and then");
    assert!(u64::from(u32::try_from(sent).unwrap()) <= passed.as_secs() + 1, "{sent} in {passed:?}");
    for task in tasks {
        task.abort();
    }
    guard.release().await.unwrap();
    locks.close().await;
}

#[tokio::test]
async fn nothing_is_left_when_nobody_waits() {
    let server = Server::start();
    let (holder, locks) = (server.backend().await, server.locks().await);
    let mut tasks = Vec::new();
    for number in 0..50 {
        let name = format!("lock {number}");
        grant(&holder, &claim(&name, LEASE)).await;
        tasks.push(tokio::spawn({
            let lock = locks.lock(&name);
            async move { lock.acquire().await }
        }));
    }
    let channels = || server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", "*"]).len();
    until("all listen", || channels() == 50).await;
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
    until("no channel is left", || channels() == 0).await;
    locks.close().await;
    assert_eq!(locks.names_in_use(), 0);
}

#[tokio::test]
async fn waiters_of_one_client_share_a_connection() {
    let server = Server::start();
    let (holder, locks) = (server.backend().await, server.locks().await);
    for name in ["a", "b", "c"] {
        grant(&holder, &claim(name, LEASE)).await;
    }
    let waits = ["a", "b", "c"].map(|name| {
        let lock = locks.lock(name);
        tokio::spawn(async move { lock.acquire().await })
    });
    until("all listen", || {
        ["a", "b", "c"].iter().all(|name| subscribers(&server, &format!("tenure:{name}")) == 1)
    })
    .await;
    let clients: String = server.tell(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(clients.lines().count(), 1, "{clients}");
    for wait in waits {
        wait.abort();
    }
    locks.close().await;
    until("the connection is closed", || {
        server.tell::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).is_empty()
    })
    .await;
}

#[tokio::test]
async fn who_shares_a_closed_connection_listens_again() {
    let server = Server::start();
    let (holder, shared) = (server.backend().await, server.backend().await);
    let (one, other) = (Locks::new(shared.clone()), Locks::new(shared));
    let held = grant(&holder, &claim("a", LEASE)).await;
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
    until("it listens", || subscribers(&server, "tenure:a") == 1).await;
    // Each line begins with the connection's number.
    let connection = || {
        let clients: String = server.tell(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        clients.split(' ').next().map(str::to_owned)
    };
    let before = connection();
    one.close().await;
    until("it listens again", || connection() != before && subscribers(&server, "tenure:a") == 1).await;
    holder.release(&held).await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_relocks_does_not_keep_others_out() {
    let server = Server::start();
    let (greedy, other) = (server.locks().await, server.locks().await);
    let loops = tokio::spawn(async move {
        loop {
            let guard = greedy.lock("a").acquire().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            guard.release().await.unwrap();
        }
    });
    for _ in 0..10 {
        let guard = other.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    loops.abort();
}
