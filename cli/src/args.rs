//! The command line: subcommands, options and help texts.

#![allow(clippy::doc_markdown, reason = "these comments are the help text, which is no markdown")]

mod bench;
mod common;
mod hold;
mod latch;
mod look;
mod operate;
mod topics;

pub(crate) use bench::Bench;
pub(crate) use common::Limit;
pub(crate) use hold::{Elect, HoldOptions, Run};
pub(crate) use latch::{CountDown, Latch, LatchOf, ShowLatch, WaitForLatch};
pub(crate) use look::{Ls, Release, Show, Wait};
pub(crate) use operate::{Completions, Conformance, Dialect, Man, Ping, Schema, Strategy};
pub(crate) use topics::{EXIT_CODES, urls};

use clap::{
    Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use std::{env, path::PathBuf};

/// Named locks for the shell, on one machine or across a fleet
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print only errors, and a warning if no store is named
    #[arg(short, long, global = true, help_heading = OF_ALL)]
    pub(crate) quiet: bool,
    /// Also print the store, each acquisition and each release
    #[arg(short, long, global = true, help_heading = OF_ALL, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line. Global options may stand before or after the subcommand's name, and clap looks for
    /// conflicts only within each of these places.
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

/// The store. Without these options the environment may name it: see [`store`](crate::store).
#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// URL of the store [default: $TENURE_STORE or $TENURE_STORE_FILE, else your own SQLite file]
    #[arg(long = "store", value_name = "URL", global = true, help_heading = OF_ALL)]
    pub(crate) url: Option<String>,
    /// Read the URL from this file, to keep its password off the command line
    #[arg(long = "store-file", value_name = "FILE", value_hint = ValueHint::FilePath, global = true, help_heading = OF_ALL, conflicts_with = "url")]
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
    Bench(Bench),
    Conformance(Conformance),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
    /// Stores, their URLs and parameters
    #[command(hide = true, long_about = urls(), help_template = "{about}")]
    Urls,
    /// Exit codes of every command
    #[command(hide = true, long_about = EXIT_CODES, help_template = "{about}")]
    ExitCodes,
}

/// The heading of the options that every command has.
const OF_ALL: &str = "Options of every command";

const EXAMPLES: &str = "\
Examples:
  tenure run nightly -- ./backup.sh
  tenure --store redis://db run --try report -- make report
  tenure ls

More: tenure help COMMAND, tenure help urls (stores), tenure help exit-codes";
