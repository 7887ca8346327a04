//! `tenure elect`: a command that runs on one of many machines.

use crate::{
    args,
    attend::{self, Ending, with_options},
    exit::{self, Failure},
    farewell::{Ended, farewell},
    job::{helper, signals::Signals},
    manager::{self, Manager},
    ready::{Candidate, Port},
    stderr,
    store::{self, Url},
    waiting, warnings,
};
use std::{future::pending, process::ExitCode};
use tenure::{Hold, LockSetGuard, Locks};
use tokio::sync::watch;

pub(crate) async fn elect(store: &args::Store, args: &args::Elect) -> Result<ExitCode, Failure> {
    warnings::show();
    helper::check()?;
    let url = store::url(store)?;
    let mut signals = Signals::that_end()?;
    let manager = Manager::find().unwrap_or_else(|error| {
        stderr::mention(&format!("cannot notify the service manager at NOTIFY_SOCKET ({error})"));
        None
    });
    let port = args.ready_port.map(Port::open).transpose()?;
    let (term, seen) = watch::channel(None);
    let (join, joined) = watch::channel(false);
    let mut locks = None;
    let outcome = tokio::select! {
        // Acting comes before reporting.
        biased;
        outcome = async {
            let locks = locks.insert(open(&url, &mut signals).await?);
            join.send_replace(true);
            // Before this, the process does not take part, so it tells the manager nothing.
            tokio::select! {
                biased;
                outcome = terms(locks, store, args, &mut signals, &term) => outcome,
                never = async { match &manager {
                    Some(manager) => manager.report(&args.name, seen.clone()).await,
                    None => pending().await,
                } } => match never {},
            }
        } => outcome,
        never = async { match &port {
            Some(port) => port.answer(Candidate { joined, term: seen.clone() }).await,
            None => pending().await,
        } } => match never {},
    };
    // No task answers there any more.
    drop(port);
    if let Some(manager) = &manager {
        manager.stopping();
    }
    match (&locks, outcome) {
        (Some(locks), outcome) => {
            let lease = args.hold.lease.unwrap_or(locks.default_lease());
            farewell(locks, std::slice::from_ref(&args.name), lease, outcome).await
        }
        (None, outcome) => outcome.map(|(status, _)| exit::ended(status)),
    }
}

/// Opens the store, however long it is unavailable.
async fn open(url: &Url, signals: &mut Signals) -> Result<Locks, Failure> {
    tokio::select! {
        opened = store::open_to_hold(url, None) => opened.map(|(locks, _)| locks),
        signal = signals.next() => Err(Failure::Signal(signal as i32)),
    }
}

/// Serves one term after another, until the command has ended by itself. Sends each to `current`.
async fn terms(
    locks: &Locks,
    store: &args::Store,
    args: &args::Elect,
    signals: &mut Signals,
    current: &watch::Sender<Option<Hold>>,
) -> Result<Ended, Failure> {
    let mut variables = store::for_command(store, args.hold.keep_store)?;
    variables.extend(manager::hidden());
    loop {
        let term = campaign(locks, args, signals).await?;
        current.send_replace(term.holds().next().map(Hold::hold));
        match attend::run(&args.command, &term, signals, &variables, &args.hold, stderr::mention).await? {
            Ending::Lost => {
                stderr::mention(&format!("no longer leading {:?}; campaigning again", args.name));
            }
            Ending::Itself(status) => return Ok((status, term)),
        }
    }
}

/// Waits until this machine leads.
async fn campaign(locks: &Locks, args: &args::Elect, signals: &mut Signals) -> Result<LockSetGuard, Failure> {
    let names = [args.name.clone()];
    let all =
        locks.all(&names).with(|lock| with_options(lock, &args.hold, args.max_hold, None, &args.command));
    let elected = async {
        tokio::select! {
            term = all.acquire() => term,
            never = waiting::show(locks, || args.name.clone()) => match never {},
        }
    };
    tokio::select! {
        term = elected => Ok(term?),
        signal = signals.ending() => Err(Failure::Signal(signal as i32)),
    }
}
