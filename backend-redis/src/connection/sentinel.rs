//! The sentinels of a service, which know which server is its master.
//!
//! This follows the [guidelines for clients](https://redis.io/docs/latest/develop/reference/sentinel-clients/): ask a
//! sentinel before each connection, and ask the server that it names for its role. Beyond that, all sentinels are asked
//! at once and the newest of a majority's answers counts. So a sentinel that is cut off from the others does not lead
//! to a deposed master.

use super::{
    address::Address,
    connecting::connect,
    errors::{ServerName, Trouble, words},
    pubsub::{self, Heard, Refused, Sink},
    tls::Certificates,
};
use crate::requests::replies::text;
use futures_util::{
    StreamExt,
    stream::{BoxStream, FuturesUnordered},
};
use redis::{Client, ErrorKind, RedisConnectionInfo, RedisError, Value, aio::MultiplexedConnection};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// The sentinels of one service.
pub(crate) struct Sentinels {
    addresses: Vec<Address>,
    service: String,
    access: Access,
    /// The last server that was found to be the master.
    master: watch::Sender<Option<Master>>,
}

/// A server that was found to be the master.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    address: Address,
    /// Rises with each failover, as long as a majority of the sentinels does not forget it.
    epoch: u64,
    /// Counts this client's masters, from 1.
    number: u64,
}

/// How to connect to the sentinels and the master.
pub(crate) struct Access {
    pub(crate) tls: bool,
    pub(crate) certificates: Certificates,
    /// The login for the master, and for sentinels that require one unless they have their own.
    pub(crate) login: RedisConnectionInfo,
    /// The sentinels' own login.
    pub(crate) sentinels: Option<RedisConnectionInfo>,
}

