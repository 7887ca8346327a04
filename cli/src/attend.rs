//! A command that runs as long as its lock is held.

use crate::{
    args::Terms,
    exit::{self, Failure},
    job::Job,
    people::plain,
    signals::Signals,
    stderr,
};
use nix::sys::signal::Signal;
use std::{
    ffi::{OsStr, OsString},
    future::pending,
    path::Path,
    process::ExitStatus,
    time::Duration,
};
use tenure::{Error, Lock, LockSetGuard, Name};
use tokio::time::{Instant, sleep_until};

/// The lock as the options say, with the command's name for a label if they give none.
pub(crate) fn on_terms(lock: Lock, terms: &Terms, command: &[OsString]) -> Lock {
    let label = terms.label.clone().unwrap_or_else(|| default_label(command));
    let lock = lock.label(label);
    match terms.lease {
        Some(lease) => lock.lease(lease),
        None => lock,
    }
}

/// The command's name, as far as it is fit for a label.
fn default_label(command: &[OsString]) -> String {
    let name = command.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("?"));
    let mut label = plain(&name.to_string_lossy());
    label.truncate(label.floor_char_boundary(Name::MAX_BYTES));
    label
}

/// How a command ended.
pub(crate) enum Ending {
    Itself(ExitStatus),
    /// The lock was lost before it ended.
    Lost,
}

/// Runs the command while the locks are held.
pub(crate) async fn run(
    command: &[OsString],
    held: &LockSetGuard,
    signals: &mut Signals,
    kill_after: Duration,
) -> Result<Ending, Failure> {
    signals.while_running()?;
    let Some((program, rest)) = command.split_first() else { unreachable!("clap requires a command") };
    stderr::written().await;
    let mut job = Job::prepare(program, rest, held)?;
    if let Some(lost) = held.lost_error() {
        // To prepare it took as long as that, on a machine that was frozen or has too much to do.
        drop(job);
        stderr::say(&lost.to_string());
        return Ok(Ending::Lost);
    }
    job.resume();
    attend(&mut job, held, signals, kill_after).await
}

/// What happens while a command runs.
enum Event {
    Lost,
    TooLate,
    Signal(Signal),
}

/// Stays with the job until its end: passes signals on to it, and ends it when a lock is lost.
async fn attend(
    job: &mut Job,
    held: &LockSetGuard,
    signals: &mut Signals,
    kill_after: Duration,
) -> Result<Ending, Failure> {
    // Set when a lock is lost: when what is left of the job is killed.
    let mut kill_at: Option<Instant> = None;
    loop {
        let event = tokio::select! {
            biased;
            _ = held.lost(), if kill_at.is_none() => Event::Lost,
            () = reached(kill_at) => Event::TooLate,
            signal = signals.next() => Event::Signal(signal),
        };
        // Compares clocks: after a freeze it knows before any timer has run, so nothing goes before it.
        if kill_at.is_none()
            && let Some(lost) = held.lost_error()
        {
            job.terminate();
            kill_at = Some(Instant::now() + kill_after);
            stderr::say(&lost.to_string());
        }
        match event {
            Event::Lost => {}
            Event::TooLate => {
                job.signal(Signal::SIGKILL);
                kill_at = Some(Instant::now() + Duration::from_secs(1));
            }
            Event::Signal(Signal::SIGCHLD) => match (job.check()?, kill_at) {
                (None, _) => {}
                (Some(status), None) => return Ok(Ending::Itself(status)),
                (Some(_), Some(kill_at)) => {
                    job.gone(kill_at).await;
                    return Ok(Ending::Lost);
                }
            },
            Event::Signal(Signal::SIGCONT) => job.resume(),
            Event::Signal(signal) => job.signal(signal),
        }
    }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Gives the locks back after the command has ended by itself. It had them to its end, and what it did counts: only
/// their loss is a failure.
pub(crate) async fn release(held: LockSetGuard) -> Result<(), Failure> {
    match held.release().await {
        Err(error @ Error::Lost { .. }) => Err(error.into()),
        Err(error) => {
            exit::explain(&error);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
