//! The requests of row locks, or advisory locks, to one kind of server.

use super::issue::Issue;
use std::{future::Future, time::Duration};
use tenure_core::{Capability, Claim, ClaimId, Grant, Holder, Mode, Name, StoreError, Token};

/// The locks of one kind on one kind of server. The holder of a name has a connection of its own, and has locked the name's
/// row in a transaction there, or has a lock of the server's own. Everything else is done by statements that commit by
/// themselves, on another connection. Where only row locks have something, the others answer without asking.
pub(crate) trait SessionRequests: Send + Sync + 'static {
    /// A connection that the driver made.
    type Connection: Send + 'static;

    /// The store's name for messages.
    fn store(&self) -> &str;

    /// Whether the server grants locks first come, first served.
    fn fair(&self) -> bool;

    /// Whether several readers may have a lock.
    fn shared(&self) -> bool {
        false
    }

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

    /// Shows others the claim, and has the server end the connection when it is idle for the claim's lease; takes the
    /// lock, in a transaction if it is a row's, and reads what the token is made from: all in one message. Waits in the
    /// server's queue, or not at all.
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

    /// Sends a heartbeat, which proves that the connection is alive, with the claim's transaction if it has one.
    fn beat(
        &self,
        connection: &mut Self::Connection,
        claim: Option<&Claim>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Gives up what the connection has: the transaction, which wrote nothing and so waits for no disk, or the lock.
    fn end(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Changes the mode of the claim's lock, which no other gets meanwhile. `false` if others hold it too. Only if it
    /// can be [shared](Self::shared).
    fn convert(
        &self,
        connection: &mut Self::Connection,
        claim: &Claim,
        to: Mode,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (connection, claim, to);
        async { Err(StoreError::unsupported(Capability::Shared)) }
    }

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

    /// Whether the grant was ended by force.
    fn was_forced(&self, grant: &Grant) -> impl Future<Output = Result<bool, StoreError>> + Send;

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

/// How long a waiter stays in the server's queue for an advisory lock before it asks again. In PostgreSQL its statement has
/// a snapshot meanwhile, and `CREATE INDEX CONCURRENTLY`, which the holder may run, waits for all snapshots. MySQL and
/// MariaDB differ in how they write a wait without end.
pub(crate) const QUEUES_FOR: Duration = Duration::from_secs(10);

/// The outcome of asking for a lock.
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
