//! `tenure ls` and `tenure show`: holders and waiters.

use crate::{
    args,
    exit::{self, Failure},
    people::{self, Entry},
    stderr, store,
};
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};
use tenure::{Capability, Error, Locks, Name, Operation, StoreError};
use tokio::time::{Instant, sleep_until};

/// How often `--watch` draws the list.
const AGAIN: Duration = Duration::from_secs(1);
/// For how many names `ls` says why it cannot list their waiters. It only counts the others.
const EXPLAINED: usize = 10;
/// Makes a terminal go to its first line and clear the rest: `ED` and `CUP` of ECMA-48.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) async fn ls(store: &args::Store, args: &args::Ls) -> Result<ExitCode, Failure> {
    if args.watch && !io::stdout().is_terminal() {
        let text = "--watch needs a terminal, and stdout is not one; run `tenure ls --json` repeatedly";
        return Err(Failure::Usage(text.to_owned()));
    }
    let locks = store::open(store).await?;
    if args.watch {
        return watch(&locks, args).await;
    }
    let list = list(&locks, args).await;
    locks.close().await;
    let list = list?;
    print(&list.entries, args.waiting, args.json)?;
    if list.entries.is_empty() {
        note(&nothing(args));
    }
    for gap in list.gaps() {
        stderr::mention(&gap);
    }
    Ok(ExitCode::SUCCESS)
}

fn nothing(args: &args::Ls) -> String {
    match &*args.prefix {
        "" => "no locks are held".to_owned(),
        prefix => format!("no locks are held whose names begin with {prefix:?}"),
    }
}

/// Shows the list until a signal ends this process, which holds nothing.
async fn watch(locks: &Locks, args: &args::Ls) -> Result<ExitCode, Failure> {
    loop {
        let asked = Instant::now();
        let screen = match list(locks, args).await {
            Ok(list) if list.entries.is_empty() => line(nothing(args)),
            Ok(list) => {
                people::table(&list.entries, args.waiting) + &list.gaps().map(line).collect::<String>()
            }
            // The store may come back.
            Err(error) if error.is_retryable() => line(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        exit::print(&format!("{CLEAR}{screen}"))?;
        sleep_until(asked + AGAIN).await;
    }
}

fn line(text: String) -> String {
    text + "\n"
}

/// The output of `ls`.
struct List {
    entries: Vec<Entry>,
    /// The names whose waiters the store could not list, each with the reason.
    untold: Vec<(Name, StoreError)>,
}

impl List {
    /// Messages about the names without a list of waiters, in a few lines.
    fn gaps(&self) -> impl Iterator<Item = String> {
        let explained = self.untold.iter().take(EXPLAINED);
        // It may repeat another program's text.
        let explained = explained.map(|(name, why)| (name, people::plain(&why.to_string())));
        let explained = explained.map(|(name, why)| format!("cannot list the waiters for {name:?}: {why}"));
        let others = self.untold.len().saturating_sub(EXPLAINED);
        let others = (others > 0).then(|| format!("cannot list the waiters for {others} more names"));
        explained.chain(others)
    }
}

/// The holders of all names that begin with the prefix, and with `--waiting` behind each name's holders its waiters.
///
/// A name that another program damaged has an unknown holder and no list of waiters. It hides no other name.
async fn list(locks: &Locks, args: &args::Ls) -> Result<List, Error> {
    if args.waiting && !locks.capabilities().waiting {
        // Also if all locks are free.
        let refused = StoreError::unsupported(Capability::Waiting);
        return Err(Error::from_store(&locks.store().into(), Operation::Looking, refused));
    }
    let holders = locks.list(&args.prefix).await?;
    let mut list = List { entries: Vec::with_capacity(holders.len()), untold: Vec::new() };
    for holders in holders.chunk_by(|one, next| one.name == next.name) {
        let name = &holders[0].name;
        let told = if args.waiting { locks.waiting(name).await } else { Ok(Vec::new()) };
        let waiters = match told {
            // The store has answered, and may know of the other names.
            Err(Error::Store { source, .. }) => {
                list.untold.push((name.clone(), source));
                Vec::new()
            }
            told => told?,
        };
        list.entries.extend(Entry::all(holders, waiters));
    }
    Ok(list)
}

pub(crate) async fn show(store: &args::Store, args: &args::Show) -> Result<ExitCode, Failure> {
    let locks = store::open(store).await?;
    let entries = look_at(&locks, &args.name, args.waiting).await;
    locks.close().await;
    let entries = entries?;
    print(&entries, args.waiting, args.json)?;
    if !entries.iter().any(Entry::is_holder) {
        note(&format!("lock {:?} in {} is free", args.name, locks.store()));
        return Ok(ExitCode::from(exit::NOT_HELD));
    }
    Ok(ExitCode::SUCCESS)
}

async fn look_at(locks: &Locks, name: &Name, waiting: bool) -> Result<Vec<Entry>, Error> {
    let holders = locks.holders(name).await?;
    let waiters = if waiting { locks.waiting(name).await? } else { Vec::new() };
    Ok(Entry::all(&holders, waiters))
}

fn print(entries: &[Entry], waiting: bool, as_json: bool) -> Result<(), Failure> {
    exit::print(&if as_json { people::json(entries) } else { people::table(entries, waiting) })
}

/// For a person, who would otherwise see an empty screen.
fn note(text: &str) {
    if io::stderr().is_terminal() {
        stderr::mention(text);
    }
}
