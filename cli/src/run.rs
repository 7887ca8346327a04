//! `tenure run`: a command that runs while a lock is held.

use crate::{
    args,
    exit::{self, Failure},
    job::Job,
    people::plain,
    signals::Signals,
    store, waiting, warnings,
};
use nix::sys::signal::Signal;
use std::{
    ffi::OsStr,
    future::pending,
    path::Path,
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tenure::{Error, Guard, Holder, Locks, Name};
use tokio::time::{Instant, sleep_until, timeout};

/// How long the end waits for the store: what is not taken back by then runs out with its lease.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) async fn run(store: Option<String>, args: args::Run) -> Result<ExitCode, Failure> {
    warnings::show();
    let mut signals = Signals::that_end()?;
    let locks = tokio::select! {
        locks = store::open(store) => locks?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    let outcome = locked(&locks, &args, &mut signals).await;
    if timeout(FAREWELL, locks.close()).await.is_err() {
        exit::say(&format!(
            "{} does not answer; what it still keeps of {:?} runs out with its lease",
            locks.store(),
            args.name
        ));
    }
    outcome
}

async fn locked(locks: &Locks, args: &args::Run, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let guard = tokio::select! {
        guard = take(locks, args) => guard?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    signals.while_running()?;
    let Some((program, rest)) = args.command.split_first() else { unreachable!("clap requires a command") };
    let mut job = Job::start(program, rest, &guard)?;
    let ending = attend(&mut job, locks, &guard, signals, args.kill_after).await;
    drop(job);
    let ending = ending?;
    match ending {
        Ending::Lost => Err(Failure::Lost),
        Ending::Itself(status) => match guard.release().await {
            Ok(()) => Ok(exit::ended(status)),
            Err(error @ Error::Lost { .. }) => Err(error.into()),
            // The command had the lock to its end, and what it did counts.
            Err(error) => {
                exit::explain(&error);
                Ok(exit::ended(status))
            }
        },
    }
}

/// Takes the lock as the options say.
async fn take(locks: &Locks, args: &args::Run) -> Result<Guard, Failure> {
    let label = args.label.clone().unwrap_or_else(|| default_label(&args.command));
    let mut lock = locks.lock(&args.name).label(label);
    if let Some(lease) = args.lease {
        lock = lock.lease(lease);
    }
    if let Some(longest) = args.max_hold {
        lock = lock.max_hold(longest);
    }
    if let Some(wait) = args.wait {
        lock = lock.wait(wait);
    }
    if args.once {
        let Some(guard) = lock.try_acquire().await? else {
            let text = format!("lock {:?} in {} is not free", args.name, locks.store());
            return Err(Failure::Busy(text, holders(locks, &args.name).await));
        };
        return Ok(guard);
    }
    let outcome = tokio::select! {
        outcome = lock.acquire() => outcome,
        never = waiting::show(locks, &args.name) => match never {},
    };
    match outcome {
        Err(error @ Error::Timeout { .. }) => {
            Err(Failure::Busy(error.to_string(), holders(locks, &args.name).await))
        }
        outcome => Ok(outcome?),
    }
}

/// The command's name, as far as it is fit for a label.
fn default_label(command: &[std::ffi::OsString]) -> String {
    let name = command.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("?"));
    let mut label = plain(&name.to_string_lossy());
    label.truncate(label.floor_char_boundary(Name::MAX_BYTES));
    label
}

/// Who has the lock, for a message. Without an answer in good time the message does without.
async fn holders(locks: &Locks, name: &Name) -> Vec<Holder> {
    timeout(Duration::from_secs(1), locks.holders(name)).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// How a command ended.
enum Ending {
    Itself(ExitStatus),
    /// The lock was lost before it ended.
    Lost,
}

/// What happens while a command runs.
enum Event {
    Lost,
    TooLate,
    Signal(Signal),
}

/// Stays with the job until its end: passes signals on to it, and ends it when the lock is lost.
async fn attend(
    job: &mut Job,
    locks: &Locks,
    guard: &Guard,
    signals: &mut Signals,
    kill_after: Duration,
) -> Result<Ending, Failure> {
    // Set when the lock is lost: when what is left of the job is killed.
    let mut kill_at: Option<Instant> = None;
    loop {
        let event = tokio::select! {
            biased;
            _ = guard.lost(), if kill_at.is_none() => Event::Lost,
            () = reached(kill_at) => Event::TooLate,
            signal = signals.next() => Event::Signal(signal),
        };
        // Compares clocks: after a freeze it knows before any timer has run, so nothing goes before it.
        if kill_at.is_none()
            && let Some(cause) = guard.loss()
        {
            job.terminate();
            kill_at = Some(Instant::now() + kill_after);
            let (name, store) = (guard.name().clone(), locks.store().into());
            exit::say(&Error::Lost { name, store, cause }.to_string());
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
