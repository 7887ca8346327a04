//! `tenure run`: a command that runs while a lock is held.

use crate::{
    args,
    attend::{self, Ending, with_options},
    exit::Failure,
    farewell::{Ended, farewell, quoted},
    job::{helper, signals::Signals},
    stderr, store, waiting, warnings,
};
use std::{cell::RefCell, process::ExitCode, time::Duration};
use tenure::{Error, Holder, LockSet, LockSetGuard, Locks, Name};
use tokio::time::timeout;

pub(crate) async fn run(store: &args::Store, args: &args::Run) -> Result<ExitCode, Failure> {
    warnings::show();
    can_keep(args)?;
    helper::check()?;
    let url = store::url(store)?;
    let mut signals = Signals::that_end()?;
    let (locks, left) = tokio::select! {
        opened = store::open_to_hold(&url, args.limit.longest()) => opened?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    let outcome = locked(&locks, left, store, args, &mut signals).await;
    let lease = args.hold.lease.unwrap_or(locks.default_lease()).max(args.at_least.unwrap_or_default());
    farewell(&locks, &args.names, lease, outcome).await
}

/// Checks `--at-least`. The library would refuse it too, but by its own name and only once the store is open.
fn can_keep(args: &args::Run) -> Result<(), Failure> {
    let Some(shortest) = args.at_least else { return Ok(()) };
    if args.names.iter().any(|name| *name != args.names[0]) {
        let text = "--at-least works with one name only; give one name, or leave --at-least out";
        return Err(Failure::Usage(text.to_owned()));
    }
    match args.max_hold {
        Some(longest) if shortest > longest => {
            let [shortest, longest] = [shortest, longest].map(humantime::format_duration);
            let text = format!(
                "--at-least {shortest} is longer than --max-hold {longest}; give a shorter --at-least"
            );
            Err(Failure::Usage(text))
        }
        _ => Ok(()),
    }
}

async fn locked(
    locks: &Locks,
    wait: Option<Duration>,
    store: &args::Store,
    args: &args::Run,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let held = tokio::select! {
        held = take(locks, wait, args) => held.map_err(|failure| failure.if_busy(args.limit.exit_code))?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    let variables = store::for_command(store, args.hold.keep_store)?;
    match attend::run(&args.command, &held, signals, &variables, &args.hold, stderr::say).await? {
        Ending::Lost => Err(Failure::Lost),
        Ending::Itself(status) => Ok((status, held)),
    }
}

/// Acquires the locks as the options say, within this time.
async fn take(locks: &Locks, wait: Option<Duration>, args: &args::Run) -> Result<LockSetGuard, Failure> {
    let all = LockSet::of(args.names.iter().map(|name| match args.permits {
        Some(permits) => locks.semaphore(name, permits).permit(),
        None if args.shared => locks.rw(name).read(),
        None => locks.lock(name),
    }));
    let all = all.with(|lock| with_options(lock, &args.hold, args.max_hold, args.at_least, &args.command));
    if args.limit.longest().is_some_and(|wait| wait.is_zero()) {
        let Some(held) = all.try_acquire().await? else {
            let text = match &*args.names {
                [name] => format!("lock {name:?} in {} is busy", locks.store()),
                names => format!("one of the locks {} in {} is busy", quoted(names), locks.store()),
            };
            return Err(Failure::Busy(text, holders(locks, &args.names).await));
        };
        return Ok(held);
    }
    let all = match wait {
        Some(wait) => all.wait(wait),
        None => all,
    };
    let Some(first) = args.names.iter().min() else { unreachable!("clap requires a name") };
    let waits_for = RefCell::new(first.clone());
    let outcome = tokio::select! {
        outcome = all.acquire_telling(|name| drop(waits_for.replace(name.clone()))) => outcome,
        never = waiting::show(locks, || waits_for.borrow().clone()) => match never {},
    };
    let Err(Error::Timeout { name, store, waited, holders: mut known, .. }) = outcome else {
        return Ok(outcome?);
    };
    if known.is_empty() {
        // A wait that is too short leaves no time to ask for the holder.
        known = holders(locks, &args.names).await;
    }
    let why = if known.is_empty() { ": it is held, or the store is slow" } else { "" };
    let waited = humantime::format_duration(waited);
    Err(Failure::Busy(format!("lock {name:?} in {store} was not acquired within {waited}{why}"), known))
}

/// The holders of the locks, for a message; empty if the store does not answer soon.
async fn holders(locks: &Locks, names: &[Name]) -> Vec<Holder> {
    let asked = async {
        let mut holders = Vec::new();
        for name in names {
            holders.extend(locks.holders(name).await?);
        }
        Ok::<_, Error>(holders)
    };
    timeout(Duration::from_secs(1), asked).await.ok().and_then(Result::ok).unwrap_or_default()
}
