//! Ratios measured in one run: two ways of doing the same thing, alternating, reported with medians.

use std::time::{Duration, Instant};

/// One way of doing it, and how long each of its rounds took.
pub(crate) struct Way {
    name: &'static str,
    rounds: Vec<Duration>,
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

    fn median(&self) -> Duration {
        let mut sorted = self.rounds.clone();
        sorted.sort();
        sorted[sorted.len() / 2]
    }

    fn spread(&self) -> (Duration, Duration) {
        let mut sorted = self.rounds.clone();
        sorted.sort();
        (sorted[sorted.len() / 10], sorted[sorted.len() - 1 - sorted.len() / 10])
    }
}

/// Prints both, and which part of the bare way's speed tenure reaches. The ratio is the median of the ratios of
/// neighbouring rounds, so what disturbs the machine for a while disturbs both.
pub(crate) fn report(what: &str, bare: &Way, ours: &Way) {
    println!("{what}");
    for way in [bare, ours] {
        let (low, high) = way.spread();
        println!(
            "  {:<24} {:>10.2?} a cycle (tenth to ninetieth percentile: {low:.2?} to {high:.2?})",
            way.name,
            way.median()
        );
    }
    let mut ratios: Vec<f64> = bare
        .rounds
        .iter()
        .zip(&ours.rounds)
        .map(|(bare, ours)| bare.as_secs_f64() / ours.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("  tenure reaches {:.2} of the bare speed", ratios[ratios.len() / 2]);
}