impl Access {
    fn client(&self, to: &Address, login: RedisConnectionInfo) -> Result<Client, RedisError> {
        to.client(to.info(login)?, &self.certificates)
    }
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Address>, service: String, access: Access) -> Self {
        Self { addresses, service, access, master: watch::Sender::new(None) }
    }

    /// The master's name in errors.
    pub(crate) fn server_name(&self, has_answered: bool) -> ServerName {
        let address = match &*self.master.borrow() {
            Some(Master { address, .. }) => format!("{address} (master of {:?})", self.service),
            None => format!("the master of {:?}", self.service),
        };
        ServerName {
            address: address.into(),
            database: self.access.login.db(),
            tls: self.access.tls,
            watched: true,
            has_answered,
        }
    }

    pub(crate) fn url(&self) -> String {
        let (sentinels, service) = (self.named(), &self.service);
        let scheme = if self.access.tls { "rediss+sentinel" } else { "redis+sentinel" };
        match self.access.login.db() {
            0 => format!("{scheme}://{sentinels}/{service}"),
            number => format!("{scheme}://{sentinels}/{service}/{number}"),
        }
    }

    fn named(&self) -> String {
        let named: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        named.join(",")
    }

    /// Notifies when another server turns out to be the master.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Master>> {
        self.master.subscribe()
    }

    /// The number of the present master; 0 if none is known.
    pub(crate) fn number(&self) -> u64 {
        self.master.borrow().as_ref().map_or(0, |master| master.number)
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Opens a connection on which a sentinel announces failovers.
    pub(crate) async fn subscribe(
        &self,
        sentinel: &Address,
    ) -> Result<(Sink, BoxStream<'static, Heard>), RedisError> {
        self.logged_in(|login| async {
            let (mut sink, heard) = pubsub::open(&self.access.client(sentinel, login)?, false).await?;
            match sink.join(&[Arc::from("+switch-master")]).await?.pop() {
                Some(Refused { why, .. }) => Err(why),
                None => Ok((sink, heard)),
            }
        })
        .await
    }

    /// Reads an announcement: `SERVICE OLD-HOST PORT NEW-HOST PORT`. `None` if it is about another service.
    pub(crate) fn announced(&self, said: &str) -> Option<Address> {
        match *said.split(' ').collect::<Vec<_>>() {
            [service, _, _, host, port] if service == self.service => Some(self.at(host, port.parse().ok()?)),
            _ => None,
        }
    }

    /// The master that one sentinel names, and its epoch.
    pub(crate) async fn named_by(
        &self,
        sentinel: &Address,
        patience: Duration,
    ) -> Result<(Address, u64), RedisError> {
        let KnownMaster { host, port, epoch } =
            self.ask_one(sentinel, patience).await.map_err(|(_, error)| error)?;
        Ok((self.at(&host, port), epoch))
    }

    /// Whether this client has another master than this one.
    pub(crate) fn leaves_for(&self, named: &Address) -> bool {
        self.master.borrow().as_ref().is_none_or(|known| known.address != *named)
    }

    /// Whether this client has not heard of this epoch.
    pub(crate) fn is_newer(&self, epoch: u64) -> bool {
        self.master.borrow().as_ref().is_none_or(|known| known.epoch < epoch)
    }

    fn at(&self, host: &str, port: u16) -> Address {
        Address::Network { host: host.to_owned(), port, tls: self.access.tls }
    }

    /// Connects to the master, which has confirmed its role. Returns its number too.
    pub(crate) async fn connect(
        &self,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<(MultiplexedConnection, u64), RedisError> {
        let before = self.number();
        let (mut master, mut epoch, is_of_most) = self.ask(connect_timeout).await?;
        if let Some(known) = &*self.master.borrow()
            && known.epoch > epoch
            && !is_of_most
        {
            (master, epoch) = (known.address.clone(), known.epoch);
        }
        let mut connection = connect(&self.client(&master)?, connect_timeout, response_timeout).await?;
        match redis::cmd("ROLE").query_async(&mut connection).await.map(|role| is_master(&role)) {
            Ok(true) => {}
            // Some users may not ask for the role. A replica would refuse the first write.
            Err(error) if Trouble::of(&error) == Trouble::Forbidden => {}
            Err(error) => return Err(error),
            Ok(false) => {
                let what = format!("{master}, for {:?}; a failover may be under way", self.service);
                return Err((ErrorKind::Io, "the sentinels name a server that is not a master", what).into());
            }
        }
        let mut number = Ok(before);
        self.master.send_if_modified(|known| {
            let next = match known {
                None => 1,
                Some(known) if known.address == master => {
                    // Sentinels that were set up anew count from the start.
                    known.epoch = if is_of_most { epoch } else { known.epoch.max(epoch) };
                    number = Ok(known.number);
                    return false;
                }
                // Found by another connection meanwhile.
                Some(known) if known.epoch > epoch && known.number != before => {
                    number = Err(known.address.clone());
                    return false;
                }
                Some(known) => known.number + 1,
            };
            tracing::info!(service = self.service, %master, "connected to the master");
            *known = Some(Master { address: master.clone(), epoch, number: next });
            number = Ok(next);
            true
        });
        match number {
            Ok(number) => Ok((connection, number)),
            Err(newer) => {
                let what = format!("{master}, for {:?}; {newer} has been the master since", self.service);
                Err((ErrorKind::Io, "the sentinels that answered name an older master", what).into())
            }
        }
    }

    /// The last master that was found, or, if there was none, the one that the sentinels name.
    pub(crate) async fn master(&self, connect_timeout: Duration) -> Result<Client, RedisError> {
        let known = self.master.borrow().clone();
        match known {
            Some(master) => self.client(&master.address),
            None => self.client(&self.ask(connect_timeout).await?.0),
        }
    }

    fn client(&self, master: &Address) -> Result<Client, RedisError> {
        self.access.client(master, self.access.login.clone())
    }

    /// Asks the sentinels for the master. The newest answer of a majority counts, or of as many as answer within half
    /// of `longest`. If all of them know less than this client, the others are waited for too: they may have heard of a
    /// failover. Also returns its epoch, and whether it is of a majority.
    async fn ask(&self, longest: Duration) -> Result<(Address, u64, bool), RedisError> {
        let patience = longest / 2;
        let last = self.master.borrow().as_ref().map_or(0, |master| master.epoch);
        let mut asked: FuturesUnordered<_> =
            self.addresses.iter().map(|sentinel| self.ask_one(sentinel, patience)).collect();
        let (mut known, mut failed) = (Vec::<KnownMaster>::new(), Failed::default());
        while (known.len() <= self.addresses.len() / 2 || known.iter().all(|known| known.epoch < last))
            && let Some(answer) = asked.next().await
        {
            match answer {
                Ok(answer) => known.push(answer),
                Err((sentinel, error)) => failed.push(sentinel, &error),
            }
        }
        let is_of_most = known.len() > self.addresses.len() / 2;
        let newest = known.into_iter().max_by_key(|known| known.epoch);
        let KnownMaster { host, port, epoch } = newest.ok_or_else(|| failed.error(&self.service))?;
        Ok((self.at(&host, port), epoch, is_of_most))
    }

    async fn ask_one<'a>(
        &self,
        sentinel: &'a Address,
        patience: Duration,
    ) -> Result<KnownMaster, (&'a Address, RedisError)> {
        let answer = self.logged_in(|login| self.known(sentinel, login, patience));
        let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        timeout(patience, answer).await.unwrap_or_else(late).map_err(|error| (sentinel, error))
    }

    /// Asks with the sentinels' own login; without one and, if a sentinel wants one, with the master's.
    async fn logged_in<T, Asking>(&self, ask: impl Fn(RedisConnectionInfo) -> Asking) -> Result<T, RedisError>
    where
        Asking: Future<Output = Result<T, RedisError>>,
    {
        if let Some(login) = &self.access.sentinels {
            return ask(login.clone()).await;
        }
        match ask(RedisConnectionInfo::default()).await {
            Err(error) if Trouble::of(&error) == Trouble::Anonymous => {
                ask(self.access.login.clone().set_db(0)).await
            }
            answer => answer,
        }
    }

    async fn known(
        &self,
        sentinel: &Address,
        login: RedisConnectionInfo,
        patience: Duration,
    ) -> Result<KnownMaster, RedisError> {
        let client = self.access.client(sentinel, login)?;
        let mut connection = connect(&client, patience, patience).await?;
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("MASTER").arg(&self.service);
        let answer = ask.query_async(&mut connection).await?;
        known(&answer).ok_or_else(|| (ErrorKind::UnexpectedReturnType, "not a sentinel").into())
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
        self.silent |= error.is_io_error() || error.is_timeout() || Trouble::of(error).may_pass();
        self.reasons.push(match Trouble::of(error) {
            Trouble::Silent => format!("{sentinel} did not answer in time"),
            _ if detail.contains("unknown command") => {
                format!("{sentinel} is not a sentinel (their usual port is 26379)")
            }
            _ => format!("{sentinel}: {}", words(error)),
        });
    }

    fn error(self, service: &str) -> RedisError {
        let reasons = self.reasons.join(", and ");
        if self.unknown {
            let what = format!("{service:?}; write redis+sentinel://HOST,HOST/SERVICE ({reasons})");
            return (ErrorKind::InvalidClientConfig, "no sentinel knows this service", what).into();
        }
        let kind = if self.silent { ErrorKind::Io } else { ErrorKind::InvalidClientConfig };
        (kind, "no sentinel names the master", reasons).into()
    }
}

