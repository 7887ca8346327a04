//! Majorities.

use crate::connection::errors::Failure;
use std::time::Duration;
use tenure_core::{Name, StoreError};

/// A number of servers, of which more than half decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    pub(crate) servers: usize,
}

/// How many silent servers an error quotes.
const REASONS: usize = 3;

impl Quorum {
    /// How many servers are a majority: any two majorities share a server.
    pub(crate) fn needed(self) -> usize {
        self.servers / 2 + 1
    }

    /// Whether this many are a majority.
    pub(crate) fn is_met(self, by: usize) -> bool {
        by >= self.needed()
    }

    /// Whether the rest can no longer be a majority if this many are out.
    pub(crate) fn is_beyond(self, out: usize) -> bool {
        self.servers - out < self.needed()
    }

    /// When a majority of servers will have ended that end at these times; `None` means never.
    pub(crate) fn when(self, mut ends: Vec<Option<Duration>>) -> Option<Duration> {
        ends.sort_unstable_by_key(|end| end.unwrap_or(Duration::MAX));
        ends.get(self.needed() - 1).copied().flatten()
    }

    /// The error if too few servers answered. A failure that the user must fix comes before one that may pass.
    pub(crate) fn too_few(self, silent: Vec<Failure>) -> StoreError {
        let servers = self.servers;
        let mut silent: Vec<StoreError> = silent.into_iter().map(|silence| silence.error).collect();
        // In an order of its own: the same error again is no news.
        silent.sort_by_cached_key(|error| (error.is_unavailable(), error.to_string()));
        let lasting = silent.first().is_some_and(|error| !error.is_unavailable());
        let spent = silent.iter().any(StoreError::spends_claim);
        let mut reasons: Vec<String> = silent.iter().map(ToString::to_string).collect();
        reasons.dedup();
        let more = reasons.len().saturating_sub(REASONS);
        reasons.truncate(REASONS);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        let what = if reasons.is_empty() {
            format!("no majority of the {servers} servers answered in time")
        } else {
            format!("no majority of the {servers} servers answered: {}", reasons.join(", "))
        };
        let error = TooFew { what, source: silent.into_iter().next() };
        match (spent, lasting) {
            // Another claim may be granted by these servers.
            (true, _) => StoreError::claim_spent(error),
            (false, true) => StoreError::failed(error),
            (false, false) => StoreError::unavailable(error),
        }
    }

    /// The error if it depends on silent servers whether this name is held.
    pub(crate) fn undecided(self, name: &Name, silent: Vec<Failure>) -> StoreError {
        let mut silent = silent.into_iter().map(|silence| silence.error);
        let source = silent.next();
        let why = source.as_ref().map_or_else(|| "no answer in time".to_owned(), ToString::to_string);
        let what = format!(
            "cannot tell whether {name:?} is held: some of the {} servers have its key, and the missing answers decide: {why}",
            self.servers
        );
        StoreError::unavailable(TooFew { what, source })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct TooFew {
    what: String,
    source: Option<StoreError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_majorities_share_a_node() {
        for servers in 1..=31 {
            let quorum = Quorum { servers };
            assert!(2 * quorum.needed() > servers && quorum.is_met(servers));
            for out in 0..=servers {
                assert_eq!(quorum.is_beyond(out), !quorum.is_met(servers - out), "{out} of {servers}");
            }
        }
    }

    #[test]
    fn a_majority_ends_with_its_last() {
        let (quorum, millis) = (Quorum { servers: 3 }, |n| Some(Duration::from_millis(n)));
        assert_eq!(quorum.when(vec![millis(9), millis(1), millis(5)]), millis(5));
        assert_eq!(quorum.when(vec![millis(9), None, millis(5)]), millis(9));
        assert_eq!(quorum.when(vec![None, None, millis(5)]), None);
        assert_eq!(quorum.when(vec![millis(5)]), None);
    }

    #[test]
    fn what_must_be_mended_is_told_first() {
        let silence = |error| Failure { error, in_doubt: false };
        let passing = || silence(StoreError::unavailable("b did not answer"));
        let error = Quorum { servers: 3 }.too_few(vec![passing(), passing()]);
        assert!(error.is_unavailable());
        assert_eq!(error.to_string(), "no majority of the 3 servers answered: b did not answer");
        let error =
            Quorum { servers: 3 }.too_few(vec![passing(), silence(StoreError::failed("no password"))]);
        let text = "no majority of the 3 servers answered: no password, b did not answer";
        assert!(!error.is_unavailable() && error.to_string() == text, "{error}");
    }
}
