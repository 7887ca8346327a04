//! The requests of lease rows to one kind of database.

use super::{
    known_rows::KnownRows,
    record_rows::{Change, Seen},
    sweep::Broom,
};
use crate::{hints::Hint, lane::Again};
use std::{collections::HashSet, future::Future, time::Duration};
use tenure_core::{
    Background, Claim, ClaimId, Grant, Name, StoreError, Wakeup,
    record::{Bell, Record, StoreTime},
};

/// The answer of a statement that looks only at the columns.
pub(crate) enum Answer<T> {
    /// It was carried out.
    Done(T),
    /// It was not: others are in the way, or the columns do not say everything.
    No,
    /// It was not, and this row says whether it can be.
    Seen(Box<Seen>),
}

/// A row to be written if its version is still the one that was read.
pub(crate) struct Swap<'s> {
    pub(crate) name: &'s Name,
    pub(crate) from: &'s Seen,
    pub(crate) to: &'s Change,
}

/// A row in a list.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) seen: Result<Seen, StoreError>,
}

/// The outcome of a renewal by the columns.
#[derive(Default)]
pub(crate) struct Renewed {
    pub(crate) claims: HashSet<ClaimId>,
    /// Whether the statement was sent twice, so that its first copy may still be carried out.
    pub(crate) resent: bool,
    /// The rows of all names, if they had to be read to determine the claims.
    pub(crate) seen: Option<Vec<(String, Seen)>>,
}

/// The table in one kind of database. Each request is one statement that commits by itself, or with others in a batch.
///
/// A `key` is that of one row: a name's, or [a latch's](latch_key). Requests about one row are carried out in the order
/// in which they are made.
pub(crate) trait LeaseTable: Send + Sync + 'static {
    /// The store's name for messages.
    fn store(&self) -> &str;

    /// Where renewal and the sweep run.
    fn background(&self) -> &Background;

    /// How waiters learn of a release.
    fn wakeup(&self) -> Wakeup;

    /// The longest pause of a waiter before it looks again.
    fn poll(&self) -> Duration;

    /// Whether waiters queue.
    fn fair(&self) -> bool;

    /// Whether the database stores every character.
    #[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "a file does"))]
    fn has_all_characters(&self) -> bool {
        true
    }

    /// How many tokens a grant can [reserve](tenure_core::Capabilities::succession). A server that commits each request
    /// takes longer than that many microseconds for two of them.
    fn reserves(&self) -> u32 {
        64
    }

    /// How long to keep trying while other clients keep changing the row first.
    fn patience(&self) -> Duration;

    /// The upsert. Returns the last of the claim's tokens: all that it [reserves](Claim::reserve) are new.
    fn ask(&self, claim: &Claim) -> impl Future<Output = Result<Answer<i64>, StoreError>> + Send;

    /// Whether [`ask_all`](Self::ask_all) is supported.
    fn together(&self) -> bool {
        false
    }

    /// The upsert of several names, all exclusive. Returns token and name of each, or nothing unless the columns say
    /// that all are free.
    fn ask_all(
        &self,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<(i64, String)>, StoreError>> + Send {
        let _ = claims;
        async { Ok(Vec::new()) }
    }

    /// Listens from now on for a hint that the claim may get its name, if the database gives hints.
    fn hint(&self, _: &Claim) -> Option<Hint> {
        None
    }

    /// The bell of this process, if it has one that can be rung.
    fn bell(&self) -> Option<Bell> {
        None
    }

    /// Whether this process will be told when the claim may get its name, as the record stands.
    fn is_told(&self, _: &Record, _: &Claim, _: StoreTime) -> bool {
        self.wakeup() == Wakeup::Push
    }

    /// The rows that this client need not read again, if remembering them pays.
    fn known(&self) -> Option<&KnownRows> {
        None
    }

    /// Clears the claim from the columns. Returns whether the name is awaited.
    fn release(&self, grant: &Grant) -> impl Future<Output = Result<Answer<bool>, StoreError>> + Send;

    /// Clears the claim from the columns, whether or not its lease has expired. `false` if they do not say everything.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Renews the claims in columns. Skips rows that are locked at the moment, without waiting for them.
    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Result<Renewed, StoreError>> + Send;

    /// Reads a row.
    fn read(&self, key: &str) -> impl Future<Output = Result<Seen, StoreError>> + Send;

    /// Writes a row if its version is still that of `from`, or if there was none and still is none. Returns whether it
    /// did. Tables with [known](Self::known) rows also require that the database's time is between that of `from` and
    /// its `until`.
    fn swap(
        &self,
        key: &str,
        from: &Seen,
        to: &Change,
        again: Again,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads the existing rows of these names, on a connection for renewals.
    fn read_for_renewal(
        &self,
        names: &[&Name],
    ) -> impl Future<Output = Result<Vec<(String, Seen)>, StoreError>> + Send;

    /// How many rows one `swap_for_renewal` can write.
    const SWAPS_AT_ONCE: usize = usize::MAX;

    /// Writes the rows whose versions are still the same and whose `until` has not passed by the database's time, on a
    /// connection for renewals, and returns their names; none if that is not known for all. Skips rows that are locked
    /// at the moment, without waiting for them.
    fn swap_for_renewal(
        &self,
        swaps: &[Swap<'_>],
    ) -> impl Future<Output = Result<HashSet<String>, StoreError>> + Send;

    /// Reads the rows of all names that begin with `prefix`, and maybe of others. Leaves out rows whose names are no
    /// text.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<Listed>, StoreError>> + Send;

    /// Connects, and returns how long ago idle rows were deleted.
    fn open(&self) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send;

    /// A separate connection for sweeping.
    type Broom: Broom;

    /// Opens it.
    fn broom(&self) -> Self::Broom;

    /// Closes the connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
