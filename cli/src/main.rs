//! `tenure`: holds a lock while a command runs, and lists holders. See `docs/cli.md`.
//!
//! | you look for | it is in |
//! |---|---|
//! | the command line | [`args`] |
//! | enough files that can be opened | [`descriptors`] |
//! | exit codes and messages | [`exit`], [`stderr`], [`warnings`] |
//! | the choice of the store | [`store`] |
//! | `run`: the lock around a command | [`run`], [`attend`], [`waiting`], [`farewell`] |
//! | `elect`: one leader among many machines, and its reports | [`elect`], [`manager`], [`ready`] |
//! | the command's processes | [`job`] |
//! | latches | [`latch`] |
//! | holders and waiters | [`look`], [`wait`], [`release`], [`people`] |
//! | completions, manual pages | [`manual`] |
//! | for operators | [`ping`], [`bench`], [`conformance`], [`schema`] |

#[cfg(not(unix))]
compile_error!("tenure runs commands in process groups, which only Unix has");

mod args;
mod attend;
mod bench;
mod conformance;
mod descriptors;
mod elect;
mod exit;
mod farewell;
mod job;
mod latch;
mod look;
mod manager;
mod manual;
mod people;
mod ping;
mod ready;
mod release;
mod run;
mod schema;
mod stderr;
mod store;
mod wait;
mod waiting;
mod warnings;

use args::{Args, Command};
use exit::Failure;
use job::{helper, signals::Signals};
use nix::sys::signal::SigSet;
use std::process::ExitCode;
use stderr::{Stderr, Volume};

fn main() -> ExitCode {
    // Its caller may have blocked signals. A blocked SIGCHLD would hide the end of the command, and the command would
    // inherit the blocked signals.
    let _ = SigSet::empty().thread_set_mask();
    if let Some(code) = helper::main().or_else(conformance::main) {
        return code;
    }
    let _stderr = match Stderr::open() {
        Ok(stderr) => stderr,
        Err(error) => {
            // Nothing has begun yet, so this may block on stderr.
            eprintln!("tenure: cannot start a thread: {error}");
            return ExitCode::from(exit::SYSTEM);
        }
    };
    match Args::parse() {
        Err(error) => exit::not_understood(&error),
        Ok(args) => {
            stderr::set_volume(match args {
                Args { quiet: true, .. } => Volume::Errors,
                Args { verbose: true, .. } => Volume::Everything,
                _ => Volume::Warnings,
            });
            tenure(args).unwrap_or_else(Failure::report)
        }
    }
}

/// Lets signals end process 1 of a container too: the kernel drops signals that it does not catch. The commands listed
/// here catch them by themselves.
async fn as_any_process(
    command: &Command,
    outcome: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let catches = matches!(
        command,
        Command::Run(_)
            | Command::Elect(_)
            | Command::Wait(_)
            | Command::Latch(args::Latch::Wait(_))
            | Command::Bench(_)
    );
    if catches || std::process::id() != 1 {
        return outcome.await;
    }
    let mut signals = Signals::that_end()?;
    tokio::select! {
        biased;
        outcome = outcome => outcome,
        signal = signals.ending() => Err(Failure::Signal(signal as i32)),
    }
}

fn tenure(args: Args) -> Result<ExitCode, Failure> {
    descriptors::check()?;
    // One thread only: a command is killed when the thread that started it dies.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot start the runtime", error))?;
    let Args { store, command, .. } = args;
    let outcome = runtime.block_on(as_any_process(&command, async {
        match &command {
            Command::Run(args) => run::run(&store, args).await,
            Command::Elect(args) => elect::elect(&store, args).await,
            Command::Wait(args) => wait::wait(&store, args).await,
            Command::Ls(args) => look::ls(&store, args).await,
            Command::Show(args) => look::show(&store, args).await,
            Command::Release(args) => release::release(&store, args).await,
            Command::Latch(args) => latch::latch(&store, args).await,
            Command::Ping(args) => ping::ping(&store, args).await,
            Command::Bench(args) => bench::bench(&store, args).await,
            Command::Conformance(args) => conformance::conformance(&store, args).await,
            Command::Schema(args) => schema::schema(args),
            Command::Completions(args) => manual::completions(args),
            Command::Man(args) => manual::pages(args),
            Command::Urls => manual::topic(&args::urls()),
            Command::ExitCodes => manual::topic(args::EXIT_CODES),
        }
    }));
    // Does not wait for a DNS lookup that hangs.
    runtime.shutdown_background();
    outcome
}
