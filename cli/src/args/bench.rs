//! `bench`: helps to choose a store, or to set one up.

use super::common::number;
use clap::ValueHint;
use std::{path::PathBuf, time::Duration};
use tenure::Error;

/// The workloads, in the order of the output's lines.
const WORKLOADS: &str = "\
Workloads:
  round trip
      look up a name's holder, which is the smallest request
  acquire and release
      one task, one name; both requests are timed together
  64 tasks, 64 names
      the same by many tasks at once, each with its own name
  16 tasks, one name
      tasks compete for one lock; timed from the request to the grant
  hand-off between two clients
      two clients take turns; timed from the release to the next grant";

/// Measure how fast a store is, compared with its smallest request
///
/// Writes to the store: it acquires and releases locks whose names begin with tenure-bench/ and a random number, and
/// touches no other name. At the end, and after Ctrl-C, it releases everything. Redis and databases remember the last
/// token of each name, so some 70 keys or rows stay for a day.
///
/// Exits with 69 if a request fails.
#[derive(Debug, clap::Args)]
#[command(after_long_help = WORKLOADS)]
pub(crate) struct Bench {
    /// Seconds for each of the five workloads, which take turns
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) seconds: Duration,
    /// How many tasks acquire locks at once, each with its own name
    #[arg(long, value_name = "N", default_value = "64", value_parser = number::<2, 1000>, allow_hyphen_values = true)]
    pub(crate) tasks: u32,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the measured times into this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let given = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    given.map(Duration::from_secs_f64).ok_or_else(|| {
        let text = Error::excerpt(text);
        format!("{text} is not a number of seconds from 0.1 to 3600; give one like 2 or 0.5")
    })
}
