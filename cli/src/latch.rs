//! `tenure latch`: waits until several parties have each done their part.

use crate::{
    args,
    exit::{self, Failure},
    job::signals::Signals,
    people::plain,
    stderr, store, waiting, warnings,
};
use serde::Serialize;
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tenure::{
    Error, Latch, Locks, Name, Operation,
    backend::{self, LatchState, LatchStep},
};
use tokio::time::timeout;

pub(crate) async fn latch(store: &args::Store, args: &args::Latch) -> Result<ExitCode, Failure> {
    warnings::show();
    match args {
        args::Latch::CountDown(args) => count_down(store, args).await,
        args::Latch::Wait(args) => wait(store, args).await,
        args::Latch::Show(args) => show(store, args).await,
        args::Latch::Remove(args) => remove(store, &args.name).await,
    }
}

async fn count_down(store: &args::Store, args: &args::CountDown) -> Result<ExitCode, Failure> {
    let (locks, _) = store::open_to_hold(&store::url(store)?, Some(Duration::ZERO)).await?;
    let args::LatchOf { name, parties } = &args.latch;
    let missing = locks.latch(name, *parties).count_down(&args.party).await;
    locks.close().await;
    exit::print(&format!("{}: {}\n", plain(name), state(missing?, *parties)))?;
    Ok(ExitCode::SUCCESS)
}

async fn wait(store: &args::Store, args: &args::WaitForLatch) -> Result<ExitCode, Failure> {
    let url = store::url(store)?;
    let mut signals = Signals::that_end()?;
    let waited = async {
        let (locks, left) = store::open_to_hold(&url, args.limit.longest()).await?;
        let latch = locks.latch(&args.latch.name, args.latch.parties);
        let waited = tokio::select! {
            waited = opened(&locks, &latch, args, left) => waited,
            never = waiting::tell(|| news(&latch, &args.latch)) => match never {},
        };
        locks.close().await;
        waited
    };
    tokio::select! {
        waited = waited => waited.map_err(|failure| failure.if_busy(args.limit.exit_code))?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at least once, and until the latch is open or the time is over.
async fn opened(
    locks: &Locks,
    latch: &Latch,
    args: &args::WaitForLatch,
    left: Option<Duration>,
) -> Result<(), Failure> {
    let args::LatchOf { name, parties } = &args.latch;
    let within = match (args.limit.once, args.limit.wait) {
        (true, _) => "is closed".to_owned(),
        (false, None) => return Ok(latch.wait().await?),
        (false, Some(wait)) => {
            if let Ok(opened) = timeout(left.unwrap_or(wait), latch.wait()).await {
                return Ok(opened?);
            }
            format!("did not open within {}", humantime::format_duration(wait))
        }
    };
    // The last word is the store's: it may be open just now, or the store is the reason.
    match latch.missing().await? {
        0 => Ok(()),
        missing => {
            let missing = are_missing(missing, *parties);
            let text = format!("latch {name:?} in {} {within}: {missing}", locks.store());
            Err(Failure::Busy(text, Vec::new()))
        }
    }
}

/// The message while `tenure` waits for a latch.
async fn news(latch: &Latch, args::LatchOf { name, parties }: &args::LatchOf) -> String {
    match latch.missing().await {
        Ok(0) => format!("waiting for latch {name:?}: all parties have counted down"),
        Ok(missing) => format!("waiting for latch {name:?}: {}", are_missing(missing, *parties)),
        Err(error) => format!("waiting for latch {name:?}{}", waiting::outage(&error)),
    }
}

/// A latch in JSON. Its fields are part of the command's interface: see `docs/cli-reference.md`.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    parties: Option<u32>,
    counted: u32,
    open: bool,
}

async fn show(store: &args::Store, args: &args::ShowLatch) -> Result<ExitCode, Failure> {
    let name = &args.name;
    let url = store::url(store)?;
    // A `Latch` needs the number of parties; its backend does not.
    let backend = backend::open(&url.text).await.map_err(|error| url.failed(error))?;
    let state = backend.latch(name, &LatchStep::Look).await;
    let store = Arc::from(backend.store());
    backend.close().await;
    let state = state.map_err(|error| Error::from_store(&store, Operation::AtLatch(name.clone()), error))?;
    let LatchState { of, counted, .. } = state;
    let parties = Some(of).filter(|of| *of > 0);
    if args.json {
        let open = parties.is_some() && state.missing() == 0;
        let shown = Shown { name, parties, counted, open };
        let json = serde_json::to_string(&shown)
            .unwrap_or_else(|error| unreachable!("strings and numbers: {error}"));
        exit::print(&format!("{json}\n"))?;
    } else if let Some(parties) = parties {
        exit::print(&format!("{}: {}\n", plain(name), self::state(state.missing(), parties)))?;
    } else if io::stderr().is_terminal() {
        stderr::mention(&format!("there is no latch {name:?}; the first count-down creates it"));
    }
    Ok(if parties.is_some() { ExitCode::SUCCESS } else { ExitCode::from(exit::NOT_HELD) })
}

async fn remove(store: &args::Store, name: &Name) -> Result<ExitCode, Failure> {
    let locks = store::open(store).await?;
    // However many parties it waits for.
    let removed = locks.latch(name, 1).remove().await;
    locks.close().await;
    removed?;
    Ok(ExitCode::SUCCESS)
}

/// A latch in words.
fn state(missing: u32, parties: u32) -> String {
    match missing {
        0 => format!("open, all {parties} parties have counted down"),
        missing => format!("closed, {}", are_missing(missing, parties)),
    }
}

fn are_missing(missing: u32, parties: u32) -> String {
    format!("{missing} of {parties} parties still missing")
}
