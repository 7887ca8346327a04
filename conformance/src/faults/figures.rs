//! What a fault run did, in numbers.

use crate::judge::{Event, What};
use std::{collections::BTreeMap, fmt};

/// What a fault run did, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Rounds that were judged.
    pub rounds: u64,
    /// Locks granted.
    pub grants: u64,
    /// Locks lost.
    pub losses: u64,
    /// Acquisitions that ended without the lock: busy, timed out, cancelled, store unavailable.
    pub without: u64,
    /// Writes that the resource took.
    pub writes: u64,
    /// Clients that the resource refused.
    pub refused: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Violations of the contract.
    pub violations: u64,
}

impl Figures {
    pub(super) fn count(&mut self, event: &Event) {
        match &event.what {
            What::Granted { .. } => self.grants += 1,
            What::Lost { .. } => self.losses += 1,
            What::Ended { .. } => self.without += 1,
            What::Writes { .. } => self.writes += 1,
            What::Refused { .. } => self.refused += 1,
            _ => {}
        }
    }

    pub(super) fn count_fault(&mut self, kind: String) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// How many faults there were.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u64| writeln!(f, "{what:<34}{count:>9}");
        line("rounds", self.rounds)?;
        line("grants", self.grants)?;
        line("losses", self.losses)?;
        line("acquisitions without the lock", self.without)?;
        line("writes through the fence", self.writes)?;
        line("refused at the fence", self.refused)?;
        line("faults", self.injected())?;
        for (kind, count) in &self.faults {
            line(&format!("  {kind}"), *count)?;
        }
        line("violations", self.violations)
    }
}
