//! A run as a line of JSON: what was run, how to repeat it, and its outcome.

use super::Figures;
use serde::Serialize;
use std::time::Duration;

/// A run, for the table of `docs/reliability.md`, which `docs/pictures/results.py` makes of these lines.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    store: &'a str,
    build: &'a str,
    seed: u64,
    minutes: f64,
    #[serde(flatten)]
    figures: &'a Figures,
}

impl<'a> Report<'a> {
    pub(super) fn of(
        store: &'a str,
        build: &'a str,
        seed: u64,
        took: Duration,
        figures: &'a Figures,
    ) -> Self {
        let minutes = (took.as_secs_f64() / 6.0).round() / 10.0;
        Self { store, build, seed, minutes, figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_build_seed_and_each_kind_of_fault() {
        let mut figures = Figures { operations: 5, grants: 2, losses: 1, leaks: 3, ..Figures::default() };
        figures.count_fault("process killed".into());
        figures.count_fault("server: freeze".into());
        figures.count_fault("server: freeze".into());
        let report = Report::of("redis", "46a98fc", 7, Duration::from_secs(91), &figures);
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"store":"redis","build":"46a98fc","seed":7,"minutes":1.5,"operations":5,"grants":2,"losses":1,"#
                .to_owned()
                + r#""violations":0,"lost_updates":0,"leaks":3,"faults":{"process killed":1,"server: freeze":2}}"#
        );
    }
}
