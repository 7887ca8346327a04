//! What can be written at the shell.

#![allow(clippy::doc_markdown, reason = "these comments are the help text, which is no markdown")]

use clap::{Parser, Subcommand, ValueEnum, value_parser};
use std::{ffi::OsString, fmt::Write, time::Duration};
use tenure::{HolderInfo, InvalidName, Name, lease, urls};

/// One lock API over many stores, at the shell: one at a time, on one machine or across a fleet.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, after_long_help = after_help())]
pub(crate) struct Args {
    /// Where the locks live
    ///
    /// A URL; see below. Without it and without TENURE_STORE: a SQLite file of this user on this machine,
    /// $XDG_STATE_HOME/tenure/locks.db or ~/.local/state/tenure/locks.db.
    #[arg(long, value_name = "URL", global = true, env = "TENURE_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Elect(Elect),
    Ls(Ls),
    Show(Show),
    Release(Release),
    Conformance(Conformance),
    Schema(Schema),
}

/// Run a command while holding a lock
///
/// Waits for the lock, runs COMMAND, and ends with its exit code. COMMAND finds the lock's name in TENURE_NAME and its
/// fencing token, which rises with each holder, in TENURE_TOKEN. Of several names all are had, or none; then both
/// variables have a line for each, in the order of the names.
///
/// When the lock is lost (the lease ran out while the store could not be reached or the machine was asleep, or somebody
/// released it by force), COMMAND and its process group get SIGTERM at once, and SIGKILL after --kill-after.
///
/// Durations are written like 90s, 5m or 1h30m.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// The lock's name, or several: 1 to 200 bytes without control characters
    #[arg(value_parser = name, value_name = "NAME", required = true)]
    pub(crate) names: Vec<Name>,
    /// Hold it together with others who say --shared, while nobody holds it alone
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Hold it together with others, so many at once at most; all must say the same number
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    /// Do not wait: end with 75 if another holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,
    /// Wait at most this long, then end with 75 [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Hold the lock at most this long, then end COMMAND and end with 79
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString))]
    pub(crate) command: Vec<OsString>,
}

/// Keep a command running on exactly one of many machines
///
/// Start this on each of them. One leads and runs COMMAND; the others wait. When the leader's machine dies, or loses
/// the store for longer than its lease, another one starts COMMAND within a lease. When COMMAND ends by itself, this
/// ends with its exit code and another machine's turn comes.
///
/// A leader that finds out that it leads no more ends COMMAND as `run` does, and becomes a candidate again. COMMAND
/// finds the election's name in TENURE_NAME and the number of its term, which rises with each leader, in TENURE_TOKEN.
#[derive(Debug, clap::Args)]
pub(crate) struct Elect {
    /// The election's name: 1 to 200 bytes without control characters
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString))]
    pub(crate) command: Vec<OsString>,
}

/// How a lock is held while a command runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Terms {
    /// How long the store keeps the lock for a holder of whom it hears nothing [default: 30s]
    ///
    /// It is renewed at a third of that. If this machine dies, others get the lock after it.
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// What others are told about the holder [default: the command's name]
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) label: Option<String>,
    /// How long after SIGTERM a command that lost its lock gets SIGKILL
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) kill_after: Duration,
}

/// List who holds what
///
/// One line for each holder, ordered by name. Nothing is printed, and the exit code is 0, when nobody holds anything.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who holds a lock
///
/// Ends with 1 when nobody holds it.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a lock away from whoever holds it
///
/// The holder learns of it with its next renewal, a third of its lease later at most; until then it goes on working. A
/// command under `tenure run` is then ended. Ends with 1 when nobody holds the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Yes, although its holder is still at work
    #[arg(long)]
    pub(crate) force: bool,
}

/// Prove a store: run the suite of tenure's contract against it
///
/// Prints a table of what passed, failed, or was left out and why. Works in a namespace of its own, so locks in use are
/// not touched. Ends with 1 when a case failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Conformance {
    /// Only cases whose name contains this, like waiting or sqlite::lease
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
}

/// Print the table that a database needs, to create it by hand
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// The database
    pub(crate) dialect: Dialect,
    /// What a lock is in it
    #[arg(long, default_value = "lease-row")]
    pub(crate) strategy: Strategy,
}

/// What a lock is in a database.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Strategy {
    /// A row that says who holds it, until when
    LeaseRow,
    /// A row that a connection has locked
    RowLock,
}

/// A database's dialect of SQL.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    /// `MariaDB` too
    Mysql,
}

const RUN_EXAMPLES: &str = "\
Examples:
  tenure run nightly -- ./backup.sh
  tenure run --try report -- make report          75 at once if it is already being made
  tenure run --wait 10m deploy/web -- ./deploy    75 if another deploy takes longer than that
  tenure run --permits 4 gpu -- ./train           four at once on all machines together
  tenure run account/3 account/7 -- ./transfer    both or none
  tenure run x -- sh -c 'psql -v fence=$TENURE_TOKEN -f job.sql'

Exit codes:
  COMMAND's own, or 128 + the signal that ended it
  64   bad input              69   the store is unavailable or failed
  75   the lock was not acquired   79   the lock was lost
  126  COMMAND cannot be run  127  COMMAND was not found";

fn after_help() -> String {
    // Nothing that is written to a text can fail.
    let mut text = String::from("Stores:\n");
    for scheme in urls::SCHEMES.iter().filter(|scheme| scheme.built_in) {
        let _ = writeln!(text, "  {:<14} {}", scheme.form, scheme.about);
    }
    text += "\nParameters of a URL, as in sqlite:/srv/locks.db?lease=10s&prefix=ci, and their defaults:\n";
    for parameter in urls::PARAMETERS {
        let _ = writeln!(text, "  {:<16} {:<12} {}", parameter.name, parameter.default, parameter.about);
    }
    text
}

fn name(text: &str) -> Result<Name, InvalidName> {
    Name::new(text)
}

fn label(text: &str) -> Result<String, tenure::Error> {
    HolderInfo::check_label(text)
}

fn lease(text: &str) -> Result<Duration, String> {
    duration(text, lease::MIN_LEASE, "100ms to 365days")
}

fn up_to_a_year(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, "0s to 365days")
}

fn duration(text: &str, least: Duration, range: &str) -> Result<Duration, String> {
    let refused = |why: String| {
        let text: String = text.chars().take(40).collect();
        format!("{text:?} {why}; valid is {range}, written as in 90s, 5m or 1h30m")
    };
    match humantime::parse_duration(text) {
        Ok(given) if least <= given && given <= lease::MAX_LEASE => Ok(given),
        Ok(_) => Err(refused("is out of range".to_owned())),
        Err(error) => Err(refused(format!("is no duration: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
