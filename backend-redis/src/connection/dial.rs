//! How connections are made: to one server, or to the current master of a service.

use super::{
    connecting::{connect, in_time},
    errors::ServerName,
    last_words::reason,
    pubsub::{self, Heard, Sink},
    sentinel::Sentinels,
};
use futures_util::stream::BoxStream;
use redis::{Client, ConnectionAddr, RedisError, aio::MultiplexedConnection};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The way to a server.
#[derive(Clone)]
pub(crate) struct Dial {
    endpoint: Endpoint,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    /// Whether the server has ever answered, on any connection: if so, this client can use it.
    has_answered: Arc<AtomicBool>,
}

/// Where a connection leads.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// To one server, always.
    Server(Arc<Client>),
    /// To the current master.
    Master(Arc<Sentinels>),
}

impl Dial {
    pub(crate) fn new(endpoint: Endpoint, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self { endpoint, connect_timeout, response_timeout, has_answered: Arc::default() }
    }

    /// Notes that the server has answered.
    pub(crate) fn note_answer(&self) {
        // Looks first, because a write takes the flag's cache line away from other processors.
        if !self.has_answered.load(Ordering::Relaxed) {
            self.has_answered.store(true, Ordering::Relaxed);
        }
    }

    /// The server's name in errors.
    pub(crate) fn server_name(&self) -> ServerName {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        match &self.endpoint {
            Endpoint::Server(client) => {
                let info = client.get_connection_info();
                ServerName {
                    address: address(info.addr()).into(),
                    database: info.redis_settings().db(),
                    tls: matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
                    watched: false,
                    has_answered,
                }
            }
            Endpoint::Master(sentinels) => sentinels.server_name(has_answered),
        }
    }

    /// The store's name: a URL without secrets.
    pub(crate) fn url(&self) -> String {
        if let Endpoint::Master(sentinels) = &self.endpoint {
            return sentinels.url();
        }
        let ServerName { address, database, tls, .. } = self.server_name();
        match (address.starts_with('/'), database) {
            (true, 0) => format!("redis+unix:{address}"),
            (true, number) => format!("redis+unix:{address} (database {number})"),
            (false, number) => format!("{}://{address}/{number}", if tls { "rediss" } else { "redis" }),
        }
    }

    /// The sentinels that know the master, if they do.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.endpoint {
            Endpoint::Server(_) => None,
            Endpoint::Master(sentinels) => Some(sentinels),
        }
    }

    /// The number of the server to which connections lead now: it changes when another one is found to be the master.
    pub(crate) fn master(&self) -> u64 {
        match &self.endpoint {
            Endpoint::Server(_) => 0,
            Endpoint::Master(sentinels) => sentinels.number(),
        }
    }

    /// Opens a connection for commands. Returns the server's number too.
    pub(crate) async fn commands(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let (opened, has_answered) = match &self.endpoint {
            Endpoint::Server(client) => {
                let opened = connect(client, self.connect_timeout, self.response_timeout).await?;
                // A program's own client may be told to say nothing on a new connection, so that nothing is answered.
                ((opened, 0), !client.get_connection_info().redis_settings().skip_set_lib_name())
            }
            Endpoint::Master(sentinels) => {
                let connecting = sentinels.connect(self.connect_timeout, self.response_timeout);
                (in_time(self.connect_timeout, connecting).await?, true)
            }
        };
        if has_answered {
            self.note_answer();
        }
        Ok(opened)
    }

    /// Opens a connection for subscriptions, with the stream of its messages.
    pub(crate) async fn subscriptions(
        &self,
        in_shard: bool,
    ) -> Result<(Sink, BoxStream<'static, Heard>), RedisError> {
        let connecting = async {
            let client = match &self.endpoint {
                Endpoint::Server(client) => Arc::clone(client),
                Endpoint::Master(sentinels) => Arc::new(sentinels.master(self.connect_timeout).await?),
            };
            match pubsub::open(&client, in_shard).await {
                Err(error) => Err(reason(&client, self.connect_timeout, error).await),
                opened => opened,
            }
        };
        in_time(self.connect_timeout, connecting).await
    }

    /// Completes once another server turns out to be the master.
    pub(crate) fn moved(&self) -> impl Future<Output = ()> + use<> {
        let master = match &self.endpoint {
            Endpoint::Server(_) => None,
            Endpoint::Master(sentinels) => Some(sentinels.follow()),
        };
        async move {
            if let Some(mut master) = master
                && master.changed().await.is_ok()
            {
                return;
            }
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the answer to a request on an open connection, for as long as the response timeout.
    pub(crate) async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        in_time(self.response_timeout, request).await
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
        f.debug_struct("Dial").field("server", &self.server_name()).finish_non_exhaustive()
    }
}
