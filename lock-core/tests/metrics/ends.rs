//! How holds end: what is lost, what is renewed, and what is released.

use crate::{
    failing::Failing,
    record::{Record, SECOND, recorded},
};
use metrics_util::debugging::DebuggingRecorder;
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Backend, Grant, Locks, LossCause, Memory, Release, Renewal, StoreError, async_trait, forward_backend,
};
use tokio::{runtime::Builder, sync::Notify, task::yield_now};

/// A release or drop after the loss does not count it again.
#[test]
fn a_loss_counts_once_with_its_cause() {
    for cause in [LossCause::Expired, LossCause::MaxHold, LossCause::Forced] {
        for released in [true, false] {
            recorded(true, async |mut record| {
                let locks = Locks::new(Memory::new());
                let lock = locks.lock("a").lease(SECOND).renew(cause != LossCause::Expired);
                let lock = if cause == LossCause::MaxHold { lock.max_hold(SECOND * 3) } else { lock };
                let (guard, other) =
                    (lock.acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap());
                if cause == LossCause::Forced {
                    locks.force_release("a").await.unwrap();
                }
                assert_eq!(guard.lost().await, cause);
                // It is recorded behind the loss.
                yield_now().await;
                record.is("held", "", 1);
                if released {
                    guard.release().await.unwrap_err();
                } else {
                    // By then the store has forgotten it too, and says so to the release in the background.
                    tokio::time::sleep(SECOND * 2).await;
                    drop(guard);
                }
                other.release().await.unwrap();
                locks.close().await;
                record.is("losses_total", "", 1);
                record.is("losses_total", &format!("cause={}", cause.as_str()), 1);
                record.nothing_is_left(cause.as_str());
            });
        }
    }
}

#[test]
fn a_loss_that_the_release_discovers_counts_too() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let guard = locks.lock("a").acquire().await.unwrap();
        locks.force_release("a").await.unwrap();
        guard.release().await.unwrap_err();
        record.is("losses_total", "", 1);
        record.is("losses_total", "cause=forced", 1);
        record.nothing_is_left("a late discovery");
    });
}

#[test]
fn renewals_are_recorded_where_the_client_was_made() {
    recorded(false, async |mut record| {
        let locks = Locks::new(Failing::default());
        let good = locks.lock("good").lease(SECOND * 5).acquire().await.unwrap();
        let renewed = async {
            while record.sum("renewals_total", "outcome=renewed") < 2.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SECOND * 30, renewed).await.expect("renewed, and recorded");
        good.release().await.unwrap();
        // So long that a renewal is asked for before it ends, also where the machine stalls.
        let fails = locks.lock("fails").lease(SECOND * 4).acquire().await.unwrap();
        assert_eq!(tokio::time::timeout(SECOND * 30, fails.lost()).await.unwrap(), LossCause::Expired);
        assert!(record.sum("renewals_total", "outcome=unanswered") >= 1.0);
        assert!(record.sum("store_requests_total", "request=renew outcome=unavailable") >= 1.0);
        assert!(record.times("renewal_lag_seconds").len() >= 3, "each has its lag");
        drop(fails);
        locks.close().await;
        record.nothing_is_left("a loss on another thread");
    });
}

/// A store that carries out at once what it is asked, and answers when it may.
#[derive(Clone, Default)]
struct AnswersLater {
    memory: Memory,
    asked: Arc<Notify>,
    may_answer: Arc<Notify>,
    /// Replaces the memory's answer to a renewal.
    renewal: Option<Result<Renewal, ()>>,
}

impl AnswersLater {
    async fn later<T>(&self, answer: T) -> T {
        self.asked.notify_one();
        self.may_answer.notified().await;
        answer
    }
}

#[async_trait]
impl Backend for AnswersLater {
    forward_backend!(self => self.memory, except renew);

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let renewed = self.memory.renew(grants).await;
        let answer = match self.renewal {
            None => renewed,
            Some(Ok(answer)) => Ok(vec![answer; grants.len()]),
            Some(Err(())) => Err(StoreError::unavailable("on purpose")),
        };
        self.later(answer).await
    }
}

#[test]
fn a_renewal_that_a_release_overtakes_is_none() {
    for renewal in [None, Some(Ok(Renewal::Lost(LossCause::Forgotten))), Some(Err(()))] {
        for extends in [false, true] {
            recorded(true, async |mut record| {
                let store = AnswersLater { renewal, ..AnswersLater::default() };
                let locks = Locks::new(store.clone());
                let guard = locks.lock("a").lease(SECOND * 30).renew(!extends).acquire().await.unwrap();
                let hold = guard.hold();
                let extension = tokio::spawn(async move {
                    if extends { hold.extend(SECOND * 20).await.map_err(drop) } else { Ok(()) }
                });
                store.asked.notified().await;
                guard.release().await.unwrap();
                store.may_answer.notify_one();
                let _ = extension.await.unwrap();
                let answered = async {
                    while record.sum("store_requests_total", "request=renew") < 1.0 {
                        yield_now().await;
                    }
                };
                tokio::time::timeout(SECOND, answered).await.unwrap();
                locks.close().await;
                record.is("renewals_total", "", 0);
                record.is("losses_total", "", 0);
                record.nothing_is_left("a renewal that was overtaken");
            });
        }
    }
}

/// A store that carries a release out, and answers it, only when its runtime is polled once more.
#[derive(Clone, Default)]
struct ReleasesLater {
    memory: Memory,
    asked: Arc<Notify>,
}

#[async_trait]
impl Backend for ReleasesLater {
    forward_backend!(self => self.memory, except release);

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.asked.notify_one();
        yield_now().await;
        self.memory.release(grant).await
    }
}

/// A runtime is kept and no longer driven, so the background sends the release again. Then the runtime is driven once
/// more, and both are answered.
fn released_twice(forced: bool, mut is: impl FnMut(&mut Record)) {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let recorder = DebuggingRecorder::new();
    let mut record = Record::of(&recorder);
    metrics::with_local_recorder(&recorder, || {
        let (store, kept) = (ReleasesLater::default(), runtime());
        let locks = Locks::new(store.clone());
        kept.block_on(async {
            let guard = locks.lock("a").lease(SECOND * 3600).acquire().await.unwrap();
            if forced {
                locks.force_release("a").await.unwrap();
            }
            drop(guard);
            store.asked.notified().await;
        });
        let mut answered = async |times: f64| {
            let all = async {
                while record.sum("store_requests_total", "request=release outcome=answered") < times {
                    tokio::time::sleep(SECOND / 50).await;
                }
            };
            tokio::time::timeout(SECOND * 30, all).await.expect("it is answered");
        };
        runtime().block_on(answered(1.0));
        kept.block_on(answered(2.0));
        // Waits for the work after each answer, too.
        runtime().block_on(locks.close());
        drop(kept);
    });
    is(&mut record);
    record.nothing_is_left("a release that was sent twice");
}

#[test]
fn a_release_that_is_sent_twice_is_no_loss() {
    released_twice(false, |record| record.is("losses_total", "", 0));
}

#[test]
fn a_loss_that_is_answered_twice_is_one() {
    released_twice(true, |record| record.is("losses_total", "cause=forced", 1));
}
