//! What is measured of waits, holds and requests, and that nothing is left over whatever happens to them.

use futures_util::{FutureExt, future::LocalBoxFuture, poll};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    panic::AssertUnwindSafe,
    time::Duration,
};
use tenure_core::{
    Attempt, Backend, Background, Claim, Conversion, Error, Grant, Locks, LossCause, Memory, Mode, Owner,
    Release, Renewal, StoreError, Together, async_trait, forward_backend,
    metrics::{Kind, METRICS, OTHER_GROUPS},
};
use tokio::{runtime::Builder, task::yield_now};

/// A metric's name and labels, as in `held{group=-,mode=exclusive,store=memory}`, without `tenure_`.
type Series = String;

/// What was recorded so far.
struct Record {
    new: Snapshotter,
    numbers: BTreeMap<Series, f64>,
    times: BTreeMap<Series, Vec<f64>>,
}

impl Record {
    fn look(&mut self) -> &mut Self {
        // A snapshot has what came since the last one, gauges too.
        for (key, _, _, value) in self.new.snapshot().into_vec() {
            let (name, labels) = key.key().clone().into_parts();
            let labels: BTreeMap<_, _> =
                labels.iter().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let name = name.as_str().strip_prefix("tenure_").unwrap();
            let series = format!("{name}{{{}}}", labels.join(","));
            match value {
                #[allow(clippy::cast_precision_loss, reason = "there are few")]
                DebugValue::Counter(more) => *self.numbers.entry(series).or_default() += more as f64,
                DebugValue::Gauge(more) => *self.numbers.entry(series).or_default() += more.0,
                DebugValue::Histogram(more) => {
                    self.times.entry(series).or_default().extend(more.iter().map(|time| time.0));
                }
            }
        }
        self
    }

    /// The sum of all series whose text has these parts.
    fn sum(&mut self, metric: &str, parts: &str) -> f64 {
        let begins = format!("{metric}{{");
        let of =
            |series: &Series| series.starts_with(&begins) && parts.split(' ').all(|p| series.contains(p));
        self.look().numbers.iter().filter(|(series, _)| of(series)).map(|(_, number)| number).sum()
    }

    fn times(&mut self, metric: &str) -> Vec<f64> {
        let begins = format!("{metric}{{");
        let of = self.look().times.iter().filter(|(series, _)| series.starts_with(&begins));
        of.flat_map(|(_, times)| times.iter().copied()).collect()
    }

    fn is(&mut self, metric: &str, parts: &str, number: u32) {
        let sum = self.sum(metric, parts);
        assert!(
            (sum - f64::from(number)).abs() < 1e-9,
            "{metric} {parts}: {sum}, not {number}: {:#?}",
            self.numbers
        );
    }

    fn nothing_is_left(&mut self, of: &str) {
        for gauge in ["held", "waiting"] {
            let left: Vec<_> =
                self.look().numbers.iter().filter(|(series, _)| series.starts_with(gauge)).collect();
            assert!(left.iter().all(|(_, number)| **number == 0.0), "{of}: {left:?}");
        }
    }
}

/// Runs `work` where its metrics are recorded: in a runtime of its own, with its time paused or not.
fn recorded<Work: Future>(paused: bool, work: impl FnOnce(Record) -> Work) -> Work::Output {
    let recorder = DebuggingRecorder::new();
    let record = Record { new: recorder.snapshotter(), numbers: BTreeMap::new(), times: BTreeMap::new() };
    let runtime = Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(record)))
}

const SECOND: Duration = Duration::from_secs(1);

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

/// A store that takes its time: there are awaits before and after each request.
#[derive(Clone, Default)]
struct Slow(Memory);

async fn slowly<T>(answer: impl Future<Output = T>) -> T {
    yield_now().await;
    let answer = answer.await;
    yield_now().await;
    answer
}

#[async_trait]
impl Backend for Slow {
    forward_backend!(self => self.0, except try_acquire, try_acquire_all, acquire, release, renew, convert, withdraw);

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        slowly(self.0.try_acquire(claim)).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        slowly(self.0.try_acquire_all(claims)).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        slowly(self.0.acquire(claim)).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        slowly(self.0.release(grant)).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        slowly(self.0.renew(grants)).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        slowly(self.0.convert(grant, to)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        slowly(self.0.withdraw(claim)).await
    }
}

type Work = fn(Locks) -> LocalBoxFuture<'static, ()>;

