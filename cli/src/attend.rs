//! A command that runs as long as its lock is held.

use crate::{
    args::HoldOptions,
    exit::Failure,
    job::{Job, end::End, signals::Signals},
    people::plain,
    stderr,
    store::Variables,
};
use nix::sys::signal::Signal;
use std::{
    ffi::{OsStr, OsString},
    future::pending,
    path::Path,
    process::ExitStatus,
    time::Duration,
};
use tenure::{Error, Lock, LockSetGuard, LossCause, Name};
use tokio::time::{Instant, sleep_until};

/// Applies the options to `lock`. The default label is the command's name.
pub(crate) fn with_options(
    lock: Lock,
    options: &HoldOptions,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
    command: &[OsString],
) -> Lock {
    let label = options.label.clone().unwrap_or_else(|| default_label(command, at_least));
    let lock = lock.label(label);
    let lock = match options.lease {
        Some(lease) => lock.lease(lease),
        None => lock,
    };
    let lock = match max_hold {
        Some(longest) => lock.max_hold(longest),
        None => lock,
    };
    match at_least {
        Some(shortest) => lock.hold_at_least(shortest),
        None => lock,
    }
}

/// The command's name, escaped and cut to fit a label. With `--at-least` also that time: the store may show this holder
/// when its process has long ended.
fn default_label(command: &[OsString], at_least: Option<Duration>) -> String {
    let stays = at_least
        .map_or_else(String::new, |shortest| format!(" [at least {}]", humantime::format_duration(shortest)));
    let name = command.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("?"));
    let mut label = plain(&name.to_string_lossy());
    label.truncate(label.floor_char_boundary(Name::MAX_BYTES - stays.len()));
    label + &stays
}

/// How a command ended.
pub(crate) enum Ending {
    Itself(ExitStatus),
    /// The lock was lost before it ended.
    Lost,
}

/// Runs the command while the locks are held, with these variables of its environment set or unset. Reports a loss with
/// `tell`.
pub(crate) async fn run(
    command: &[OsString],
    held: &LockSetGuard,
    signals: &mut Signals,
    variables: &Variables,
    options: &HoldOptions,
    tell: fn(&str),
) -> Result<Ending, Failure> {
    signals.while_running()?;
    let Some((program, rest)) = command.split_first() else { unreachable!("clap requires a command") };
    stderr::written().await;
    let mut job = Job::prepare(program, rest, held, variables)?;
    if let Some(lost) = held.lost_error() {
        // Preparing the job outlasted the lease: the machine was frozen or is overloaded.
        drop(job);
        tell(&format!("{}\n  the command was not started", ended(&lost)));
        return Ok(Ending::Lost);
    }
    job.resume();
    attend(&mut job, held, signals, options.kill_after, tell).await
}

/// The end of a hold in words. To the library, even the one that the user asked for is a loss.
fn ended(lost: &Error) -> String {
    match lost {
        Error::Lost { name, store, cause: LossCause::MaxHold, .. } => {
            format!("lock {name:?} in {store} reached --max-hold; it will be released once the command ends")
        }
        lost => lost.to_string(),
    }
}

/// An event while a command runs.
enum Event {
    Lost,
    /// Time to look at a command that has been told to end.
    Look,
    Signal(Signal),
}

/// Watches the job until it ends: forwards signals to it, and ends it when a lock is lost.
async fn attend(
    job: &mut Job,
    held: &LockSetGuard,
    signals: &mut Signals,
    kill_after: Duration,
    tell: fn(&str),
) -> Result<Ending, Failure> {
    // Set once a lock is lost.
    let mut end: Option<End> = None;
    loop {
        let event = tokio::select! {
            biased;
            _ = held.lost(), if end.is_none() => Event::Lost,
            () = reached(end.as_ref().map(|end| end.look_at)) => Event::Look,
            signal = signals.next() => Event::Signal(signal),
        };
        // This compares clocks, so after a freeze it sees the loss before any timer has fired. It comes before
        // everything else.
        if end.is_none()
            && let Some(lost) = held.lost_error()
        {
            end = Some(End::begin(job, kill_after));
            let after = humantime::format_duration(kill_after);
            tell(&format!("{}\n  ending the command: SIGTERM now, SIGKILL after {after}", ended(&lost)));
        }
        match event {
            Event::Lost | Event::Look => {}
            Event::Signal(Signal::SIGCHLD) => {
                if let (Some(status), None) = (job.check()?, &end) {
                    return Ok(Ending::Itself(status));
                }
            }
            Event::Signal(Signal::SIGCONT) => job.resume(),
            Event::Signal(signal) => job.pass_on(signal),
        }
        if let Some(end) = &mut end
            && end.look(job)?
        {
            return Ok(Ending::Lost);
        }
    }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
