//! The kinds of locks on a database server.

use std::ops::RangeInclusive;
use tenure_core::Error;

/// The kind of a lock on a database server. Each strategy has its own table, so locks of different strategies never
/// meet.
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
    /// One of the server's own named locks, `pg_advisory_lock` or `GET_LOCK`, on a connection of its own. Programs that
    /// use those without tenure can share it. Waiters stand in the server's own queue, and the lock is lost with its
    /// connection. PostgreSQL has readers too, and there are no permits.
    Advisory,
}

impl Strategy {
    /// The words of a URL.
    pub(crate) const WORDS: &[&str] = &[Self::LeaseRow.word(), Self::RowLock.word(), Self::Advisory.word()];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::LeaseRow => "lease-row",
            Self::RowLock => "row-lock",
            Self::Advisory => "advisory",
        }
    }

    /// The strategy of one of [`WORDS`](Self::WORDS).
    pub(crate) fn of(word: &str) -> Self {
        let others = [Self::RowLock, Self::Advisory];
        others.into_iter().find(|strategy| strategy.word() == word).unwrap_or_default()
    }

    /// Whether a lock is held by a connection of its own.
    pub(crate) const fn ends_with_connections(self) -> bool {
        matches!(self, Self::RowLock | Self::Advisory)
    }

    /// The default table.
    pub(crate) const fn default_table(self) -> &'static str {
        match self {
            Self::LeaseRow => crate::table::DEFAULT_TABLE,
            Self::RowLock => "tenure_row_locks",
            Self::Advisory => "tenure_advisory_locks",
        }
    }

    /// Whether waiters have a queue besides the server's own.
    pub(crate) fn check_fair(self, given: bool) -> Result<bool, Error> {
        if given && self.ends_with_connections() {
            let allowed = "false for row locks and advisory locks, whose waiters queue in the server";
            return Err(Error::invalid_option("fair", "true", allowed));
        }
        Ok(given)
    }

    /// The range of `connections`: over how many names are spread, or how many locks may be held or waited for at once.
    #[must_use]
    pub const fn connections(self) -> RangeInclusive<usize> {
        match self {
            Self::LeaseRow => 1..=64,
            Self::RowLock | Self::Advisory => 1..=1000,
        }
    }

    pub(crate) fn check_connections(self, given: Option<usize>) -> Result<usize, Error> {
        let usual = match self {
            Self::LeaseRow => 2,
            Self::RowLock | Self::Advisory => 20,
        };
        let (given, range) = (given.unwrap_or(usual), self.connections());
        Error::check_range("connections", given, &range)
    }
}
