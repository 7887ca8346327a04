//! `ping`, `conformance`, `schema`, `completions` and `man`: for operators and packagers.

use super::common::number;
use clap::{ValueEnum, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

/// Check that a store answers, and show its speed and capabilities
///
/// Connects, and then, --count times, looks up the holder of a name of its own, acquires it and releases it. Touches no
/// other name. Prints the median, shortest and longest time of each step. Exits with 69 if a step fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// How many times to acquire and release
    #[arg(long, value_name = "N", default_value = "10", value_parser = number::<1, 10_000>, allow_hyphen_values = true)]
    pub(crate) count: u32,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Test a store with tenure's contract suite
///
/// Prints how many cases passed and failed, and which were ignored because the store lacks a feature. Uses its own
/// namespace, so it touches no lock in use, but it loads the store and may take minutes. Exits with 1 if a case fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Conformance {
    /// Run only cases whose names contain this, such as waiting or sqlite::lease
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
}

/// Print the SQL that creates tenure's tables, to run by hand
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// The database
    pub(crate) dialect: Dialect,
    /// How the database stores a lock
    #[arg(long, default_value = "lease-row")]
    pub(crate) strategy: Strategy,
    /// Name of the table, as table= in the URL; on a server also SCHEMA.TABLE
    #[arg(long)]
    pub(crate) table: Option<String>,
}

/// Print a shell completion script
///
/// For bash: tenure completions bash > ~/.local/share/bash-completion/completions/tenure
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Write the manual pages for packagers: tenure.1, tenure-run.1, …
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Man {
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// How a database stores a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// A row with the holder and the end of its lease
    LeaseRow,
    /// A row lock of an open transaction
    RowLock,
    /// The server's own named lock: pg_advisory_lock, GET_LOCK
    Advisory,
}

/// A database's dialect of SQL.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    /// MySQL and MariaDB
    Mysql,
}