/// One sentinel's answer.
#[derive(Debug, PartialEq, Eq)]
struct KnownMaster {
    host: String,
    port: u16,
    /// Rises with each failover: twice the sentinel's own epoch, and one more unless the sentinel leads a failover. That
    /// one has the new epoch already, and the old address until all replicas have been told.
    epoch: u64,
}

/// Reads a sentinel's answer about a master; `None` if it is not a sentinel's answer.
fn known(value: &Value) -> Option<KnownMaster> {
    let mut fields = HashMap::new();
    match value {
        Value::Array(words) => {
            fields
                .extend(words.chunks(2).filter_map(|pair| Some((text(pair.first()?)?, text(pair.get(1)?)?))));
        }
        Value::Map(pairs) => {
            fields.extend(pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))));
        }
        _ => return None,
    }
    let number = |name| fields.get(name)?.parse::<u64>().ok();
    let leads =
        fields.get("flags").is_some_and(|flags| flags.split(',').any(|flag| flag == "failover_in_progress"));
    Some(KnownMaster {
        host: (*fields.get("ip")?).to_owned(),
        port: u16::try_from(number("port")?).ok()?,
        epoch: number("config-epoch")?.saturating_mul(2).saturating_add(u64::from(!leads)),
    })
}

/// Whether an answer to `ROLE` is a master's.
fn is_master(role: &Value) -> bool {
    matches!(role, Value::Array(parts) if parts.first().and_then(text) == Some("master"))
}

#[cfg(test)]
mod tests;
