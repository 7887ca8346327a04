//! A run as a row of a table: what it was, how to repeat it, and what came of it.

use super::Figures;
use std::{fmt, time::Duration};

/// A run, for people. Its `Display` is one row, in Markdown, of the table in `docs/reliability.md`.
pub(super) struct Row<'a> {
    pub(super) store: &'a str,
    pub(super) build: &'a str,
    pub(super) seed: u64,
    pub(super) took: Duration,
    pub(super) figures: &'a Figures,
}

impl Row<'_> {
    pub(super) const HEAD: &'static str = "| store | build | seed | minutes | operations | grants | losses | faults | violations | lost updates | leaks |";
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, build, seed, took, figures } = self;
        let minutes = took.as_secs_f64() / 60.0;
        let Figures { operations, grants, losses, violations, lost_updates, leaks, .. } = figures;
        write!(f, "| {store} | {build} | {seed} | {minutes:.1} | {operations} | {grants} | {losses} | ")?;
        write!(f, "{}", figures.injected())?;
        for (place, (kind, count)) in figures.faults.iter().enumerate() {
            write!(f, "{} {kind} {count}", if place == 0 { ":" } else { "," })?;
        }
        write!(f, " | {violations} | {lost_updates} | {leaks} |")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_row_has_cell_for_each_column() {
        let mut figures = Figures { operations: 5, grants: 2, losses: 1, ..Figures::default() };
        figures.count_fault("process killed".into());
        figures.count_fault("server: freeze".into());
        figures.count_fault("server: freeze".into());
        let took = Duration::from_secs(90);
        let row = Row { store: "redis", build: "46a98fc", seed: 7, took, figures: &figures }.to_string();
        assert_eq!(
            row,
            "| redis | 46a98fc | 7 | 1.5 | 5 | 2 | 1 | 3: process killed 1, server: freeze 2 | 0 | 0 | 0 |"
        );
        assert_eq!(row.matches('|').count(), Row::HEAD.matches('|').count());
    }
}
