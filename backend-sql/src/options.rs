//! The ranges of options that several databases have.

use std::{ops::RangeInclusive, time::Duration};
use tenure_core::{Error, Name};

pub(crate) fn check_prefix(prefix: String) -> Result<String, Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(prefix);
    }
    let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}

/// How long a waiter may let pass without looking again.
pub(crate) const POLL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);
/// How long a request may take, or what comes before it.
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

/// What a lock is on a database server. Each strategy has a table of its own, so they never meet.
#[cfg(feature = "_server")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A row that says who holds it, until when. A lock costs no connection, and survives the loss of one.
    #[default]
    LeaseRow,
    /// A row that is locked by a transaction, on a connection of its own. Waiters stand in the server's own queue, and
    /// are served within one hop of a release. It is lost with its connection. There are neither readers nor permits.
    RowLock,
}

#[cfg(feature = "_server")]
impl Strategy {
    /// The table, unless another is named.
    pub(crate) const fn default_table(self) -> &'static str {
        match self {
            Self::LeaseRow => crate::table::DEFAULT_TABLE,
            Self::RowLock => "tenure_row_locks",
        }
    }

    /// Whether there is a queue beside the server's own.
    pub(crate) fn check_fair(self, given: bool) -> Result<bool, Error> {
        if given && self == Self::RowLock {
            let allowed = "false for row locks, which stand in the server's own queue";
            return Err(Error::invalid_option("fair", "true", allowed));
        }
        Ok(given)
    }

    /// How many connections there may be: those over which names are spread, or as many as may hold a lock or wait for one.
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
