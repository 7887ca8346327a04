//! The judge.

use super::{Event, History, Stamp, Violation, What, account::Account, company, rules};
use std::time::Duration;
use tenure_core::Claim;

/// Says which clauses of the contract a history breaks.
///
/// It is a function of the history alone. It says nothing that the notes do not prove: where the order of two notes
/// leaves a doubt, where a store was made to forget, where a client was frozen or killed, it gives the benefit of it.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    allowance: Duration,
    successors: u32,
}

impl Default for Judge {
    fn default() -> Self {
        Self::new()
    }
}

impl Judge {
    /// A judge that allows for 2 s where a client has to notice or end something in time.
    #[must_use]
    pub const fn new() -> Self {
        Self { allowance: Duration::from_secs(2), successors: *Claim::RESERVE_RANGE.end() }
    }

    /// How late a client may notice a loss or end a wait: the time that a busy machine needs to get round to it, and
    /// one round trip. Nothing is allowed for where two clients exclude each other.
    #[must_use]
    pub const fn allowing(self, allowance: Duration) -> Self {
        Self { allowance, ..self }
    }

    /// To how many successors in a row clients may hand a grant on: the most that any of them has asked for with
    /// [`Locks::with_succession`](tenure_core::Locks::with_succession). Default: 64, the most that can be asked for.
    #[must_use]
    pub const fn with_succession(self, successors: u32) -> Self {
        Self { successors, ..self }
    }

    /// Every violation, in the order of time.
    #[must_use]
    pub fn judge(&self, history: &History) -> Vec<Violation> {
        let account = Account::of(history);
        let mut found = Vec::new();
        for (name, holds) in &account.holds {
            company::company(&account, name, holds, &mut found);
            rules::tokens(&account, name, holds, &mut found);
            rules::losses(&account, name, holds, self.allowance, &mut found);
            rules::early_ends(&account, name, holds, &mut found);
            rules::releases(&account, name, holds, &mut found);
            rules::chains(name, holds, self.successors, &mut found);
            rules::after_close(&account, name, holds, self.allowance, &mut found);
        }
        for (name, events) in &account.resources {
            rules::resource(name, events, &mut found);
        }
        rules::waits(&account, self.allowance, &mut found);
        rules::closings(&account, &mut found);
        rules::latches(&account, &mut found);
        rules::leaks(&account, &mut found);
        found.sort_by_key(|violation| violation.from);
        found
    }

    /// Abilities that clients of this history lack, so that the judge skips them.
    #[must_use]
    pub fn not_offered(history: &History) -> Vec<&'static str> {
        let lacks = |event: &Event| match event.what {
            What::Granted { token, until, .. } => (token == 0, until == Stamp::NEVER),
            _ => (false, false),
        };
        let (tokens, deadlines): (Vec<_>, Vec<_>) = history.events().iter().map(lacks).unzip();
        let token = tokens.contains(&true).then_some("token (clauses T1 and U2)");
        let deadline = deadlines.contains(&true).then_some("deadline (clauses L1 and L5)");
        token.into_iter().chain(deadline).collect()
    }

    /// The violation that takes the least history to see: the one to look at first.
    #[must_use]
    pub fn smallest(violations: &[Violation]) -> Option<&Violation> {
        violations.iter().min_by_key(|violation| (violation.broken, violation.to.since(violation.since)))
    }
}
