//! The metrics that one case recorded.

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::{collections::BTreeMap, future::Future, time::Duration};
use tokio::runtime::Builder;

/// A metric's name and labels, as in `held{group=-,mode=exclusive,store=memory}`, without `tenure_`.
pub(crate) type Series = String;

/// The metrics recorded so far.
pub(crate) struct Record {
    new: Snapshotter,
    pub(crate) numbers: BTreeMap<Series, f64>,
    pub(crate) times: BTreeMap<Series, Vec<f64>>,
}

impl Record {
    pub(crate) fn of(recorder: &DebuggingRecorder) -> Self {
        Self { new: recorder.snapshotter(), numbers: BTreeMap::new(), times: BTreeMap::new() }
    }

    pub(crate) fn look(&mut self) -> &mut Self {
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
    pub(crate) fn sum(&mut self, metric: &str, parts: &str) -> f64 {
        let begins = format!("{metric}{{");
        let of =
            |series: &Series| series.starts_with(&begins) && parts.split(' ').all(|p| series.contains(p));
        self.look().numbers.iter().filter(|(series, _)| of(series)).map(|(_, number)| number).sum()
    }

    pub(crate) fn times(&mut self, metric: &str) -> Vec<f64> {
        let begins = format!("{metric}{{");
        let of = self.look().times.iter().filter(|(series, _)| series.starts_with(&begins));
        of.flat_map(|(_, times)| times.iter().copied()).collect()
    }

    pub(crate) fn is(&mut self, metric: &str, parts: &str, number: u32) {
        let sum = self.sum(metric, parts);
        let all = || -> Vec<_> {
            self.numbers.iter().filter(|(series, n)| series.starts_with(metric) && **n != 0.0).collect()
        };
        assert!(
            (sum - f64::from(number)).abs() < 1e-9,
            "{metric} {parts}: {sum}, not {number}: {:#?}",
            all()
        );
    }

    pub(crate) fn nothing_is_left(&mut self, of: &str) {
        for gauge in ["held", "waiting"] {
            let left: Vec<_> =
                self.look().numbers.iter().filter(|(series, _)| series.starts_with(gauge)).collect();
            assert!(left.iter().all(|(_, number)| **number == 0.0), "{of}: {left:?}");
        }
    }
}

/// Runs `work` where its metrics are recorded: in a runtime of its own, with its time paused or not.
pub(crate) fn recorded<Work: Future>(paused: bool, work: impl FnOnce(Record) -> Work) -> Work::Output {
    let recorder = DebuggingRecorder::new();
    let runtime = Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(Record::of(&recorder))))
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
