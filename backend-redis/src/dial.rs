//! How connections to one server are made.

use crate::errors::Place;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, RedisError,
    aio::{MultiplexedConnection, PubSub},
};
use std::{fmt, time::Duration};

/// The way to one server.
#[derive(Clone)]
pub(crate) struct Dial {
    client: Client,
    pub(crate) place: Place,
    connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

impl Dial {
    pub(crate) fn new(client: Client, connect_timeout: Duration, response_timeout: Duration) -> Self {
        let info = client.get_connection_info();
        let place = Place {
            address: address(info.addr()).into(),
            database: info.redis_settings().db(),
            tls: matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
        };
        Self { client, place, connect_timeout, response_timeout }
    }

    /// A connection for commands.
    pub(crate) async fn commands(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// A connection for subscriptions.
    pub(crate) async fn subscriptions(&self) -> Result<PubSub, RedisError> {
        self.in_time(self.connect_timeout, self.client.get_async_pubsub()).await
    }

    async fn in_time<T>(
        &self,
        longest: Duration,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        tokio::time::timeout(longest, request).await.unwrap_or_else(|_| Err(late()))
    }

    /// The same, for a request to a server that is connected.
    pub(crate) async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        self.in_time(self.response_timeout, request).await
    }
}

/// An address for people, without secrets.
fn address(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        address => address.to_string(),
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("place", &self.place).finish_non_exhaustive()
    }
}