/// What a program does with its locks: each is dropped at every await.
const DONE: [(&str, Work); 7] = [
    ("a try", |locks| Box::pin(async move { drop(locks.lock("a").try_acquire().await.unwrap()) })),
    ("a wait", |locks| {
        Box::pin(async move {
            let other = locks.lock("a").acquire().await.unwrap();
            let lock = locks.lock("a");
            let (waited, ()) = tokio::join!(lock.acquire(), async {
                yield_now().await;
                other.release().await.unwrap();
            });
            waited.unwrap().release().await.unwrap();
        })
    }),
    ("a run", |locks| Box::pin(async move { locks.lock("a").run(|_| yield_now()).await.unwrap() })),
    ("several names", |locks| {
        Box::pin(async move {
            let other = locks.lock("b").acquire().await.unwrap();
            let all = locks.all(["a", "b", "c"]);
            let (all, ()) = tokio::join!(all.acquire(), async {
                yield_now().await;
                other.release().await.unwrap();
            });
            all.unwrap().release().await.unwrap();
        })
    }),
    ("conversions", |locks| {
        Box::pin(async move {
            let mut guard = locks.rw("a").write().acquire().await.unwrap();
            guard.downgrade().await.unwrap();
            assert!(guard.try_upgrade().await.unwrap());
            guard.release().await.unwrap();
        })
    }),
    ("an owner", |locks| {
        Box::pin(async move {
            let lock = locks.lock("a").owner(&Owner::new());
            let (one, other) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
            one.release().await.unwrap();
            other.release().await.unwrap();
        })
    }),
    ("a permit that is extended", |locks| {
        Box::pin(async move {
            let guard = locks.semaphore("a", 2).permits(2).acquire().await.unwrap();
            guard.extend(SECOND).await.unwrap();
            guard.release().await.unwrap();
        })
    }),
];

#[test]
fn a_future_that_is_dropped_at_any_await_leaves_no_gauge_behind() {
    for (what, done) in DONE {
        let mut polls = 0;
        while !recorded(true, async |mut record| {
            let locks = Locks::new(Slow::default());
            let mut work = done(locks.clone());
            let mut is_done = false;
            for _ in 0..polls {
                is_done = poll!(&mut work).is_ready();
                if is_done {
                    break;
                }
                yield_now().await;
            }
            drop(work);
            locks.close().await;
            record.nothing_is_left(&format!("{what}, dropped after {polls} polls"));
            is_done
        }) {
            polls += 1;
        }
        assert!(polls >= 3, "{what}: only {polls} polls");
    }
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
fn a_panic_in_the_work_ends_the_hold() {
    recorded(true, async |mut record| {
        let locks = Locks::new(Memory::new());
        let lock = locks.lock("a");
        let work = lock.run(async |_| panic!("on purpose"));
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
        locks.close().await;
        record.nothing_is_left("a panic");
        record.is("acquisitions_total", "outcome=acquired", 1);
    });
}

/// Whoever looks first, and whatever is dropped afterwards.
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

/// Renewal with a thread of its own, as in a program, and a store that fails it as often as told.
struct Failing {
    memory: Memory,
    background: Background,
}

#[async_trait]
impl Backend for Failing {
    forward_backend!(self => self.memory, except renew, background);

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        assert_eq!(std::thread::current().name(), Some("tenure"));
        let fails = grants.iter().any(|grant| &*grant.name == "fails");
        if fails { Err(StoreError::unavailable("on purpose")) } else { self.memory.renew(grants).await }
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

#[test]
fn renewals_are_recorded_where_the_client_was_made() {
    recorded(false, async |mut record| {
        let locks = Locks::new(Failing { memory: Memory::new(), background: Background::new() });
        let good = locks.lock("good").lease(SECOND * 5).acquire().await.unwrap();
        let renewed = async {
            while record.sum("renewals_total", "outcome=renewed") < 2.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SECOND * 30, renewed).await.expect("renewed, and recorded");
        good.release().await.unwrap();
        let fails = locks.lock("fails").lease(SECOND).acquire().await.unwrap();
        assert_eq!(tokio::time::timeout(SECOND * 30, fails.lost()).await.unwrap(), LossCause::Expired);
        assert!(record.sum("renewals_total", "outcome=unanswered") >= 1.0);
        assert!(record.sum("store_requests_total", "request=renew outcome=unavailable") >= 1.0);
        assert!(record.times("renewal_lag_seconds").len() >= 3, "each has its lag");
        drop(fails);
        locks.close().await;
        record.nothing_is_left("a loss on another thread");
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
        assert!(waits <= 101, "{waits} groups");
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
