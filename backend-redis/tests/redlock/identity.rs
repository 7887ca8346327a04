//! Which server answers at an address: one that is named twice has one vote.

use crate::nodes::{Nodes, claim, granted, record};
use std::time::Duration;
use tenure_conformance::{proxy::Proxy, saboteur::Hurt};
use tenure_core::{Backend, Error, Release, Renewal};
use tenure_redis::{RedisOptions, RedlockBackend, RedlockOptions};
use tenure_testbed::claims::said;

fn options(addresses: &[String]) -> RedlockOptions {
    let server =
        |address: &String| RedisOptions::from_url(&format!("redis://{address}")).expect("a good URL");
    RedlockOptions::of(addresses.iter().map(server)).node_timeout(Duration::from_secs(3))
}

fn port(nodes: &Nodes, node: usize) -> u16 {
    nodes.member(node).address().port()
}

#[tokio::test]
async fn one_server_under_two_addresses_is_refused() {
    let nodes = Nodes::start(3).await;
    let (twice, other) = (port(&nodes, 0), port(&nodes, 1));
    let addresses =
        [format!("127.0.0.1:{twice}"), format!("localhost:{twice}"), format!("127.0.0.1:{other}")];
    let error = RedlockBackend::connect(options(&addresses)).await.unwrap_err();
    let text = said(&error);
    assert!(matches!(error, Error::Store { .. }), "{text}");
    for part in [&*addresses[0], &*addresses[1], "are the same server"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// It was away when the client compared the servers.
#[tokio::test]
async fn server_that_turns_out_to_be_another_has_no_vote() {
    let nodes = Nodes::start(3).await;
    let again = Proxy::start(format!("127.0.0.1:{}", port(&nodes, 0)).parse().unwrap()).await.unwrap();
    again.refuse().await;
    let mut addresses = [0, 1].map(|node| format!("127.0.0.1:{}", port(&nodes, node))).to_vec();
    addresses.push(again.address().to_string());
    let backend = RedlockBackend::connect(options(&addresses)).await.unwrap();
    again.accept().await.unwrap();
    let held = granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
    // Two of three addresses answer, and they are one server.
    nodes.saboteur(1).hurt(Hurt::Freeze).await.unwrap();
    let error = backend.try_acquire(&claim("a")).await.expect_err("one server of two is a majority");
    assert!(error.to_string().contains("are the same server"), "{error}");
    nodes.saboteur(1).undo(Hurt::Freeze).await.unwrap();
    // The address is led to another server: it is looked at anew with the connection.
    again.set_upstream(format!("127.0.0.1:{}", port(&nodes, 2)).parse().unwrap());
    again.cut().await;
    nodes.saboteur(1).hurt(Hurt::Freeze).await.unwrap();
    let held = granted(&backend, &claim("b")).await;
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
    nodes.saboteur(1).undo(Hurt::Freeze).await.unwrap();
    backend.close().await;
}

#[tokio::test]
async fn each_connection_is_asked_once_for_its_server() {
    let nodes = Nodes::start(3).await;
    let before = [0, 1, 2].map(|node| nodes.calls(node, "info"));
    let backend = nodes.backend().await;
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for turn in 0..10 {
        let backend = backend.clone();
        let take = async move {
            let held = granted(&backend, &claim("a")).await;
            assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
        };
        if turn % 2 == 0 { take.await } else { other.spawn(take).await.unwrap() }
    }
    for (node, before) in before.into_iter().enumerate() {
        // The look before the test is one more.
        let asked = nodes.calls(node, "info") - before - 1;
        assert!(asked <= 2, "asked {asked} times on two connections");
    }
    other.shutdown_background();
    backend.close().await;
}

/// A counter that another program has spoilt: that server's vote is missing, and where too few are left, the error names it.
#[tokio::test]
async fn spoilt_counter_costs_its_server_the_vote() {
    let nodes = Nodes::start(3).await;
    let backend = nodes.backend().await;
    let spoilt = [format!("{} somebody 1 host ", 1_u64 << 53), "abc".to_owned()];
    nodes.tell::<()>(0, &["SET", &record("a"), &spoilt[0]]);
    let held = granted(&backend, &claim("a")).await;
    assert!(held.token.get() < 1 << 53);
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
    nodes.tell::<()>(1, &["SET", &record("a"), &spoilt[1]]);
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!error.is_unavailable() && error.to_string().contains(&format!("{:?}", record("a"))), "{error}");
    assert!(!nodes.has_key(0, "a") && !nodes.has_key(1, "a"));
    // Raised by the second round no further than Redis counts, and never back.
    for node in [0, 1] {
        nodes.tell::<()>(node, &["SET", &record("a"), &format!("{} somebody 1 host ", (1_u64 << 53) - 2)]);
    }
    let held = granted(&backend, &claim("a")).await;
    assert_eq!(held.token.get(), (1 << 53) - 1);
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
    assert!(backend.try_acquire(&claim("a")).await.is_err());
    backend.close().await;
}

#[tokio::test]
async fn full_servers_renew_and_release() {
    let nodes = Nodes::start(3).await;
    let backend = nodes.backend().await;
    let held = granted(&backend, &claim("a")).await;
    for node in 0..3 {
        nodes.tell::<()>(node, &["CONFIG", "SET", "maxmemory", "1"]);
    }
    assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
    let error = backend.try_acquire(&claim("b")).await.unwrap_err();
    assert!(error.to_string().contains("no memory left"), "{error}");
    assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
    backend.withdraw(&claim("c")).await.unwrap();
    backend.close().await;
}
