//! Connecting within a time limit.

use super::last_words::reason;
use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use std::time::Duration;
use tokio::time::Instant;

/// How often a silent connection for messages is pinged, so that a dead one is noticed.
pub(crate) const TRY_EVERY: Duration = Duration::from_secs(5);
/// The pauses between attempts to connect grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The pauses of a task that keeps one connection.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Pauses {
    /// The pause after a connection, or an attempt to make one, that ended after this time.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        self.0 = if lasted > PAUSES.1 { PAUSES.0 } else { (self.0 * 2).min(PAUSES.1) };
        self.0
    }
}

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
