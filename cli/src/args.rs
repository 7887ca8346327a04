//! The command line: subcommands, options and help texts.

#![allow(clippy::doc_markdown, reason = "these comments are the help text, which is no markdown")]

mod bench;
mod common;
mod hold;
mod latch;
mod look;
mod operate;

pub(crate) use bench::Bench;
pub(crate) use common::Limit;
pub(crate) use hold::{Elect, HoldOptions, Run};
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
    /// One of the URLs that `tenure --help` lists. Default: $TENURE_STORE, or what is in the file $TENURE_STORE_FILE,
    /// else this user's SQLite file on this machine, $XDG_STATE_HOME/tenure/locks.db or ~/.local/state/tenure/locks.db.
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
    Bench(Bench),
    Conformance(Conformance),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

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
