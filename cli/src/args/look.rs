//! `wait`, `ls`, `show` and `release`: holders and waiters.

use super::common::Limit;
use tenure::Name;

/// Wait until a lock is free, without acquiring it
///
/// Polls the store, at first often, later about once a second, so it may miss a short gap between two holders. Another
/// client may acquire the lock at any time: to exclude others, use `tenure run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// The lock's name
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// List the holders of all locks
///
/// Prints one line for each holder, sorted by name. If all locks are free, the list is empty and the exit code 0.
/// With --waiting, the waiters for a held name follow its holders.
///
/// MODE is exclusive, shared, or the permits that the holder has, such as 1 of 2. PROCESS is PID@HOST. TOKEN is the
/// fencing token. LEFT is the time until the lease expires, unless the holder renews it.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// List only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Also list waiters in order (Redis, SQL: only with fair=true)
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Refresh the list every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the holders of a lock
///
/// Exits with 1 if the lock is free.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The lock's name
    pub(crate) name: Name,
    /// Also show waiters in order (Redis, SQL: only with fair=true)
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Release a lock that another client holds
///
/// Takes the lock from all its holders. Each works on until its next renewal, usually within a third of its lease, or
/// later if it is frozen or cut off; `tenure run` and `tenure elect` then end their commands. Exits with 1 if the lock
/// is free. Without --force, prints the holders, releases nothing and exits with 64.
#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The lock's name
    pub(crate) name: Name,
    /// Confirm: the holder may still be at work
    #[arg(long)]
    pub(crate) force: bool,
}
