//! The command line: subcommands, options and help texts.

#![allow(clippy::doc_markdown, reason = "these comments are the help text, which is no markdown")]

mod common;
mod hold;
mod latch;
mod look;
mod operate;

pub(crate) use common::Limit;
pub(crate) use hold::{Elect, Run, Terms};
pub(crate) use latch::{CountDown, Latch, LatchOf, ShowLatch, WaitForLatch};
pub(crate) use look::{Ls, Release, Show, Wait};
pub(crate) use operate::{Completions, Conformance, Dialect, Man, Ping, Schema, Strategy};

use clap::{
    Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use std::{env, fmt::Write, path::PathBuf};
use tenure::urls::{self, Parameter};

/// Named locks for the shell, on one machine or across a fleet
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, after_long_help = after_help())]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print only errors that change the exit code: no warnings, and nothing while waiting
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Also print what happens to the lock: acquired, released
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line. Options that go with every subcommand may stand before its name and behind it, and clap
    /// looks for conflicts among each of these alone.
    pub(crate) fn parse() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(env::args_os())?;
        let is_given =
            |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        for one in command.get_arguments().filter(|arg| arg.is_global_set()).filter(is_given) {
            if let Some(other) = command.get_arg_conflicts_with(one).into_iter().find(is_given) {
                let [one, other] = [one, other].map(|arg| ContextValue::String(arg.to_string()));
                let usage = ContextValue::StyledStr(command.clone().render_usage());
                let mut error = clap::Error::new(ErrorKind::ArgumentConflict).with_cmd(&command);
                error.insert(ContextKind::InvalidArg, one);
                error.insert(ContextKind::PriorArg, other);
                error.insert(ContextKind::Usage, usage);
                return Err(error);
            }
        }
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// Which store is meant. What is not given here may stand in the environment: see [`store`](crate::store).
#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// Where the locks live
    ///
    /// A URL, as listed below. Default: $TENURE_STORE, or what is in the file $TENURE_STORE_FILE, else this user's
    /// SQLite file on this machine, $XDG_STATE_HOME/tenure/locks.db or ~/.local/state/tenure/locks.db.
    #[arg(long = "store", value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// Read the store's URL from this file
    ///
    /// Use it for a URL with a password, which everybody on this machine can see in a command line.
    #[arg(long = "store-file", value_name = "FILE", value_hint = ValueHint::FilePath, global = true, conflicts_with = "url")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Elect(Elect),
    Wait(Wait),
    Ls(Ls),
    Show(Show),
    Release(Release),
    #[command(subcommand)]
    Latch(Latch),
    Ping(Ping),
    Conformance(Conformance),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

<<<<<<< ours
/// Run a command while holding a lock
///
/// Waits for the lock, runs COMMAND, and exits with its exit code. COMMAND gets the lock's name in TENURE_NAME and its
/// fencing token, which rises with each holder, in TENURE_TOKEN. Several names are acquired all or none; both variables
/// then have one line for each name, sorted by name.
///
/// If the lock is lost (its lease expired while the store was unreachable or the machine was asleep, or somebody
/// released it by force), COMMAND and its process group get SIGTERM at once, and SIGKILL after --kill-after.
///
/// Durations are written like 90s, 5m or 1h30m.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// The lock's name, or several: 1 to 200 bytes without control characters
    #[arg(value_parser = name, value_name = "NAME", required = true)]
    pub(crate) names: Vec<Name>,
    /// Hold the lock as a reader, together with others that use --shared
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Let up to N hold the lock at once; everybody must give the same N
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Hold the lock at most this long, then end COMMAND and exit with 79
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// Keep the lock at least this long, even if COMMAND ends sooner
    ///
    /// For a short job that cron starts on several machines: one whose clock is behind finds the lock still held. Give a
    /// time longer than the clocks differ and shorter than the pause between two runs. This does not wait: the store
    /// keeps the lock. Not for stores whose locks end with a session.
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) at_least: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Keep a command running on exactly one of many machines
///
/// Start this on each of them. One leads and runs COMMAND; the others wait. When the leader's machine dies, or cannot
/// reach the store for longer than its lease, another starts COMMAND within one lease. When COMMAND ends by itself,
/// this exits with its exit code and another machine takes over.
///
/// A leader that learns that it no longer leads ends COMMAND as `run` does, and becomes a candidate again. COMMAND gets
/// the election's name in TENURE_NAME and its term's number, which rises with each leader, in TENURE_TOKEN.
#[derive(Debug, clap::Args)]
pub(crate) struct Elect {
    /// The election's name: 1 to 200 bytes without control characters
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Lead at most this long, then end COMMAND and become a candidate again
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// Do not wait: exit with 75 if another holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,
    /// Wait at most this long, then exit with 75 [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Exit with N, not 75, when the time is over
    #[arg(long, value_name = "N", default_value_t = exit::BUSY, hide_default_value = true)]
    pub(crate) exit_code: u8,
}

/// How a lock is held while a command runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Terms {
    /// How long the store keeps the lock without hearing from its holder [default: 30s]
    ///
    /// It is renewed after a third of that time. If this machine dies, others get the lock when the lease expires.
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// What others see of the holder [default: the command's name]
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) label: Option<String>,
    /// How long a command that lost its lock has between SIGTERM and SIGKILL
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// Tell COMMAND which store this is, in TENURE_STORE or TENURE_STORE_FILE
    ///
    /// Without this, if a store was named by an option or in the environment, COMMAND gets both variables empty, which
    /// `tenure` refuses: the store's password is not COMMAND's business, and a `tenure` in it must not use another
    /// store unnoticed.
    #[arg(long)]
    pub(crate) keep_store: bool,
}

