//! `bench`: for those who choose a store, or set one up.

use clap::{ValueHint, value_parser};
use std::{path::PathBuf, time::Duration};

/// Measure how fast a store is, compared with its bare round trip
///
/// It writes to the store: for as long as it runs, it acquires and releases locks there, and so writes and deletes keys
/// or rows. The locks' names begin with tenure-bench/ and a random number; it touches no other name. At the end, and
/// after Ctrl-C, it releases everything. A store remembers the last token of each name for a while: in Redis and in
/// databases, this leaves some 70 keys or rows for a day.
///
/// Prints a line for each of five workloads: the smallest request (who holds a name?); one task that acquires and
/// releases a lock, both timed together; many tasks that do so at once, each with its own name; 16 tasks that want the
/// same name, timed until the grant; and two clients that hand a lock back and forth, timed from the release to the
/// next grant. Exits with 69 if something failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// How many seconds to spend on each of the five workloads, which take turns
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) seconds: Duration,
    /// How many tasks acquire locks at once, each with its own name
    #[arg(long, value_name = "N", default_value = "64", value_parser = value_parser!(u32).range(2..=1000))]
    pub(crate) tasks: u32,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the measured times, and write the picture to this file as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let given = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    given.map(Duration::from_secs_f64).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        format!("{text:?} is not a number of seconds from 0.1 to 3600; give one like 2 or 0.5")
    })
}
