//! The requests of row locks to one kind of server.

use super::issue::Issue;
use std::{future::Future, time::Duration};
use tenure_core::{Claim, ClaimId, Holder, Name, StoreError, Token};

/// The table on one kind of server. The holder of a name has locked its row, in a transaction on its own connection.
/// Everything else is done by statements that commit by themselves, on another connection.
pub(crate) trait RowTable: Send + Sync + 'static {
    /// A connection that the driver made.
    type Connection: Send + 'static;

    /// The store's name for messages.
    fn store(&self) -> &str;

    /// Whether the server grants locks first come, first served.
    fn fair(&self) -> bool;

    /// Whether the database stores every character.
    fn has_all_characters(&self) -> bool {
        true
    }

    /// How many locks this client may hold or wait for at once.
    fn connections(&self) -> usize;

    /// How long a request may take.
    fn response_timeout(&self) -> Duration;

    /// How long the server lets the claim's transaction be idle.
    fn lease(&self, claim: &Claim) -> Duration;

    /// Connects.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Begins a transaction that shows others its claim, and that the server ends when it is idle for the claim's
    /// lease; locks the name's row in it, and reads what its token is made from: all in one message. Waits for the row
    /// in the server's queue, or not at all.
    fn take(
        &self,
        connection: &mut Self::Connection,
        claim: &Claim,
        waits: bool,
    ) -> impl Future<Output = Result<Found<Issue>, StoreError>> + Send;

    /// Locks the name's row in the application's transaction. [`unseen`] if the transaction cannot see the row.
    fn lock(
        &self,
        connection: &mut Self::Connection,
        name: &Name,
        waits: bool,
    ) -> impl Future<Output = Result<Found<()>, StoreError>> + Send;

    /// Sends a heartbeat, which proves that the transaction is alive.
    fn beat(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends the transaction, which wrote nothing and so waits for no disk.
    fn end(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes the name's row and the table if they are missing. Returns whether the row was missing.
    fn make(&self, name: &Name) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Notes the grant's claim and token. `false` if another claim with that token or a greater one was noted before.
    fn note(&self, claim: &Claim, token: Token) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether one of the names from `from` to before `beyond`, if that is given, is held by a claim whose note is on its
    /// way.
    fn is_unnoted(
        &self,
        from: &str,
        beyond: Option<&str>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether the server has a transaction of this claim.
    fn lives(&self, claim: ClaimId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Ends the statement with which this claim waits.
    fn interrupt(&self, claim: ClaimId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether the claim was released by force.
    fn was_forced(
        &self,
        name: &Name,
        claim: ClaimId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The holder of the name.
    fn holders(&self, name: &Name) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// The holders of the names from `from` to before `beyond`, if that is given.
    fn list(
        &self,
        from: &str,
        beyond: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// Ends the holder's connection, and returns the holder.
    fn force(&self, name: &Name) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// Connects, and checks or creates the table.
    fn open(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Closes the connection on which nothing is held.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The outcome of asking for a row's lock.
#[derive(Debug)]
pub(crate) enum Found<V> {
    Locked(V),
    /// There is no such row, or it is locked and was not waited for.
    Nothing,
    /// The table is missing, and the transaction has ended.
    NoTable,
    /// The wait reached the server's limit, or the server ended the transaction: ask again.
    Again,
    /// Others keep the whole table locked, which was not to be waited for any longer. The connection works.
    Blocked(StoreError),
}

/// The error of a transaction that cannot see the lock's row.
pub(crate) fn unseen() -> StoreError {
    StoreError::unavailable(
        "the lock's row was created after this transaction's first read; roll it back and begin again",
    )
}

impl<V> Found<V> {
    pub(crate) fn try_map<W, E>(self, read: impl FnOnce(V) -> Result<W, E>) -> Result<Found<W>, E> {
        Ok(match self {
            Self::Locked(locked) => Found::Locked(read(locked)?),
            Self::Nothing => Found::Nothing,
            Self::NoTable => Found::NoTable,
            Self::Again => Found::Again,
            Self::Blocked(error) => Found::Blocked(error),
        })
    }
}