/// Wait until nobody holds a lock, without acquiring it
///
/// Asks the store again and again, once a second in the end, so it may miss a short moment between two holders. Another
/// can acquire the lock at any time: to be the only one, use `tenure run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// List all holders
///
/// Prints one line for each holder, sorted by name. If nobody holds anything, prints nothing and exits with 0.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only list names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Stay, and show the list again every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who holds a lock
///
/// Exits with 1 if nobody holds it.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Release a lock by force, whoever holds it
///
/// The holder learns of it at its next renewal, at most a third of its lease later, and works on until then. If it is
/// `tenure run`, it ends its command. Exits with 1 if nobody holds the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Confirm, although the holder may still be at work
    #[arg(long)]
    pub(crate) force: bool,
}

/// Wait until each of a number of parties has done its part
///
/// A latch opens when all its parties have counted down, and then stays open. Each party counts once, because it is known
/// by its name. A latch has no lease: it stays in the store until it is removed, so use a new name for each purpose. A
/// latch and a lock of the same name have nothing to do with each other.
#[derive(Debug, Subcommand)]
#[command(after_long_help = LATCH_EXAMPLES)]
pub(crate) enum Latch {
    CountDown(CountDown),
    Wait(WaitForLatch),
    Show(ShowLatch),
    Remove(RemoveLatch),
}

/// Count a party down
///
/// Prints how many parties are still missing. Counting down again changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct CountDown {
    #[command(flatten)]
    pub(crate) latch: LatchOf,
    /// The party's name, such as a machine's: 1 to 200 bytes without control characters
    #[arg(value_parser = name)]
    pub(crate) party: Name,
}

/// Wait until a latch is open
#[derive(Debug, clap::Args)]
pub(crate) struct WaitForLatch {
    #[command(flatten)]
    pub(crate) latch: LatchOf,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// Show how many parties have counted down
///
/// Exits with 1 if none has.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowLatch {
    /// The latch's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove a latch and its count, whether it is open or closed
///
/// Whoever waits goes on waiting, for a latch that starts from zero. Does nothing if there is no such latch.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveLatch {
    /// The latch's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
}

/// A latch and its size.
#[derive(Debug, clap::Args)]
pub(crate) struct LatchOf {
    /// The latch's name: 1 to 200 bytes without control characters
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// How many parties it waits for; everybody must give the same N
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) parties: u32,
}

/// Check that a store answers, how fast, and what it can do
///
/// Connects, and then asks who holds a name of its own, acquires it and releases it, a few times over. Touches no other
/// name. Prints the median of each, and the least and the most. Exits with 69 if something failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// How many times
    #[arg(long, value_name = "N", default_value = "10", value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prove a store by running tenure's contract suite against it
///
/// Prints a table of the cases that passed, failed or were skipped, and why. Uses its own namespace, so it never
/// touches locks in use. Exits with 1 if a case failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Conformance {
    /// Only run cases whose names contain this, such as waiting or sqlite::lease
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
}

/// Print the SQL that creates a database's tables, to run it by hand
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// The database
    pub(crate) dialect: Dialect,
    /// How a lock is stored in it
    #[arg(long, default_value = "lease-row")]
    pub(crate) strategy: Strategy,
}

/// Print a script that completes `tenure` commands in a shell
///
/// For bash: tenure completions bash > ~/.local/share/bash-completion/completions/tenure
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Write the manual pages, for those who make packages: tenure.1, tenure-run.1, …
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Man {
    /// The directory, which must exist
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// How a database stores a lock.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Strategy {
    /// A row that says who holds the lock and until when
    LeaseRow,
    /// A row lock of an open transaction
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
  tenure run --try report -- make report          exits with 75 at once if another holds it
  tenure run --wait 10m deploy/web -- ./deploy    exits with 75 if another deploy takes longer
  tenure run --permits 4 gpu -- ./train           four at once across all machines
  tenure run account/3 account/7 -- ./transfer    both locks or none
  tenure run --try --at-least 1m job -- ./job     once, although machines' clocks differ
  tenure run x -- sh -c 'psql -v fence=$TENURE_TOKEN -f job.sql'

Exit codes:
  COMMAND's own, or 128 + the signal that ended it
  64   bad input                  69   the store is unavailable or failed
  75   the lock was not acquired  79   the lock was lost
  126  COMMAND cannot be run      127  COMMAND was not found";

const LATCH_EXAMPLES: &str = "\
Examples:
  tenure latch count-down import/2026-11-25 \"$(hostname)\" --parties 3    on each of three machines
  tenure latch wait import/2026-11-25 --parties 3 && ./report              when all three are done
  tenure latch show import/2026-11-25
  tenure latch remove import/2026-11-25";

=======
>>>>>>> theirs
fn after_help() -> String {
    // Writing to a String cannot fail.
    let mut text = String::from("Stores:\n");
    for scheme in urls::schemes() {
        let _ = writeln!(text, "  {:<14} {}", scheme.form, scheme.about);
    }
    text += "\nURL parameters, as in sqlite:/srv/locks.db?lease=10s&prefix=ci, and their defaults:\n";
    let parameters = urls::parameters();
    for (at, Parameter { name, default, about, stores, .. }) in parameters.iter().enumerate() {
        // What differs from store to store comes again.
        let is_one = parameters.iter().enumerate().all(|(other, one)| at == other || one.name != *name);
        let stores = if is_one { String::new() } else { format!(" ({})", stores.join(", ")) };
        let _ = writeln!(text, "  {name:<16} {default:<12} {about}{stores}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }
}
