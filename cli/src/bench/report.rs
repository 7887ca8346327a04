//! The results of `tenure bench`, for people and for programs.

use super::workloads::{Figures, SHARING, WORKLOADS, Workload};
use crate::{args, people};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::{iter, time::Duration};

/// All results. Its fields are part of the command's interface: see `docs/cli-reference.md`.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) store: String,
    pub(super) seconds: f64,
    pub(super) tasks: u32,
    round_trip: Option<Row>,
    uncontended: Option<Row>,
    many_names: Option<Row>,
    one_name: Option<Row>,
    two_clients: Option<Row>,
}

/// One workload's results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    count: u64,
    pub(super) per_second: Option<f64>,
    median_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// How often the median of the round trip is contained in this median.
    pub(super) round_trips: Option<f64>,
}

impl Row {
    /// `None` if nothing was measured.
    fn of(workload: Workload, figures: &Figures) -> Option<Self> {
        let times = figures.times();
        let quantile = |quantile| millis(times.value_at_quantile(quantile));
        // The two clients wait on purpose most of the time.
        let has_rate = workload != Workload::TwoClients;
        let seconds = figures.elapsed.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "no run counts to 2^53")]
        let count = times.len() as f64;
        (!times.is_empty()).then(|| Self {
            count: times.len(),
            per_second: has_rate.then(|| rounded(count / seconds, 1e1)),
            median_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            max_ms: millis(times.max()),
            round_trips: None,
        })
    }

    /// The cells after the workload's name.
    fn cells(row: Option<Self>) -> [String; 6] {
        let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), three_digits);
        let Some(row) = row else { return std::array::from_fn(|_| number(None)) };
        let [median, p90, p99, max] = [row.median_ms, row.p90_ms, row.p99_ms, row.max_ms].map(time);
        [number(row.per_second), median, p90, p99, max, number(row.round_trips)]
    }
}

impl Report {
    pub(super) fn new(store: &str, args: &args::Bench, figures: &[Figures; WORKLOADS]) -> Self {
        let mut rows = [None; WORKLOADS];
        for ((row, workload), figures) in rows.iter_mut().zip(Workload::ALL).zip(figures) {
            *row = Row::of(workload, figures);
        }
        let bare = rows[0].map(|row| row.median_ms);
        for row in rows.iter_mut().flatten() {
            row.round_trips = bare.map(|bare| rounded(row.median_ms / bare, 1e3));
        }
        let [round_trip, uncontended, many_names, one_name, two_clients] = rows;
        Self {
            store: store.to_owned(),
            seconds: args.seconds.as_secs_f64(),
            tasks: args.tasks,
            round_trip,
            uncontended,
            many_names,
            one_name,
            two_clients,
        }
    }

    pub(super) fn json(&self) -> String {
        let json =
            serde_json::to_string(self).unwrap_or_else(|error| unreachable!("strings and numbers: {error}"));
        json + "\n"
    }

    /// Each workload with its results.
    pub(super) fn rows(&self) -> [(String, Option<Row>); WORKLOADS] {
        let tasks = self.tasks;
        [
            ("round trip".to_owned(), self.round_trip),
            ("acquire and release".to_owned(), self.uncontended),
            (format!("{tasks} tasks, {tasks} names"), self.many_names),
            (format!("{SHARING} tasks, one name"), self.one_name),
            ("hand-off between two clients".to_owned(), self.two_clients),
        ]
    }

    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["WORKLOAD", "A SECOND", "MEDIAN", "90 %", "99 %", "MAX", "ROUND TRIPS"]);
        for (title, row) in self.rows() {
            table.add_row(iter::once(title).chain(Row::cells(row)));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n\n{}", self.store, people::shown(table))
    }
}

/// From nanoseconds.
pub(super) fn millis(nanos: u64) -> f64 {
    rounded(Duration::from_nanos(nanos).as_secs_f64() * 1e3, 1e6)
}

/// To a multiple of 1 / `parts`.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// In the unit that suits it: `49.2 µs`, `1.03 ms`, `12.0 s`.
pub(super) fn time(millis: f64) -> String {
    let (number, unit) = match millis {
        ..0.9995 => (millis * 1e3, "µs"),
        ..999.5 => (millis, "ms"),
        _ => (millis / 1e3, "s"),
    };
    format!("{} {unit}", three_digits(number))
}

/// At least three digits of a number.
pub(super) fn three_digits(number: f64) -> String {
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        let times = [0.000_1, 0.001_536, 0.049_23, 0.999_7, 1.031, 999.7, 61_234.0].map(time);
        assert_eq!(times, ["0.10 µs", "1.54 µs", "49.2 µs", "1.00 ms", "1.03 ms", "1.00 s", "61.2 s"]);
        assert_eq!([15_234.4, 100.2, 99.97, 2.0].map(three_digits), ["15234", "100", "100", "2.00"]);
    }

    /// A hundred times of 1 to 100 ms, in half a second.
    fn measured() -> Figures {
        let figures = Figures { elapsed: Duration::from_millis(500), ..Figures::default() };
        (1..=100).for_each(|millis| figures.times.lock().unwrap().record(millis * 1_000_000).unwrap());
        figures
    }

    #[test]
    fn row_has_measured_figures() {
        let row = Row::of(Workload::Uncontended, &measured()).unwrap();
        assert_eq!((row.count, row.per_second), (100, Some(200.0)));
        for (found, is) in
            [(row.median_ms, 50.0), (row.p90_ms, 90.0), (row.p99_ms, 99.0), (row.max_ms, 100.0)]
        {
            assert!((found / is - 1.0).abs() < 0.002, "{found} is not {is}");
        }
        assert_eq!(Row::of(Workload::TwoClients, &measured()).unwrap().per_second, None);
        assert_eq!(Row::of(Workload::Uncontended, &Figures::default()), None);
    }

    #[test]
    fn store_without_listing_has_no_round_trip() {
        let args = args::Bench { seconds: Duration::from_secs(2), tasks: 8, json: false, svg: None };
        let mut figures: [Figures; WORKLOADS] = Default::default();
        figures[1] = measured();
        let table = Report::new("a store", &args, &figures).table();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["round", "trip", "-", "-", "-", "-", "-", "-"], "{table}");
        assert_eq!((rows[1][3], rows[1].last()), ("200", Some(&"-")), "{table}");
        figures[0] = measured();
        let report = Report::new("a store", &args, &figures);
        assert_eq!(report.uncontended.unwrap().round_trips, Some(1.0));
    }
}
