//! `tenure elect`: a command that runs on one of many machines.

use crate::{
    args,
    attend::{self, Ending, on_terms},
    exit::{self, Failure},
    run::farewell,
    signals::Signals,
    stderr, store, terminal, waiting, warnings,
};
use nix::{sys::signal::Signal, unistd::getpgrp};
use std::process::ExitCode;
use tenure::{LockSetGuard, Locks};

pub(crate) async fn elect(store: &args::Store, args: &args::Elect) -> Result<ExitCode, Failure> {
    warnings::show();
    let url = store::url(store)?;
    let mut signals = Signals::that_end()?;
    let locks = tokio::select! {
        locks = store::open_to_hold(&url) => locks?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    let outcome = terms(&locks, store, args, &mut signals).await;
    farewell(&locks, std::slice::from_ref(&args.name)).await;
    outcome
}

/// Serves one term after another, until the command has ended by itself.
async fn terms(
    locks: &Locks,
    store: &args::Store,
    args: &args::Elect,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    loop {
        let term = campaign(locks, args, signals).await?;
        match attend::run(&args.command, &term, signals, store, &args.terms, stderr::mention).await? {
            Ending::Lost => {
                stderr::mention(&format!("no longer leading {:?}; campaigning again", args.name));
            }
            Ending::Itself(status) => return attend::release(term).await.map(|()| exit::ended(status)),
        }
    }
}

/// Waits until this machine leads.
async fn campaign(locks: &Locks, args: &args::Elect, signals: &mut Signals) -> Result<LockSetGuard, Failure> {
    let names = [args.name.clone()];
    let all = locks.all(&names).with(|lock| on_terms(lock, &args.terms, args.max_hold, &args.command));
    let elected = async {
        tokio::select! {
            term = all.acquire() => term,
            never = waiting::show(locks, &names) => match never {},
        }
    };
    tokio::pin!(elected);
    loop {
        tokio::select! {
            term = &mut elected => return Ok(term?),
            signal = signals.next() => match signal {
                // After a first term, these signals are still caught.
                Signal::SIGTSTP => {
                    terminal::stop(getpgrp());
                }
                Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGWINCH => {}
                signal => return Err(Failure::Signal(signal as i32)),
            },
        }
    }
}
