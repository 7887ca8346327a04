//! What lease rows ask of one kind of database.

use crate::{
    hints::Hint,
    known_rows::KnownRows,
    lane::Again,
    record_rows::{Change, Seen},
    sweep::Broom,
};
use std::{collections::HashSet, future::Future, time::Duration};
use tenure_core::{Background, Claim, ClaimId, Grant, Name, StoreError, Wakeup};

/// What one statement says, which looks only at the columns.
pub(crate) enum Answer<T> {
    /// It did what it was asked to.
    Done(T),
    /// It did not: others are in the way, or the columns do not say everything.
    No,
    /// It did not, because there is a record, which decides.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "MySQL's statements do not read along")
    )]
    Seen(Box<Seen>),
}

/// A row to be written if its version is still the one that was read.
pub(crate) struct Swap<'s> {
    pub(crate) name: &'s Name,
    pub(crate) from: &'s Seen,
    pub(crate) to: &'s Change,
}

/// What came of a renewal by the columns.
#[derive(Default)]
pub(crate) struct Renewed {
    pub(crate) claims: HashSet<ClaimId>,
    /// What stands in the rows of all names, where there are any, if that had to be read to tell the claims.
    pub(crate) seen: Option<Vec<(String, Seen)>>,
}

/// The table in one kind of database. Each request is one statement that commits by itself.
///
/// What has a `key` is about one row: a name's, or [a latch's](latch_key). What concerns one row is carried out in the
/// order in which it is asked.
pub(crate) trait LeaseTable: Send + Sync + 'static {
    /// The store in words.
    fn store(&self) -> &str;

    /// Where renewal and the sweep run.
    fn background(&self) -> &Background;

    /// How waiters learn of a release.
    fn wakeup(&self) -> Wakeup;

    /// The longest time that a waiter lets pass without looking.
    fn poll(&self) -> Duration;

    /// Whether waiters stand in a queue.
    fn fair(&self) -> bool;

    /// How long to keep trying while other clients are faster.
    fn patience(&self) -> Duration;

    /// The upsert: the token.
    fn ask(&self, claim: &Claim) -> impl Future<Output = Result<Answer<i64>, StoreError>> + Send;

    /// Whether [`ask_all`](Self::ask_all) is served.
    fn together(&self) -> bool {
        false
    }

    /// The upsert of several names, all of them alone: token and name of each, or nothing if the columns do not say that
    /// all of them are free.
    fn ask_all(
        &self,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<(i64, String)>, StoreError>> + Send {
        let _ = claims;
        async { Ok(Vec::new()) }
    }

    /// Hears from now on that the claim may have its name, where the database tells.
    fn hint(&self, _: &Claim) -> Option<Hint> {
        None
    }

    /// The rows that this client need not read again, where that pays.
    fn known(&self) -> Option<&KnownRows> {
        None
    }

    /// Clears the claim from the columns: whether the name is awaited.
    fn release(&self, grant: &Grant) -> impl Future<Output = Result<Answer<bool>, StoreError>> + Send;

    /// Clears the claim from the columns, whether or not its lease has run out. `false` if they do not say everything.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Renews those whom the columns name. Those whose rows somebody has locked just now are not renewed, and not waited
    /// for.
    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Result<Renewed, StoreError>> + Send;

    /// Reads a row.
    fn read(&self, key: &str) -> impl Future<Output = Result<Seen, StoreError>> + Send;

    /// Writes a row if its version is still that of `from`, or if there was none and still is none; whether it did. In tables
    /// with [known](Self::known) rows also only if, by the database's clock, the time is that of `from` to its `until`.
    fn swap(
        &self,
        key: &str,
        from: &Seen,
        to: &Change,
        again: Again,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// What stands in the rows of these names, where there are any, on a connection of the renewals.
    fn read_for_renewal(
        &self,
        names: &[&Name],
    ) -> impl Future<Output = Result<Vec<(String, Seen)>, StoreError>> + Send;

    /// How many rows one such write takes.
    const SWAPS_AT_ONCE: usize = usize::MAX;

    /// The names whose rows were written, on a connection of the renewals, of those whose versions are still the same; none
    /// where that is not known of all.
    /// Those that somebody has locked just now are not, and not waited for.
    fn swap_for_renewal(
        &self,
        swaps: &[Swap<'_>],
    ) -> impl Future<Output = Result<HashSet<String>, StoreError>> + Send;

    /// What stands in the rows of the names that begin so.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<(String, Seen)>, StoreError>> + Send;

    /// Connects, and tells how long ago idle rows were deleted.
    fn open(&self) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send;

    /// A connection of its own to sweep with.
    type Broom: Broom;

    /// Opens it.
    fn broom(&self) -> Self::Broom;

    /// Lets go of the connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
