//! `wait`, `ls`, `show` and `release`: who holds what, and who waits for it.

use super::common::{Limit, name};
use tenure::Name;

/// Wait until nobody holds a lock, without acquiring it
///
/// Asks the store again and again, in the end once a second, so it may miss a short moment between two holders. Another
/// may acquire the lock at any time: to be the only one, use `tenure run`.
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
/// Prints one line for each holder, sorted by name. If nobody holds anything, prints nothing and exits with 0. With
/// --waiting, those who wait for a held name follow its holders.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only list names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Also list who waits, in order; not for stores without a queue
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Show the list again every second, until Ctrl-C
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
    /// Also show who waits, in order; not for stores without a queue
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Print a JSON array, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Release a lock by force, whoever holds it
///
/// The holder learns of the loss at its next renewal, at most a third of its lease later, and works on until then. If
/// the holder is `tenure run`, it then ends its command. Exits with 1 if nobody holds the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The lock's name
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Confirm, although the holder may still be at work
    #[arg(long)]
    pub(crate) force: bool,
}
