//! Three servers.

use crate::{Scene, Server, in_time, relay::Relay, server};
use std::time::{Duration, Instant};
use tenure_core::{Locks, LossCause, Moment};
use tenure_zk::{ZkBackend, ZkOptions};
use tokio::task::spawn_blocking;

const SESSION: Duration = Duration::from_secs(6);

async fn locks(servers: &[&Server], prefix: &str) -> Locks {
    let options = ZkOptions::new(servers.iter().map(|server| server.address()));
    Locks::new(ZkBackend::connect(options.prefix(prefix).session_timeout(SESSION)).await.unwrap())
}

/// What was held stays held, who waits is served, and tokens go on rising, when the leader dies.
#[tokio::test]
async fn leader_killed() {
    if !server::available() {
        return;
    }
    let ports = Server::ensemble_ports();
    let mut servers = Server::ensemble(ports, ports);
    let all = locks(&servers.each_ref(), "/led").await;
    let other = locks(&servers.each_ref(), "/led").await;
    let guard = all.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await }
    });
    let scene = Scene::on(&servers[0], "led").await;
    scene.until_nodes("a", 2).await;
    let leader = servers.iter().position(Server::leads).unwrap();
    servers[leader].kill();
    let killed = Instant::now();
    let free = in_time("another lock under a new leader", all.lock("b").acquire()).await.unwrap();
    eprintln!("a new leader after {:?}", killed.elapsed());
    assert!(free.token() > guard.token());
    assert!(guard.is_held(), "{:?}", guard.loss());
    in_time("the release", guard.release()).await.unwrap();
    let next = in_time("the waiter's grant", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    free.release().await.unwrap();
}

/// A client is left with a server that has lost the others, and goes on answering until it notices. Its answers prove
/// nothing: the holder gives up before the majority gives the lock to the next.
#[tokio::test(flavor = "multi_thread")]
async fn cut_from_quorum() {
    if !server::available() {
        return;
    }
    let ports = Server::ensemble_ports();
    let mut relays = Vec::new();
    let mut first_sees = ports;
    for port in first_sees.iter_mut().flatten() {
        let relay = Relay::to(*port).await;
        *port = relay.port;
        relays.push(relay);
    }
    let servers = spawn_blocking(move || Server::ensemble(ports, first_sees)).await.unwrap();
    let [alone, rest @ ..] = servers.each_ref();
    assert!(!alone.leads());
    let (held, others) = (locks(&[alone], "/cut").await, locks(&rest, "/cut").await);
    let guard = held.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = others.lock("a");
        async move { (lock.acquire().await, Moment::now()) }
    });
    let scene = Scene::on(rest[0], "cut").await;
    scene.until_nodes("a", 2).await;
    tokio::time::sleep(SESSION / 2).await;
    relays.iter().for_each(Relay::stall);
    let cut = Moment::now();
    assert!(alone.serves(), "it has noticed already");
    let cause = in_time("the loss", guard.lost()).await;
    let lost = Moment::now();
    assert_eq!(cause, LossCause::SessionEnded);
    let (next, granted) = in_time("the next grant", waiting).await.unwrap();
    let next = next.unwrap();
    eprintln!("lost after {:?}, granted after {:?}", lost.since(cut), granted.since(cut));
    assert!(granted > lost, "two held it for {:?}", lost.since(granted));
    assert!(next.token() > guard.token() && !guard.is_held());
    relays.iter().for_each(Relay::cut);
    let again = tokio::spawn({
        let lock = held.lock("a");
        async move { lock.acquire().await }
    });
    scene.until_nodes("a", 2).await;
    next.release().await.unwrap();
    let again = in_time("the first again", again).await.unwrap().unwrap();
    assert!(again.is_held() && !guard.is_held());
    again.release().await.unwrap();
}
