//! Notices to waiters in a queue, and when they no longer count.

use crate::{HANG, claim, granted, in_time, server::Server, until};
use std::{
    sync::mpsc,
    time::{Duration, Instant, SystemTime},
};
use tenure_core::{Backend, ClaimId};
use tenure_redis::RedisBackend;

const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";

/// A master's notice, with its clock this far ahead.
fn turn(claim: ClaimId, ahead: Duration) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + ahead;
    format!("turn {claim} {0} {0}", since.as_micros())
}

/// After a failover, what the old master said counts no more, however late its clock was.
#[tokio::test]
async fn turn_that_another_master_gave_is_none() {
    let server = Server::start();
    // So patient that it is no fault if this thread, and with it the connection, stands still for a while.
    let options = server.options().fair(true).response_timeout(HANG * 2);
    let fair = async || RedisBackend::connect(options.clone()).await.unwrap();
    let (holder, backend) = (fair().await, fair().await);
    let (held, _other) = (granted(&holder, &claim("a")).await, granted(&holder, &claim("b")).await);
    let waits = claim("a");
    let mut waiting = backend.acquire(&waits);
    let inboxes = || server.tell::<Vec<String>>(&["PUBSUB", "CHANNELS", "tenure:\u{1f}*"]);
    let stands = async {
        until("it listens in the queue", || {
            server.tell::<u64>(&["ZCARD", QUEUE]) == 1 && inboxes().len() == 1
        })
        .await;
        // Answers on one connection come in order: now it has been told so too.
        backend.holders(&held.name).await.unwrap()
    };
    tokio::select! {
        biased;
        granted = &mut waiting => panic!("it is not free: {granted:?}"),
        holders = stands => assert_eq!(holders.len(), 1),
    }
    let [inbox] = &inboxes()[..] else { panic!("one client waits") };
    let publish = |said: &str| assert_eq!(server.tell::<u64>(&["PUBLISH", inbox, said]), 1);
    // From here on the waiter is not polled. It is told of its turn, and then to ask again.
    publish(&turn(waits.id, Duration::from_hours(1)));
    publish("");
    // The client passes notices on in order, so a grant to its other waiter shows that it has done so.
    let (also_waits, (tell, told)) = (claim("b"), mpsc::channel());
    let other = std::thread::spawn({
        let (backend, claim) = (backend.clone(), also_waits.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let granted = runtime.block_on(backend.acquire(&claim)).unwrap();
            tell.send(granted.claim).unwrap();
        }
    });
    let begun = Instant::now();
    let heard = loop {
        publish(&turn(also_waits.id, Duration::ZERO));
        if let Ok(heard) = told.recv_timeout(Duration::from_millis(5)) {
            break heard;
        }
        assert!(begun.elapsed() < HANG, "the other waiter hears nothing");
    };
    assert_eq!(heard, also_waits.id);
    other.join().unwrap();
    for _ in 0..2 {
        let early = tokio::time::timeout(Duration::from_millis(800), &mut waiting).await;
        assert!(early.is_err(), "another holds it: {early:?}");
        // And this is heard after its answer.
        publish(&turn(waits.id, Duration::from_hours(1)));
    }
    holder.release(&held).await.unwrap();
    let granted = in_time("its turn", waiting).await.unwrap();
    assert!(granted.claim == waits.id && granted.token > held.token);
}
