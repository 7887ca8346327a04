//! `run` and `elect`: a command that holds a lock.

use super::common::{Limit, address, label, lease, number, up_to_a_year};
use clap::{ValueHint, value_parser};
use std::{ffi::OsString, net::SocketAddr, time::Duration};
use tenure::Name;

/// Run a command while holding a lock
///
/// Waits for the lock, runs COMMAND, and exits with COMMAND's exit code. COMMAND gets the lock's name in TENURE_NAME
/// and the fencing token in TENURE_TOKEN. Each holder gets a greater token than the one before.
///
/// With several names, `tenure` acquires all or none, and both variables have one line for each name, sorted by name.
///
/// If the lock is lost, COMMAND and its process group get SIGTERM at once, and SIGKILL after --kill-after; meanwhile
/// another holder may start. A lock is lost if the store is unreachable or the machine asleep until the lease expires,
/// if another client releases it by force, or, with row locks and advisory locks, if the connection breaks.
///
/// Durations are written like 90s, 5m or 1h30m.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// One or more lock names: 1 to 200 bytes each, without control characters
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<Name>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Hold the lock as a reader, together with other readers
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Let up to N commands hold the lock at once; all must give the same N
    #[arg(long, value_name = "N", value_parser = number::<1, { u32::MAX }>, allow_hyphen_values = true)]
    pub(crate) permits: Option<u32>,
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// End COMMAND after this long, release the lock and exit with 79
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) max_hold: Option<Duration>,
    /// Keep the lock at least this long, even if COMMAND ends sooner
    ///
    /// For short cron jobs on several machines: with --try, a machine whose clock is behind finds the lock still held and
    /// does not repeat the job. Choose more than the clocks' difference and less than the interval between runs. `tenure`
    /// exits when COMMAND ends; the store keeps the lock, and `ls` shows the ended process as its holder, by default
    /// labelled `COMMAND [at least 1m]`. Takes one name only. Fails with ZooKeeper, etcd, row locks and advisory locks,
    /// where a lock ends with its session.
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) at_least: Option<Duration>,
}

/// Keep a command running on one of many machines
///
/// Start `tenure elect` on each machine. One leads and runs COMMAND; the others wait. If the leader's machine dies or
/// cannot reach the store, another machine starts COMMAND when the leader's lease expires. If COMMAND ends by itself,
/// `tenure elect` exits with COMMAND's exit code, and another machine takes over. `tenure help exit-codes` lists the
/// other codes.
///
/// A leader that loses its term ends COMMAND as `run` does, and becomes a candidate again. COMMAND gets the election's
/// name in TENURE_NAME and the term's number in TENURE_TOKEN. Each leader gets a greater number than the one before.
///
/// If $NOTIFY_SOCKET is set (systemd sets it for Type=notify), `tenure` tells the service manager when this candidate
/// takes part and whether it leads. With WatchdogSec=, `tenure` also pings the watchdog.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ELECT_EXAMPLE)]
pub(crate) struct Elect {
    /// The election's name: 1 to 200 bytes without control characters
    pub(crate) name: Name,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = value_parser!(OsString), value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Answer HTTP health probes at this port with 200 or 503
    ///
    /// /live returns 200 while this process can answer, /ready once it has reached the store and takes part, /leader
    /// (and any other path) while it leads. With a PORT alone, `tenure` listens on 127.0.0.1. If probes come from other
    /// machines, as in a pod, give an address too: 0.0.0.0:8089 or [::]:8089.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub(crate) ready_port: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// Lead at most this long, then end COMMAND and become a candidate again
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true, help_heading = HOLDING)]
    pub(crate) max_hold: Option<Duration>,
}

/// How `tenure` holds a lock while a command runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = HOLDING)]
pub(crate) struct HoldOptions {
    /// How long the store keeps the lock without a renewal [default: the URL's, or 30s]
    ///
    /// `tenure` renews it three times per lease. If this machine dies, another client can acquire the lock
    /// once the lease expires. ZooKeeper and etcd use session_timeout= of the URL instead.
    #[arg(long, value_name = "DURATION", value_parser = lease, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// Describe this holder in `tenure ls` [default: the command's name]
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) label: Option<String>,
    /// If the lock is lost or --max-hold passes, send SIGKILL this long after SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// Pass the store to COMMAND in TENURE_STORE or TENURE_STORE_FILE
    ///
    /// Without it, if you named a store, `tenure` empties both variables for COMMAND, which hides the password. A
    /// `tenure` inside COMMAND then exits with 64 instead of using another store.
    #[arg(long)]
    pub(crate) keep_store: bool,
}

/// The heading of the options about the hold itself.
const HOLDING: &str = "Holding";

const RUN_EXAMPLES: &str = "\
Examples:
  tenure run nightly -- ./backup.sh
  tenure run --try report -- make report          exits with 75 at once if it is not free
  tenure run --wait 10m deploy/web -- ./deploy    exits with 75 if another deploy takes longer
  tenure run --permits 4 gpu -- ./train           four at once across all machines
  tenure run account/3 account/7 -- ./transfer    both locks or none
  tenure run --try --at-least 1m job -- ./job     once, even if the machines' clocks differ
  tenure run x -- sh -c 'psql -v fence=$TENURE_TOKEN -f job.sql'

Exit codes: COMMAND's own; 75 if the lock is not free; 79 if it was lost or --max-hold passed.
For the others: tenure help exit-codes";

const ELECT_EXAMPLE: &str = "\
Example:
  tenure elect scheduler --label \"$(hostname)\" -- /opt/shop/scheduler";
