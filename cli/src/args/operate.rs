//! `ping`, `conformance`, `schema`, `completions` and `man`: for those who run a store or install the command.

use clap::{ValueEnum, ValueHint, value_parser};
use clap_complete::Shell;
use std::path::PathBuf;

/// Check that a store answers, how fast, and what it can do
///
/// Connects. Then asks, --count times, who holds a name of its own, acquires it and releases it. Touches no other name.
/// Prints how long each of these took: the median, the smallest and the largest. Exits with 69 if something failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// How many times to acquire and release
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
    /// The table, if the store's URL has table=; on a server also SCHEMA.TABLE
    #[arg(long)]
    pub(crate) table: Option<String>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
