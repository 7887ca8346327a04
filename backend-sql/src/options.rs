//! The ranges of options that several databases share.

use std::{ops::RangeInclusive, time::Duration};
use tenure_core::{Error, Name};

pub(crate) fn check_prefix(prefix: String) -> Result<String, Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(prefix);
    }
    let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}

/// The longest time between two attempts of a waiter.
pub(crate) const POLL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);
/// The range of timeouts: for a request, and for the steps before it.
pub(crate) const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(10);

pub(crate) fn check_range(
    option: &'static str,
    given: Duration,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, Error> {
    if range.contains(&given) {
        return Ok(given);
    }
    let allowed = format!("{:?} to {:?}", range.start(), range.end());
    Err(Error::invalid_option(option, format!("{given:?}"), allowed))
}

/// The kind of a lock on a database server. Each strategy has its own table, so locks of different strategies never
/// meet.
#[cfg(feature = "_server")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A row with the lock's holder, and until when it holds it. A lock needs no connection of its own, and survives
    /// the loss of one.
    #[default]
    LeaseRow,
    /// A row that a transaction has locked, on a connection of its own. Waiters stand in the server's own queue, and
    /// get the lock within one hop of a release. The lock is lost with its connection. There are no readers and no
    /// permits.
    RowLock,
}

#[cfg(feature = "_server")]
impl Strategy {
    /// The default table.
    pub(crate) const fn default_table(self) -> &'static str {
        match self {
            Self::LeaseRow => crate::table::DEFAULT_TABLE,
            Self::RowLock => "tenure_row_locks",
        }
    }

    /// Whether waiters have a queue besides the server's own.
    pub(crate) fn check_fair(self, given: bool) -> Result<bool, Error> {
        if given && self == Self::RowLock {
            let allowed = "false for row locks, which wait in the server's own queue";
            return Err(Error::invalid_option("fair", "true", allowed));
        }
        Ok(given)
    }

    /// The range of `connections`: over how many names are spread, or how many locks may be held or waited for at once.
    #[must_use]
    pub const fn connections(self) -> RangeInclusive<usize> {
        match self {
            Self::LeaseRow => 1..=64,
            Self::RowLock => 1..=1000,
        }
    }

    pub(crate) fn check_connections(self, given: Option<usize>) -> Result<usize, Error> {
        let usual = match self {
            Self::LeaseRow => 2,
            Self::RowLock => 20,
        };
        let (given, range) = (given.unwrap_or(usual), self.connections());
        if range.contains(&given) {
            return Ok(given);
        }
        let allowed = format!("{} to {}", range.start(), range.end());
        Err(Error::invalid_option("connections", given.to_string(), allowed))
    }
}
