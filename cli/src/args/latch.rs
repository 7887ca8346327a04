//! `latch`.

use super::common::{Limit, number};
use clap::Subcommand;
use tenure::Name;

/// Wait until several parties have each done their part
///
/// A latch opens when all its parties have counted down, and then stays open. Each party has a name, and counts once. A
/// latch has no lease: it stays in the store until you remove it, so use a new name each time. A lock
/// with the same name is independent of the latch.
#[derive(Debug, Subcommand)]
#[command(after_long_help = LATCH_EXAMPLES)]
pub(crate) enum Latch {
    CountDown(CountDown),
    Wait(WaitForLatch),
    Show(ShowLatch),
    Remove(RemoveLatch),
}

/// Count down for one party
///
/// Prints how many parties are still missing. Counting down again changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct CountDown {
    #[command(flatten)]
    pub(crate) latch: LatchOf,
    /// The party's name, such as a machine's: 1 to 200 bytes without control characters
    #[arg(value_parser = party)]
    pub(crate) party: Name,
}

/// Wait until a latch opens
#[derive(Debug, clap::Args)]
pub(crate) struct WaitForLatch {
    #[command(flatten)]
    pub(crate) latch: LatchOf,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// Show how many parties have counted down
///
/// Exits with 1 if there is no such latch.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowLatch {
    /// The latch's name
    pub(crate) name: Name,
    /// Print a JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove a latch and its count, open or closed
///
/// Its waiters go on waiting until all parties have counted down again. Does nothing if there is no such latch.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveLatch {
    /// The latch's name
    pub(crate) name: Name,
}

/// A latch and its size.
#[derive(Debug, clap::Args)]
pub(crate) struct LatchOf {
    /// The latch's name: 1 to 200 bytes without control characters
    pub(crate) name: Name,
    /// Number of parties; all must give the same N
    #[arg(long, value_name = "N", value_parser = number::<1, { u32::MAX }>, allow_hyphen_values = true)]
    pub(crate) parties: u32,
}

fn party(text: &str) -> Result<Name, String> {
    text.parse().map_err(|invalid| format!("PARTY: {invalid}"))
}

const LATCH_EXAMPLES: &str = "\
Examples:
  tenure latch count-down import/2026-11-25 \"$(hostname)\" --parties 3    on each of three machines
  tenure latch wait import/2026-11-25 --parties 3 && ./report              when all three are done
  tenure latch show import/2026-11-25
  tenure latch remove import/2026-11-25";
