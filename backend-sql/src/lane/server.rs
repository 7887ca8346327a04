//! The requests of a lane to a database.

use crate::statement::Statement;
use std::{future::Future, time::Duration};
use tenure_core::StoreError;

/// A database server, or a database in a file: how to connect, how to ask, and what its errors mean.
pub(crate) trait Server: Send + Sync + 'static {
    /// A connection that the driver made.
    type Connection: Send + 'static;
    /// The parameters of a statement.
    type Arguments: Clone + Send + Sync + 'static;
    /// The result of a statement.
    type Answer: Send + 'static;

    /// Whether a request ends in time by itself, so that it needs no timeout.
    const ENDS_BY_ITSELF: bool = false;

    /// How long it may take to connect.
    fn connect_timeout(&self) -> Duration;

    /// How long a request may take, from the moment it is sent to the server.
    fn response_timeout(&self) -> Duration;

    /// Connects, and checks the table, within the connect timeout. Only making the table may take longer.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Whether the connection now leads elsewhere.
    fn is_elsewhere(&self, _: &Self::Connection) -> bool {
        false
    }

    /// Asks for a sign of life, over a connection that was idle.
    fn ping(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        let _ = connection;
        async { Ok(()) }
    }

    /// Waits until the connection leads elsewhere, so that it is closed although nothing is asked.
    fn elsewhere(&self, _: &Self::Connection) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Closes a connection.
    fn close(&self, connection: Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Carries out one statement to its end.
    fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;

    /// Carries out many requests in one transaction, each about another row: `objects` is a JSON array of their
    /// arguments. Returns the answers to those that were carried out, each with its row, as they would be without
    /// others. After an error, none was carried out, unless it is the connection that broke. It waits for no row, and
    /// leaves out those that are locked. A database that cannot do that has no [`Member`](super::Member)s.
    fn run_together(
        &self,
        connection: &mut Self::Connection,
        many: &Statement,
        objects: String,
    ) -> impl Future<Output = Result<Vec<(String, Self::Answer)>, sqlx::Error>> + Send {
        let _ = (connection, many, objects);
        async { Ok(Vec::new()) }
    }

    /// The next step after an error.
    fn verdict(&self, error: &sqlx::Error) -> Verdict;

    /// Explains an error.
    fn explain(&self, error: sqlx::Error) -> StoreError;
}

/// The next step after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server undid the statement because of a collision with another one: ask again.
    Collided,
    /// The server refused, and the connection is usable.
    Refused,
    /// The server refused, and the connection may be unusable.
    #[cfg(feature = "sqlite")]
    Spoilt,
    /// The connection is unusable.
    Broken,
}

/// Whether a request may be repeated automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Its answer is the same the second time.
    Safe,
    /// Its answer would be about the first time. The caller decides.
    No,
}
