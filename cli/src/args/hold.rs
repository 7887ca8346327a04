//! `run` and `elect`: a command that holds a lock.

use super::common::{Limit, address, label, lease, name, up_to_a_year};
use clap::{ValueHint, value_parser};
use std::{ffi::OsString, net::SocketAddr, time::Duration};
use tenure::Name;

/// Run a command while holding a lock
///
/// Waits for the lock, runs COMMAND, and exits with COMMAND's exit code. COMMAND gets the lock's name in TENURE_NAME
/// and its fencing token, which rises with each holder, in TENURE_TOKEN. Acquires several names all or none; both
/// variables then have one line for each name, sorted by name.
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
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Hold the lock as a reader, together with others that use --shared
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Let up to N hold the lock at once; everybody must give the same N
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// Hold the lock at most this long, then end COMMAND and exit with 79
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) max_hold: Option<Duration>,
    /// Keep the lock at least this long, even if COMMAND ends sooner
    ///
    /// For a short job that cron starts on several machines: one whose clock is behind finds the lock still held. Give
    /// a time longer than the clocks differ and shorter than the pause between two runs. `tenure` does not wait until
    /// then: the store keeps the lock. For one name only, and not for stores whose locks end with a session (ZooKeeper,
    /// row locks).
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) at_least: Option<Duration>,
}

/// Keep a command running on one of many machines
///
/// Start `tenure elect` on each of them. One leads and runs COMMAND; the others wait. When the leader's machine dies,
/// or cannot reach the store for longer than its lease, another starts COMMAND as soon as that lease is over. When
/// COMMAND ends by itself, `tenure elect` exits with COMMAND's exit code, and another machine takes over.
///
/// A leader that learns that it no longer leads ends COMMAND as `run` does, and becomes a candidate again. COMMAND gets
/// the election's name in TENURE_NAME and its term's number, which rises with each leader, in TENURE_TOKEN.
///
/// Tells a service manager that listens at $NOTIFY_SOCKET, such as systemd with Type=notify, that it takes part and
/// whether it leads. With WatchdogSec= it also pings the watchdog.
#[derive(Debug, clap::Args)]
pub(crate) struct Elect {
    /// The election's name: 1 to 200 bytes without control characters
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Answer probes over HTTP at this port: 200 or 503
    ///
    /// /live is 200 while this process works, /ready once it has reached the store and takes part, /leader (and any
    /// other path) while it leads. A PORT alone can be reached only from this machine (127.0.0.1). If clients come from
    /// elsewhere, as in a pod, give an address too: 0.0.0.0:8089 or [::]:8089.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub(crate) ready_port: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// Lead at most this long, then end COMMAND and become a candidate again
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) max_hold: Option<Duration>,
}

/// How a lock is held while a command runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = HOLDING)]
pub(crate) struct HoldOptions {
    /// How long the store keeps the lock without hearing from its holder [default: 30s]
    ///
    /// `tenure` renews this lease whenever a third of it has passed. If this machine dies, others get the lock when the
    /// lease expires.
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
    /// Without this option, COMMAND finds both variables empty if you named a store by an option or in the environment.
    /// It need not know the store's password, and a `tenure` that it calls exits with 64, rather than use another store
    /// unnoticed.
    #[arg(long)]
    pub(crate) keep_store: bool,
}

/// The heading of the options about the hold itself.
const HOLDING: &str = "Holding";

const RUN_EXAMPLES: &str = "\
Examples:
  tenure run nightly -- ./backup.sh
  tenure run --try report -- make report          exits with 75 at once if another holds it
  tenure run --wait 10m deploy/web -- ./deploy    exits with 75 if another deploy takes longer
  tenure run --permits 4 gpu -- ./train           four at once across all machines
  tenure run account/3 account/7 -- ./transfer    both locks or none
  tenure run --try --at-least 1m job -- ./job     once, although the machines' clocks differ
  tenure run x -- sh -c 'psql -v fence=$TENURE_TOKEN -f job.sql'

Exit codes: COMMAND's own, 75 if another holds the lock, 79 if it was lost; tenure help exit-codes";
