//! Metrics of waits, holds and requests. No gauge keeps counting one that has ended.

mod blocked;
mod dropped;
mod ends;
#[path = "../common/failing.rs"]
mod failing;
mod record;

use futures_util::FutureExt;
use record::{SECOND, recorded};
use std::{collections::BTreeSet, time::Duration};
use tenure_core::{
    AttemptAll, Backend, Claim, Error, Locks, Memory, StoreError, async_trait, forward_backend,
    metrics::{Kind, METRICS, OTHER_GROUPS},
};
use tokio::task::yield_now;

#[test]
fn a_lock_is_measured_from_the_wait_to_the_release() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let guard = locks.lock("orders/42").acquire().await.unwrap();
        record.is("held", "group=orders mode=exclusive store=memory", 1);
        let (waiter, other) = (locks.clone(), locks.clone());
        let waiting = tokio::spawn(async move { waiter.lock("orders/42").acquire().await.unwrap() });
        let late = tokio::spawn(async move { other.lock("orders/42").wait(SECOND).acquire().await });
        tokio::time::sleep(SECOND / 2).await;
        record.is("waiting", "group=orders", 2);
        assert!(locks.lock("orders/42").try_acquire().await.unwrap().is_none());
        assert!(locks.lock("orders/42").wait(Duration::ZERO).acquire().await.is_err());
        tokio::time::sleep(SECOND * 2).await;
        assert!(matches!(late.await.unwrap(), Err(Error::Timeout { .. })));
        record.is("held", "", 1);
        record.is("waiting", "", 1);
        let view = guard.hold();
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        record.is("held", "", 0);
        assert!(!view.is_held(), "who looks at a hold does not keep it");
        for (outcome, number) in
            [("acquired", 2), ("busy", 1), ("timeout", 2), ("failed", 0), ("cancelled", 0)]
        {
            record.is("acquisitions_total", &format!("group=orders outcome={outcome}"), number);
        }
        let waits = record.times("wait_seconds");
        assert!(waits.iter().any(|wait| (2.4..2.7).contains(wait)), "{waits:?}");
        let holds = record.times("hold_seconds");
        assert!(holds.len() == 2 && holds.iter().any(|hold| (2.4..2.7).contains(hold)), "{holds:?}");
        record.is("store_requests_total", "request=release outcome=answered", 2);
        locks.close().await;
        record.nothing_is_left("a life");
    });
}

#[test]
fn an_acquisition_that_is_dropped_was_cancelled() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let _guard = locks.lock("a").acquire().await.unwrap();
        let lock = locks.lock("a");
        assert!(lock.acquire().now_or_never().is_none());
        let waiting = tokio::spawn(async move { lock.acquire().await });
        yield_now().await;
        record.is("waiting", "", 1);
        let closing = tokio::spawn(async move { locks.close().await });
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
        record.is("acquisitions_total", "outcome=cancelled", 2);
        record.is("waiting", "", 0);
        closing.abort();
    });
}

#[test]
fn groups_are_few_and_no_name_is_a_label() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        for number in 0..1000 {
            for name in
                [format!("tenant-{number}/secret"), format!("secret-{number}"), format!("/secret-{number}")]
            {
                locks.lock(name).acquire().await.unwrap().release().await.unwrap();
            }
        }
        record.is("acquisitions_total", "", 3000);
        record.is("acquisitions_total", "group=-", 2000);
        assert!(record.sum("acquisitions_total", &format!("group={OTHER_GROUPS}")) >= 900.0);
        let waits = record.numbers.keys().filter(|series| series.starts_with("waiting{")).count();
        assert_eq!(waits, 102, "a hundred, what has none, and the others");
        let named: Vec<_> =
            record.numbers.keys().chain(record.times.keys()).filter(|s| s.contains("secret")).collect();
        assert!(named.is_empty(), "{named:?}");
        let locks = Locks::new(Memory::new()).without_groups();
        locks.lock("apart/1").acquire().await.unwrap().release().await.unwrap();
        record.is("acquisitions_total", "group=-", 2001);
        record.is("acquisitions_total", "group=apart", 0);
    });
}

/// An acquisition of several names is one of each, however they are requested.
#[test]
fn several_names_count_once_each() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let other = locks.lock("b").acquire().await.unwrap();
        assert!(locks.all(["a", "b"]).try_acquire().await.unwrap().is_none());
        record.is("acquisitions_total", "outcome=busy", 2);
        let all = locks.all(["a", "b"]);
        let (all, released) = tokio::join!(all.acquire(), async {
            tokio::time::sleep(SECOND).await;
            other.release().await
        });
        released.unwrap();
        record.is("held", "", 2);
        record.is("acquisitions_total", "", 5);
        record.is("acquisitions_total", "outcome=acquired", 3);
        all.unwrap().release().await.unwrap();
    });
}

/// A store that does not answer a request for several names.
struct Hangs(Memory);

#[async_trait]
impl Backend for Hangs {
    forward_backend!(self => self.0, except try_acquire_all);

    async fn try_acquire_all(&self, _: &[Claim]) -> Result<AttemptAll, StoreError> {
        std::future::pending().await
    }
}

#[test]
fn a_wait_for_several_names_counts_however_it_ends() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Hangs(Memory::new()));
        let outcome = locks.all(["a", "b"]).wait(SECOND).acquire().await;
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
        record.is("acquisitions_total", "outcome=timeout", 1);
        record.is("acquisitions_total", "", 1);
        let waits = record.times("wait_seconds");
        assert!(matches!(waits[..], [wait] if (0.9..1.2).contains(&wait)), "{waits:?}");
        record.nothing_is_left("a wait for several names");
    });
}

#[test]
fn all_that_is_recorded_is_listed_and_all_that_is_listed_is_recorded() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let guard = locks.lock("a").lease(SECOND).acquire().await.unwrap();
        tokio::time::sleep(SECOND).await;
        guard.release().await.unwrap();
        record.look();
        let recorded = record.numbers.keys().chain(record.times.keys());
        let recorded: BTreeSet<_> =
            recorded.map(|series| series.split('{').next().unwrap().to_owned()).collect();
        let listed: BTreeSet<_> = METRICS.iter().map(|metric| metric.name.replace("tenure_", "")).collect();
        assert_eq!(recorded, listed);
        for metric in METRICS {
            let name = format!("{}{{", metric.name.replace("tenure_", ""));
            let in_numbers = record.numbers.keys().any(|series| series.starts_with(&name));
            assert_eq!(in_numbers, metric.kind != Kind::Histogram, "{name}");
            for series in
                record.numbers.keys().chain(record.times.keys()).filter(|series| series.starts_with(&name))
            {
                for label in metric.labels {
                    let (_, value) = series.split_once(&format!("{}=", label.name)).expect(series);
                    let value = value.split([',', '}']).next().unwrap();
                    assert!(label.values.is_empty() || label.values.contains(&value), "{series}");
                }
                assert_eq!(series.matches('=').count(), metric.labels.len(), "{series}");
            }
        }
    });
}
