//! The notes of a worker for the judge, and when a worker releases its locks.

use super::*;
use crate::{faults::resource::Shelf, judge::History};
use std::time::Instant;
use tenure_core::{Backend, Conversion, Grant, Memory, StoreError, async_trait, forward_backend};

const LEASE: Duration = Duration::from_secs(1);

/// A store that converts nothing: a downgrade goes on for as long as the lock is held.
struct NeverConverts(Memory);

#[async_trait]
impl Backend for NeverConverts {
    forward_backend!(self => self.0, except convert);

    async fn convert(&self, _: &Grant, _: Mode) -> Result<Conversion, StoreError> {
        Err(StoreError::unavailable("it converts nothing"))
    }
}

/// The first hold that was renewed while it was being converted: the last deadline that was told of before it was given
/// back, and when that was. A hold that this machine was too busy to renew does not count.
fn converted_for_long(history: &History) -> Option<(Stamp, Stamp)> {
    let (mut since, mut told) = (None, Stamp::ZERO);
    for event in history.events() {
        match &event.what {
            What::Holds { until, .. } => told = *until,
            What::Converted { .. } => since = Some(event.at),
            What::Lost { .. } => since = None,
            What::Releases { .. } if since.take().is_some_and(|since| event.at > since + LEASE) => {
                return Some((told, event.at));
            }
            _ => {}
        }
    }
    None
}

/// Found by several runs: the judge heard of no deadline but the first, and took the holder for one that holds past it.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_noted_during_conversion() {
    let (recorder, notes) = Recorder::new();
    let locks = Locks::new(NeverConverts(Memory::new()));
    let mut worker = Worker {
        lane: "a/1".to_owned(),
        locks: locks.clone(),
        names: Arc::from(["a".to_owned()]),
        lease: LEASE,
        resource: Arc::new(Shelf::new(recorder.clone())),
        recorder,
        rng: Rng::with_seed(7),
        stop: CancellationToken::new(),
        hands_on: false,
        owner: Owner::new(),
        owned: None,
        calls: 0,
    };
    let begun = Instant::now();
    let (told, released) = loop {
        let guard = locks.lock("a").lease(LEASE).acquire().await.expect("a free lock");
        worker.hold(Held::One(guard)).await;
        if let Some(found) = converted_for_long(&notes.take()) {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "no conversion took longer than a lease");
    };
    assert!(told > released, "the deadline it told of had passed {:?} before", released.since(told));
}

/// Else it would give back what the judge is to see lost.
#[tokio::test]
async fn remaining_worker_holds_until_renewed_or_lost() {
    let locks = Locks::new(Memory::new());
    // So long that it is renewed in time, however busy the machine is.
    for (lease, renewed) in [(LEASE * 6, true), (LEASE, false)] {
        let guard = locks.lock("a").lease(lease).renew(renewed).acquire().await.expect("a free lock");
        let (holds, deadline) = ([guard.hold()], guard.deadline().expect("a new guard has a deadline"));
        tokio::select! {
            biased;
            _ = Held::lost(&holds) => assert!(!renewed, "it was not renewed"),
            () = had_its_time(&holds, Duration::ZERO, Some(lease)) => {
                let later = guard.deadline().is_some_and(|now| now > deadline);
                assert!(later, "it gave back what was not being renewed");
            }
        }
    }
}
