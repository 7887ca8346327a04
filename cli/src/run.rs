//! `tenure run`: a command that runs while a lock is held.

use crate::{
    args,
    attend::{self, Ending, on_terms},
    exit::{self, Failure},
    signals::Signals,
    stderr, store, waiting, warnings,
};
use std::{process::ExitCode, time::Duration};
use tenure::{Error, Holder, LockSet, LockSetGuard, Locks, Name};
use tokio::time::timeout;

/// How long the end waits for the store: what is not taken back by then runs out with its lease.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) async fn run(store: Option<String>, args: args::Run) -> Result<ExitCode, Failure> {
    warnings::show();
    let mut signals = Signals::that_end()?;
    let locks = tokio::select! {
        locks = store::open_to_hold(store) => locks?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    let outcome = locked(&locks, &args, &mut signals).await;
    farewell(&locks, &args.names).await;
    outcome
}

/// Closes the locks, and says so when the store does not answer.
pub(crate) async fn farewell(locks: &Locks, names: &[Name]) {
    if timeout(FAREWELL, locks.close()).await.is_err() {
        stderr::say(&format!(
            "{} does not answer; what it still keeps of {} runs out with its lease",
            locks.store(),
            quoted(names)
        ));
    }
}

async fn locked(locks: &Locks, args: &args::Run, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let held = tokio::select! {
        held = take(locks, args) => held?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    match attend::run(&args.command, &held, signals, args.terms.kill_after).await? {
        Ending::Lost => Err(Failure::Lost),
        Ending::Itself(status) => attend::release(held).await.map(|()| exit::ended(status)),
    }
}

/// Takes the locks as the options say.
async fn take(locks: &Locks, args: &args::Run) -> Result<LockSetGuard, Failure> {
    let all = LockSet::of(args.names.iter().map(|name| match args.permits {
        Some(permits) => locks.semaphore(name, permits).permit(),
        None if args.shared => locks.rw(name).read(),
        None => locks.lock(name),
    }));
    let all = all.with(|lock| {
        let lock = on_terms(lock, &args.terms, &args.command);
        match args.max_hold {
            Some(longest) => lock.max_hold(longest),
            None => lock,
        }
    });
    if args.once {
        let Some(held) = all.try_acquire().await? else {
            let text = match &*args.names {
                [name] => format!("lock {name:?} in {} is not free", locks.store()),
                names => format!("one of the locks {} in {} is not free", quoted(names), locks.store()),
            };
            return Err(Failure::Busy(text, holders(locks, &args.names).await));
        };
        return Ok(held);
    }
    let all = match args.wait {
        Some(wait) => all.wait(wait),
        None => all,
    };
    tokio::select! {
        outcome = all.acquire() => Ok(outcome?),
        never = waiting::show(locks, &args.names) => match never {},
    }
}

/// Who has the locks, for a message. Without an answer in good time the message does without.
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

/// Names in a sentence: `"a", "b"`.
fn quoted(names: &[Name]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
