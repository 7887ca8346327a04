//! Latches, and what is removed when.

use crate::{HANG, proxy_to, server::Server, until};
use std::num::NonZeroU32;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Backend, LatchState, LatchStep, Name};
use tenure_redis::RedisBackend;

const LATCH: &str = "tenure:a\u{1f}{tenure:a}l";

async fn step(backend: &RedisBackend, step: &LatchStep) -> LatchState {
    backend.latch(&Name::new("a").unwrap(), step).await.unwrap()
}

fn count_down(party: &str) -> LatchStep {
    LatchStep::CountDown { party: Name::new(party).unwrap(), of: NonZeroU32::new(3).unwrap() }
}

/// Its removal asks first which latch is there, and the next one begins before that is answered.
#[tokio::test]
async fn a_removal_that_comes_late_leaves_the_next_latch_alone() {
    let server = Server::start();
    let (proxy, options) = proxy_to(&server).await;
    let backend = RedisBackend::connect(options.response_timeout(HANG * 2)).await.unwrap();
    let other = server.backend().await;
    assert_eq!(step(&backend, &count_down("x")).await, LatchState { of: 3, counted: 1 });
    let before = server.scripts_called();
    proxy.set(Direction::Replies, Flow::Hold);
    let late = tokio::spawn(async move { step(&backend, &LatchStep::Remove).await });
    until("it has asked", || server.scripts_called() > before).await;
    assert_eq!(step(&other, &LatchStep::Remove).await, LatchState::default());
    assert_eq!(step(&other, &count_down("x")).await.counted, 1);
    assert_eq!(step(&other, &count_down("y")).await.counted, 2);
    proxy.set(Direction::Replies, Flow::Pass);
    assert_eq!(late.await.unwrap(), LatchState { of: 3, counted: 2 }, "it removed the next one");
    assert_eq!(step(&other, &LatchStep::Look).await, LatchState { of: 3, counted: 2 });
}

/// A latch of an earlier version has no id, and can be removed too.
#[tokio::test]
async fn latch_keeps_its_id_and_is_removed_by_it() {
    let server = Server::start();
    let backend = server.backend().await;
    let id = || server.tell::<String>(&["HGET", LATCH, "id"]);
    assert_eq!(step(&backend, &count_down("x")).await.counted, 1);
    let first = id();
    assert_eq!(step(&backend, &count_down("y")).await.counted, 2);
    assert_eq!(id(), first, "the same latch");
    assert_eq!(step(&backend, &LatchStep::Remove).await, LatchState::default());
    server.tell::<()>(&["HSET", LATCH, "of", "3", "party x", ""]);
    assert_eq!(step(&backend, &LatchStep::Look).await, LatchState { of: 3, counted: 1 });
    assert_eq!(step(&backend, &LatchStep::Remove).await, LatchState::default());
    assert_eq!(step(&backend, &LatchStep::Remove).await, LatchState::default(), "there is none");
    // A number of parties that is none is no reason to keep it.
    server.tell::<()>(&["HSET", LATCH, "of", "x"]);
    assert_eq!(step(&backend, &LatchStep::Remove).await, LatchState::default());
}
