//! Tokens of grants whose majorities share only one server.

use crate::nodes::{Nodes, claim, granted, record};
use std::time::{Duration, SystemTime};
use tenure_conformance::saboteur::Hurt;
use tenure_core::{Backend, Token};
use tenure_redis::RedlockBackend;

/// Each grant's majority lacks another node, and the nodes' clocks are a day apart: what one has issued, the next may
/// never have heard of.
#[tokio::test]
async fn tokens_ordered_across_quorums() {
    let nodes = Nodes::start(3).await;
    let day = Duration::from_hours(24);
    let ahead = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + day;
    // As if this server's clock had been a day ahead.
    nodes.tell::<()>(2, &["SET", &record("a"), &format!("{} - 0 nowhere", ahead.as_micros())]);
    let (mut last, mut greatest_seen): (Option<Token>, _) = (None, false);
    for away in [0, 2, 1, 2, 0, 1, 2, 0] {
        nodes.saboteur(away).hurt(Hurt::Freeze).await.unwrap();
        // A new client each time, so that none knows more than the nodes do.
        let backend = RedlockBackend::connect(nodes.options()).await.unwrap();
        let held = granted(&backend, &claim("a")).await;
        assert!(Some(held.token) > last, "without node {away}: {} follows {last:?}", held.token);
        greatest_seen |= u128::from(held.token.get()) > ahead.as_micros();
        for node in (0..3).filter(|node| *node != away) {
            let remembered: String = nodes.tell(node, &["GET", &record("a")]);
            assert!(
                remembered.starts_with(&format!("{} ", held.token)),
                "node {node} remembers {remembered}"
            );
        }
        last = Some(held.token);
        backend.release(&held).await.unwrap();
        nodes.saboteur(away).undo(Hurt::Freeze).await.unwrap();
        backend.close().await;
    }
    assert!(greatest_seen, "the node that is ahead was in no majority");
}
