//! `tenure ls` and `tenure show`: who holds what.

use crate::{
    args,
    exit::{self, Failure},
    people, stderr, store,
};
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};
use tenure::Holder;

pub(crate) async fn ls(store: &args::Store, args: &args::Ls) -> Result<ExitCode, Failure> {
    let locks = store::open(store).await?;
    let holders = locks.list(&args.prefix).await;
    locks.close().await;
    let holders = holders?;
    print(&holders, args.json)?;
    if holders.is_empty() {
        note("nobody holds anything");
    }
    Ok(ExitCode::SUCCESS)
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
