//! The ranges of options that several databases have.

use std::time::Duration;
use tenure_core::{Error, Name};

pub(crate) fn check_prefix(prefix: String) -> Result<String, Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(prefix);
    }
    let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}

pub(crate) fn check_range(option: &'static str, given: Duration, most: Duration) -> Result<Duration, Error> {
    let least = Duration::from_millis(1);
    if (least..=most).contains(&given) {
        return Ok(given);
    }
    Err(Error::invalid_option(option, format!("{given:?}"), format!("{least:?} to {most:?}")))
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

    /// How many connections: those over which names are spread, or as many as may hold a lock or wait for one.
    pub(crate) fn check_connections(self, given: Option<usize>) -> Result<usize, Error> {
        let (usual, most) = match self {
            Self::LeaseRow => (2, 64),
            Self::RowLock => (20, 1000),
        };
        let given = given.unwrap_or(usual);
        if (1..=most).contains(&given) {
            return Ok(given);
        }
        Err(Error::invalid_option("connections", given.to_string(), format!("1 to {most}")))
    }
}
