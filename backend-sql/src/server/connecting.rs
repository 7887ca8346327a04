//! How a server is connected to.

use crate::table::TablePath;
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

/// Gives up on a connection that is not made in time.
pub(crate) async fn in_time<C>(
    longest: Duration,
    connecting: impl Future<Output = Result<C, StoreError>>,
) -> Result<C, StoreError> {
    let late = |_| StoreError::unavailable(format!("cannot connect and log in within {longest:?}"));
    tokio::time::timeout(longest, connecting).await.map_err(late)?
}

/// Gives up on the table if it is not found or made in time.
pub(crate) async fn table_in_time<T>(
    longest: Duration,
    table: &TablePath,
    asking: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| StoreError::unavailable(format!("no answer within {longest:?} about the table {table}"));
    tokio::time::timeout(longest, asking).await.map_err(late)?
}
