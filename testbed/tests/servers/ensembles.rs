//! Ensembles: one member is hurt and the others go on; all are, and come back.

use crate::client::{Client, PATIENCE, client, connect, exchange, hangs, within};
use crate::{Case, LONG};
use std::time::Duration;
use tenure_conformance::pause;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::Hurt;
use tenure_testbed::{Kind, Member, Server};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

cases! { CASES:
    serves,
    goes_on_without_a_member: Kill,
    goes_on_without_a_frozen_member: Freeze,
    comes_back_whole: Kill,
    restarts_its_members_in_turn: RestartEach,
    comes_back_empty: Wipe,
    hangs_whole: HalfOpen,
    is_partitioned: Partition,
}

cases! { STRANGERS:
    members_know_nothing_of_each_other,
}

/// Retries until a client is served: how soon the others take over is theirs to decide. A sentinel that stood still for two
/// seconds does nothing for thirty, and tries again after ten.
async fn served(server: &Server) -> Box<dyn Client> {
    let serving = async {
        loop {
            let attempt = async {
                let mut client = connect(server).await?;
                client.put("served").await.map(|()| client)
            };
            if let Ok(Ok(client)) = timeout(PATIENCE * 5, attempt).await {
                return client;
            }
            pause::look_again().await;
        }
    };
    timeout(LONG * 3, serving).await.expect("served in the end")
}

/// The member that a client's writes go to.
async fn important(server: &Server) -> Member {
    let members = server.members();
    let arrived = |member: &Member| member.proxy().unwrap().counters().requests.arrived;
    let before: Vec<_> = members.iter().map(arrived).collect();
    // Longer than any chatter that passes in the same time.
    let text = "x".repeat(10_000);
    let writing = async {
        while client(server).await.put(&text).await.is_err() {
            pause::look_again().await;
        }
    };
    within(Box::pin(writing)).await;
    let written = members.iter().zip(before).find(|(member, before)| arrived(member) >= before + 10_000);
    written.unwrap_or_else(|| panic!("no member of {members:?} was written to")).0.clone()
}

/// Which of the members it is.
fn place(server: &Server, member: &Member) -> usize {
    let members = server.members();
    assert_eq!(server.saboteur().members(), members.len());
    members.iter().position(|other| other.address() == member.address()).expect("one of them")
}

async fn serves(server: &Server) {
    assert!(server.address().is_none() && server.proxy().is_none(), "there are several");
    client(server).await.put("one").await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("one"));
    for member in server.members() {
        assert_eq!(Some(member.address()), member.proxy().map(Proxy::address));
        assert!(server.url().contains(&member.address().to_string()) || server.kind() == Kind::RedisSentinel);
    }
}

async fn goes_on_without_a_member(server: &Server) {
    let victim = important(server).await;
    server.saboteur().inject(Hurt::KillOne.of(place(server, &victim))).await.unwrap();
    goes_on_without(server, &victim).await;
    victim.saboteur().restart().await.unwrap();
    // Waits until the member has its place again.
    server.saboteur().heal().await.unwrap();
    served(server).await;
}

async fn goes_on_without_a_frozen_member(server: &Server) {
    let victim = important(server).await;
    server.saboteur().inject(Hurt::FreezeOne.of(place(server, &victim))).await.unwrap();
    goes_on_without(server, &victim).await;
    server.saboteur().heal().await.unwrap();
    served(server).await;
}

async fn goes_on_without(server: &Server, victim: &Member) {
    served(server).await;
    assert_ne!(important(server).await.address(), victim.address());
}

async fn comes_back_whole(server: &Server) {
    let url = server.url();
    client(server).await.put("kept").await.unwrap();
    server.saboteur().hurt(Hurt::Kill).await.unwrap();
    exchange(server).await.expect_err("all are dead");
    server.saboteur().restart().await.unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("kept"));
}

async fn restarts_its_members_in_turn(server: &Server) {
    let (url, mut open) = (server.url(), Vec::new());
    client(server).await.put("kept").await.unwrap();
    for member in server.members() {
        open.push(TcpStream::connect(member.address()).await.unwrap());
    }
    server.saboteur().hurt(Hurt::RestartEach).await.unwrap();
    for mut connection in open {
        // The end is what counts, not its result: a restart may close the connection or reset it.
        let _ = within(connection.read_to_end(&mut Vec::new())).await;
    }
    assert_eq!(server.url(), url);
    served(server).await;
}

async fn comes_back_empty(server: &Server) {
    client(server).await.put("gone").await.unwrap();
    server.saboteur().hurt(Hurt::Wipe).await.unwrap();
    assert_eq!(exchange(server).await.unwrap(), None);
}

async fn hangs_whole(server: &Server) {
    client(server).await.put("held").await.unwrap();
    server.saboteur().hurt(Hurt::HalfOpen).await.unwrap();
    hangs(Box::pin(exchange(server))).await;
    server.saboteur().heal().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("held"));
}

async fn is_partitioned(server: &Server) {
    // NATS' members have a leader for each stream.
    client(server).await.put("there").await.unwrap();
    let members = server.members();
    let mode = async |member: &Member| match server.kind() {
        Kind::ZookeeperEnsemble(3) => within(crate::zookeeper::mode(member.address())).await,
        Kind::EtcdCluster(3) => within(crate::etcd::mode(member.address())).await,
        Kind::NatsCluster(3) => within(crate::nats::mode(member.address())).await,
        kind => panic!("no mode of {kind}"),
    };
    let each = (0..members.len()).flat_map(|member| [(Hurt::Partition, member), (Hurt::Mute, member)]);
    for (hurt, cut_off) in each {
        server.saboteur().inject(hurt.of(cut_off)).await.unwrap();
        // The one that is alone stops serving; the two others serve, under a leader of theirs.
        let parted = async {
            loop {
                let mut modes = Vec::new();
                for member in &members {
                    modes.push(mode(member).await);
                }
                let alone = modes.remove(cut_off);
                modes.sort();
                if alone.is_none() && modes == [Some("follower".to_owned()), Some("leader".to_owned())] {
                    return;
                }
                pause::look_again().await;
            }
        };
        within(parted).await;
        // And stays so.
        pause::linger(Duration::from_secs(2)).await;
        assert_eq!(mode(&members[cut_off]).await, None);
        server.saboteur().heal().await.unwrap();
        // The one that was alone may depose the leader once more.
        let rejoined = async {
            for member in &members {
                while mode(member).await.is_none() {
                    pause::look_again().await;
                }
            }
        };
        within(rejoined).await;
    }
}

async fn members_know_nothing_of_each_other(server: &Server) {
    for (number, member) in server.members().into_iter().enumerate() {
        let mut redis = crate::redis::Redis::connect(&member.url()).await.unwrap();
        assert_eq!(redis.get().await.unwrap(), None);
        redis.put(&number.to_string()).await.unwrap();
    }
    server.members()[0].saboteur().hurt(Hurt::Kill).await.unwrap();
    crate::redis::Redis::connect(&server.members()[0].url()).await.map(drop).expect_err("it is dead");
    let mut redis = crate::redis::Redis::connect(&server.members()[1].url()).await.unwrap();
    assert_eq!(redis.get().await.unwrap().as_deref(), Some("1"));
    server.saboteur().heal().await.unwrap();
    let mut redis = crate::redis::Redis::connect(&server.members()[0].url()).await.unwrap();
    assert_eq!(redis.get().await.unwrap().as_deref(), Some("0"));
}
