//! The sentinels of a service, which know which server is its master.
//!
//! As the [guidelines for clients](https://redis.io/docs/latest/develop/reference/sentinel-clients/) have it: a sentinel
//! is asked before each connection, and the server that it names is asked for its role. Beyond them, all sentinels are
//! asked at once and the newest of a majority's answers counts, so that one that is cut off from the others does not
//! lead to a master that was put down.

use crate::{
    address::Address,
    connecting::connect,
    errors::{Place, Trouble},
    replies::{self, Known},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ErrorKind, RedisConnectionInfo, RedisError, aio::MultiplexedConnection};
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

/// The sentinels of one service.
pub(crate) struct Sentinels {
    addresses: Vec<Address>,
    service: String,
    way: Way,
    /// The server that was found to be the master last.
    master: watch::Sender<Option<Address>>,
}

/// How the sentinels and the master are spoken to.
pub(crate) struct Way {
    pub(crate) tls: bool,
    /// The certificates that theirs must lead to, in PEM format, where these are not the system's.
    pub(crate) roots: Option<Vec<u8>>,
    /// Who asks the master, and those sentinels that want to know.
    pub(crate) login: RedisConnectionInfo,
}

impl Way {
    fn client(&self, to: &Address, login: RedisConnectionInfo) -> Result<Client, RedisError> {
        to.client(to.info(login)?, self.roots.as_deref())
    }
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Address>, service: String, way: Way) -> Self {
        Self { addresses, service, way, master: watch::Sender::new(None) }
    }

    /// The master, as errors name it.
    pub(crate) fn place(&self) -> Place {
        let address = match &*self.master.borrow() {
            Some(master) => format!("{master} (master of {:?})", self.service),
            None => format!("the master of {:?}", self.service),
        };
        Place { address: address.into(), database: self.way.login.db(), tls: self.way.tls, watched: true }
    }

    pub(crate) fn url(&self) -> String {
        let (sentinels, service) = (self.named(), &self.service);
        let scheme = if self.way.tls { "rediss+sentinel" } else { "redis+sentinel" };
        match self.way.login.db() {
            0 => format!("{scheme}://{sentinels}/{service}"),
            number => format!("{scheme}://{sentinels}/{service}/{number}"),
        }
    }

    fn named(&self) -> String {
        let named: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        named.join(",")
    }

    /// Tells when another server turns out to be the master.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Address>> {
        self.master.subscribe()
    }

    /// A connection to the master, which has confirmed that it is.
    pub(crate) async fn connect(
        &self,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, RedisError> {
        let master = self.ask(connect_timeout).await?;
        let mut connection = connect(&self.client(&master)?, connect_timeout, response_timeout).await?;
        match redis::cmd("ROLE").query_async(&mut connection).await.map(|role| replies::is_master(&role)) {
            Ok(true) => {}
            // Some users may not ask that. A replica refuses the first write.
            Err(error) if Trouble::of(&error) == Trouble::Forbidden => {}
            Err(error) => return Err(error),
            Ok(false) => {
                let what = format!("{master}, for {:?}; a failover may be under way", self.service);
                return Err((ErrorKind::Io, "the sentinels name a server that is no master", what).into());
            }
        }
        self.master.send_if_modified(|known| {
            let moved = known.as_ref() != Some(&master);
            if moved {
                tracing::info!(service = self.service, %master, "this server is the master");
                *known = Some(master);
            }
            moved
        });
        Ok(connection)
    }

    /// The master that was found last, or that the sentinels name when none was.
    pub(crate) async fn master(&self, connect_timeout: Duration) -> Result<Client, RedisError> {
        let known = self.master.borrow().clone();
        match known {
            Some(master) => self.client(&master),
            None => self.client(&self.ask(connect_timeout).await?),
        }
    }

    fn client(&self, master: &Address) -> Result<Client, RedisError> {
        self.way.client(master, self.way.login.clone())
    }

    /// Which server the sentinels say is the master: the newest answer of a majority, or of as many as answer within
    /// half of `longest`.
    async fn ask(&self, longest: Duration) -> Result<Address, RedisError> {
        let patience = longest / 2;
        let mut asked: FuturesUnordered<_> =
            self.addresses.iter().map(|sentinel| self.ask_one(sentinel, patience)).collect();
        let (mut known, mut failed) = (Vec::new(), Failed::default());
        while known.len() <= self.addresses.len() / 2
            && let Some(answer) = asked.next().await
        {
            match answer {
                Ok(answer) => known.push(answer),
                Err((sentinel, error)) => failed.push(sentinel, &error),
            }
        }
        let newest = known.into_iter().max_by_key(|known| known.epoch);
        let Known { host, port, .. } = newest.ok_or_else(|| failed.error(&self.service))?;
        Ok(Address::Network { host, port, tls: self.way.tls })
    }

    async fn ask_one<'a>(
        &self,
        sentinel: &'a Address,
        patience: Duration,
    ) -> Result<Known, (&'a Address, RedisError)> {
        let answer = async {
            match self.known(sentinel, RedisConnectionInfo::default(), patience).await {
                Err(error) if Trouble::of(&error) == Trouble::Anonymous => {
                    self.known(sentinel, self.way.login.clone().set_db(0), patience).await
                }
                answer => answer,
            }
        };
        let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        timeout(patience, answer).await.unwrap_or_else(late).map_err(|error| (sentinel, error))
    }

    async fn known(
        &self,
        sentinel: &Address,
        login: RedisConnectionInfo,
        patience: Duration,
    ) -> Result<Known, RedisError> {
        let client = self.way.client(sentinel, login)?;
        let mut connection = connect(&client, patience, patience).await?;
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("MASTER").arg(&self.service);
        let answer = ask.query_async(&mut connection).await?;
        replies::known(&answer).ok_or_else(|| (ErrorKind::UnexpectedReturnType, "it is no sentinel").into())
    }
}

/// Why sentinels gave no answer.
#[derive(Default)]
struct Failed {
    reasons: Vec<String>,
    unknown: bool,
    silent: bool,
}

impl Failed {
    fn push(&mut self, sentinel: &Address, error: &RedisError) {
        let detail = error.detail().unwrap_or_default();
        self.unknown |= detail.contains("No such master");
        self.silent |= error.is_io_error() || error.is_timeout();
        self.reasons.push(match Trouble::of(error) {
            Trouble::Silent => format!("{sentinel}: no answer in time"),
            _ if detail.contains("unknown command") => format!("{sentinel}: it is no sentinel"),
            _ => format!("{sentinel}: {error}"),
        });
    }

    fn error(self, service: &str) -> RedisError {
        let reasons = self.reasons.join("; ");
        if self.unknown {
            let what = format!("{service:?}; write redis+sentinel://HOST,HOST/SERVICE ({reasons})");
            return (ErrorKind::InvalidClientConfig, "no sentinel knows this service", what).into();
        }
        let kind = if self.silent { ErrorKind::Io } else { ErrorKind::InvalidClientConfig };
        (kind, "no sentinel says which server it is", reasons).into()
    }
}
