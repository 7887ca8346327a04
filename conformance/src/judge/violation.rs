//! The findings of a judge.

use super::{Stamp, stamp::Span};
use std::fmt;

/// A clause that a history breaks, where, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken clause.
    pub broken: Broken,
    /// The lock's name; empty where it is about all of a client's.
    pub name: String,
    /// The clients whose notes show it, the earlier one first.
    pub clients: Vec<String>,
    /// The contract is broken from here …
    pub from: Stamp,
    /// … to here.
    pub to: Stamp,
    /// The earliest note that one has to know to see it.
    pub since: Stamp,
    /// The violation in a sentence.
    pub what: String,
}

impl Violation {
    /// A violation from the first to the second of these instants, which the notes from `since` on show.
    pub(super) fn new(
        broken: Broken,
        name: &str,
        clients: &[&str],
        since: Stamp,
        (from, to): (Stamp, Stamp),
        what: String,
    ) -> Self {
        let clients = clients.iter().map(|client| (*client).to_owned()).collect();
        Self { broken, name: name.to_owned(), clients, from, to, since, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clause {} is broken on {:?}: {}", self.broken.clause(), self.name, self.broken)?;
        match self.to.since(self.from) {
            span if span.is_zero() => Ok(()),
            span => write!(f, ", for {}", Span(span)),
        }
    }
}

/// The clauses that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Broken {
    /// Two clients believed at once that they hold the lock, in modes that exclude each other.
    TwoHolders,
    /// More permits were held at once than there are.
    TooManyHolders,
    /// A later grant's token is not greater than an earlier one's.
    TokenDidNotRise,
    /// The resource let a client in although it had seen a greater token.
    StaleAccess,
    /// A write was based on a value that was no longer there.
    LostUpdate,
    /// A grant ended before its lease, and nothing had happened that ends one.
    LostEarly,
    /// An acquisition went on after it had to end, or never ended.
    WaiterHung,
    /// A guard noticed late, or never, that its deadline had passed.
    LossLate,
    /// A client was told that it had released a grant, although another had been granted the name since.
    ReleasedLost,
    /// A grant was handed on to more successors in a row than allowed, later than a third of the lease, or to one that
    /// asked for another lease or label.
    WrongSuccessor,
    /// Closing a client's locks had not ended when all was over.
    CloseHung,
    /// A client was granted a lock after it had closed its locks.
    GrantAfterClose,
    /// A latch forgot a party that had been counted, or counted one that had not come.
    LatchMiscounted,
    /// Every client had ended, and a lock was still held.
    Leaked,
}

impl Broken {
    /// The clause of the contract.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::TwoHolders | Self::TooManyHolders => "X1",
            Self::TokenDidNotRise | Self::StaleAccess | Self::LostUpdate => "T1",
            Self::LostEarly => "L1",
            Self::WaiterHung => "W2",
            Self::LossLate => "L5",
            Self::WrongSuccessor => "W5",
            Self::ReleasedLost => "U2",
            Self::GrantAfterClose | Self::CloseHung => "U3",
            Self::LatchMiscounted | Self::Leaked => "F1",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoHolders => "two holders",
            Self::TooManyHolders => "more permits than there are",
            Self::TokenDidNotRise => "a token that did not rise",
            Self::StaleAccess => "an overtaken client at the resource",
            Self::LostUpdate => "a lost update",
            Self::LostEarly => "a grant that ended early",
            Self::WaiterHung => "a waiter that did not end in time",
            Self::LossLate => "a loss noticed late",
            Self::ReleasedLost => "a lost grant that was released",
            Self::WrongSuccessor => "a grant handed on to a wrong successor",
            Self::CloseHung => "locks that could not be closed",
            Self::GrantAfterClose => "a grant after close",
            Self::LatchMiscounted => "a latch that miscounted",
            Self::Leaked => "a lock that was left held",
        })
    }
}
