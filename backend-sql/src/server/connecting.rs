//! How a server is connected to.

use std::{path::PathBuf, time::Duration};
use tenure_core::StoreError;

/// Where a server is, for people.
pub(crate) fn place(host: &str, port: u16, socket: Option<&PathBuf>) -> String {
    match socket {
        Some(socket) => socket.display().to_string(),
        None if host.contains(':') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    }
}

/// Why there is no connection, or no table.
pub(crate) enum Refusal {
    Driver(sqlx::Error),
    Said(StoreError),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

/// Gives up on a connection that is not made in time.
pub(crate) async fn in_time<C>(
    longest: Duration,
    store: &str,
    connecting: impl Future<Output = Result<C, StoreError>>,
) -> Result<C, StoreError> {
    let late = |_| StoreError::unavailable(format!("no connection to {store} within {longest:?}"));
    tokio::time::timeout(longest, connecting).await.map_err(late)?
}
