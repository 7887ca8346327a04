//! `tenure ls` and `tenure show`: who holds what.

use crate::{
    args,
    exit::{self, Failure},
    people, stderr, store,
};
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};
use tenure::{Holder, Locks};
use tokio::time::{Instant, sleep_until};

/// How often a list that is watched is drawn.
const AGAIN: Duration = Duration::from_secs(1);
/// Makes a terminal go to its first line and clear what follows: `ED` and `CUP` of ECMA-48.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) async fn ls(store: &args::Store, args: &args::Ls) -> Result<ExitCode, Failure> {
    if args.watch && !io::stdout().is_terminal() {
        let text = "--watch draws on a terminal, and stdout is none; run `tenure ls --json` again and again";
        return Err(Failure::Usage(text.to_owned()));
    }
    let locks = store::open(store).await?;
    if args.watch {
        return watch(&locks, &args.prefix).await;
    }
    let holders = locks.list(&args.prefix).await;
    locks.close().await;
    let holders = holders?;
    print(&holders, args.json)?;
    if holders.is_empty() {
        note("nobody holds anything");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the list until something ends this process, which holds nothing.
async fn watch(locks: &Locks, prefix: &str) -> Result<ExitCode, Failure> {
    loop {
        let asked = Instant::now();
        let screen = match locks.list(prefix).await {
            Ok(holders) if holders.is_empty() => "nobody holds anything\n".to_owned(),
            Ok(holders) => people::table(&holders),
            // The store may come back.
            Err(error) if error.is_retryable() => format!("{error}\n"),
            Err(error) => return Err(error.into()),
        };
        exit::print(&format!("{CLEAR}{screen}"))?;
        sleep_until(asked + AGAIN).await;
    }
}

pub(crate) async fn show(store: &args::Store, args: &args::Show) -> Result<ExitCode, Failure> {
    let locks = store::open(store).await?;
    let holders = locks.holders(&args.name).await;
    locks.close().await;
    let holders = holders?;
    print(&holders, args.json)?;
    if holders.is_empty() {
        note(&format!("nobody holds {:?}", args.name));
        return Ok(ExitCode::from(exit::NOBODY));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(holders: &[Holder], as_json: bool) -> Result<(), Failure> {
    exit::print(&if as_json { people::json(holders) } else { people::table(holders) })
}

/// For a person, who would otherwise see an empty screen.
fn note(text: &str) {
    if io::stderr().is_terminal() {
        stderr::mention(text);
    }
}
