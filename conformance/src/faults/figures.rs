//! The figures of a fault run.

use super::options::BESIDE;
use crate::judge::{Broken, Event, History, Violation, What};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};
use tenure_core::Mode;

/// The figures of a fault run.
/// Serialized, they have what the table of long runs has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Rounds that were judged.
    #[serde(skip)]
    pub rounds: u64,
    /// Requests of clients to the store: acquisitions, conversions, releases, and looks at latches.
    /// Renewals are not counted.
    pub operations: u64,
    /// The operations by kind: locks by the mode in which they were granted, conversions, and latches; acquisitions in a
    /// runtime that ended with them, and acquisitions that inherited a grant inside their client.
    #[serde(skip)]
    pub kinds: BTreeMap<&'static str, u64>,
    /// Locks granted.
    pub grants: u64,
    /// Locks lost.
    pub losses: u64,
    /// Acquisitions that ended without the lock: busy, timed out, cancelled, store unavailable.
    #[serde(skip)]
    pub without: u64,
    /// Writes that the resource took.
    #[serde(skip)]
    pub writes: u64,
    /// Clients that the resource refused.
    #[serde(skip)]
    pub refused: u64,
    /// Violations of the contract, with lost updates and leaks.
    pub violations: u64,
    /// Writes through the fence that were lost.
    pub lost_updates: u64,
    /// Locks that were still held when every client had ended and their leases were over.
    pub leaks: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
}

impl Figures {
    pub(super) fn count(&mut self, event: &Event) {
        let kind = match &event.what {
            What::Granted { mode: Mode::Exclusive, .. } => Some("exclusive"),
            What::Granted { mode: Mode::Shared, .. } => Some("shared"),
            What::Granted { mode: Mode::Permit { .. }, .. } => Some("permits"),
            What::Converted { .. } => Some("conversions"),
            What::Looked { .. } => Some("latches"),
            What::Elsewhere { .. } => Some("in a runtime that ends"),
            _ => None,
        };
        if let Some(kind) = kind {
            *self.kinds.entry(kind).or_default() += 1;
        }
        if event.client.contains(BESIDE) && matches!(event.what, What::Granted { .. }) {
            *self.kinds.entry("of the other version").or_default() += 1;
        }
        match &event.what {
            What::Asks { .. } | What::Converted { .. } | What::Looked { .. } | What::Releases { .. } => {
                self.operations += 1;
            }
            What::Granted { .. } => self.grants += 1,
            What::Lost { .. } => self.losses += 1,
            What::Ended { .. } => self.without += 1,
            What::Writes { .. } => self.writes += 1,
            What::Refused { .. } => self.refused += 1,
            // Not injected: a client, which may be another process, began so.
            What::RuntimeEnded => self.count_fault("runtime that ends".to_owned()),
            _ => {}
        }
    }

    pub(super) fn count_round(&mut self, history: &History, violations: &[Violation]) {
        let granted = history.events().iter().filter_map(|event| match &event.what {
            What::Granted { claim, .. } => Some(claim),
            _ => None,
        });
        let claims: Vec<_> = granted.collect();
        // Successors share the claim of the first hold.
        let handed_on = claims.len() - claims.iter().collect::<HashSet<_>>().len();
        if handed_on > 0 {
            *self.kinds.entry("handed on").or_default() += handed_on as u64;
        }
        let of = |broken| violations.iter().filter(|violation| violation.broken == broken).count() as u64;
        self.rounds += 1;
        self.violations += violations.len() as u64;
        self.lost_updates += of(Broken::LostUpdate);
        self.leaks += of(Broken::Leaked);
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
        line("operations", self.operations)?;
        for (kind, count) in &self.kinds {
            line(&format!("  {kind}"), *count)?;
        }
        line("grants", self.grants)?;
        line("losses", self.losses)?;
        line("acquisitions without the lock", self.without)?;
        line("writes through the fence", self.writes)?;
        line("refused at the fence", self.refused)?;
        line("faults", self.injected())?;
        for (kind, count) in &self.faults {
            line(&format!("  {kind}"), *count)?;
        }
        line("violations", self.violations)?;
        line("lost updates through the fence", self.lost_updates)?;
        line("leaks", self.leaks)
    }
}
