//! Ratios measured in one run: two ways of doing the same thing, alternating, reported with medians.

use std::{
    fs::OpenOptions,
    io::Write,
    time::{Duration, Instant},
};

/// One way of doing it, and how long each of its rounds took.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Duration>,
}

impl Way {
    /// A way without a round yet.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, rounds: Vec::new() }
    }

    /// One round: `cycles` times `work`.
    pub(crate) async fn round(&mut self, cycles: u32, mut work: impl AsyncFnMut()) {
        let start = Instant::now();
        for _ in 0..cycles {
            work().await;
        }
        self.rounds.push(start.elapsed() / cycles);
    }

    pub(crate) fn percentiles<const N: usize>(&self, percents: [usize; N]) -> [Duration; N] {
        let mut sorted = self.rounds.clone();
        sorted.sort();
        percents.map(|percent| sorted[sorted.len() * percent / 100])
    }
}

/// Prints both, and which part of the bare way's speed the other one reaches. The ratio is the median of the ratios of
/// neighbouring rounds, so what disturbs the machine for a while disturbs both.
pub(crate) fn report(what: &str, bare: &Way, other: &Way) {
    println!("{what}");
    for way in [bare, other] {
        let [low, median, high] = way.percentiles([10, 50, 90]);
        println!(
            "  {:<24} {median:>10.2?} a cycle (tenth to ninetieth percentile: {low:.2?} to {high:.2?})",
            way.name
        );
    }
    let mut ratios: Vec<f64> = bare
        .rounds
        .iter()
        .zip(&other.rounds)
        .map(|(bare, other)| bare.as_secs_f64() / other.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = format!("{:.2}", ratios[ratios.len() / 2]);
    println!("  {}: {ratio} of the bare speed", other.name);
    record(what, &ratio, "of the bare speed", &[other, bare]);
}

/// Appends a line to the file that `TENURE_BENCH_RECORD` names, if it is set; `benches/measure` does that. Between tabs
/// are what was measured, the figure, its unit, and of each way the median, tenth and ninetieth percentile in ns.
pub(crate) fn record(what: &str, figure: &str, unit: &str, ways: &[&Way]) {
    let Some(path) = std::env::var_os("TENURE_BENCH_RECORD") else { return };
    let mut fields = vec![what.to_owned(), figure.to_owned(), unit.to_owned()];
    for way in ways {
        fields.extend(way.percentiles([50, 10, 90]).map(|time| time.as_nanos().to_string()));
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file for the figures");
    writeln!(file, "{}", fields.join("\t")).expect("a line for the figure");
}
