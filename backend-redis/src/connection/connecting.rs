//! Connecting within a time limit.

use super::last_words::reason;
use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use std::time::Duration;
use tokio::time::Instant;

/// Connects with these timeouts.
pub(crate) async fn connect(
    client: &Client,
    connect_timeout: Duration,
    response_timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_timeout))
        .set_response_timeout(Some(response_timeout));
    let begun = Instant::now();
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Err(error) => Err(reason(client, connect_timeout.saturating_sub(begun.elapsed()), error).await),
        opened => opened,
    }
}

/// Runs `request` for at most `longest`.
pub(crate) async fn in_time<T>(
    longest: Duration,
    request: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
    tokio::time::timeout(longest, request).await.unwrap_or_else(|_| Err(late()))
}
