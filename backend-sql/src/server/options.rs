//! The options of a database server.

use super::{
    checked::Checked,
    dialect::{ConnectOptions, Dialect},
};
use crate::{strategy::Strategy, table::TablePath};
use std::{ops::RangeInclusive, time::Duration};
use tenure_core::{
    Error,
    options::{Secret, check_readable},
    url::{decode, encode},
};

/// Options of a database server: its URL, the table, and the timeouts. `PostgresOptions` and `MySqlOptions` are its
/// aliases. [`ServerBackend::connect`](super::ServerBackend::connect) checks them before it contacts the server.
#[derive(Debug)]
#[must_use = "options do nothing until the server is connected to"]
pub struct ServerOptions<D: Dialect> {
    /// With a password, or with one somewhere if it is invalid.
    url: Secret<String>,
    strategy: Strategy,
    table: Option<String>,
    poll: Option<Duration>,
    connections: Option<usize>,
    values: Values,
    /// The options that only this kind of server has.
    own: D::Own,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(crate) struct Values for ServerOptions<D> where D: Dialect;

    /// Sets the namespace: up to 200 bytes without control characters. Names of different prefixes never meet.
    prefix: Prefix = "";

    /// Sets whether the table is created if it is missing. To create it by hand, see `postgres_schema` and
    /// `mysql_schema`.
    create_table: bool = true, "whether the table is created when it is missing";

    /// Sets whether the waiters of all clients are served in the order in which they came. All clients of a name must
    /// agree on it.
    ///
    /// If so, each waiting client writes the name's row every 1.5 s, to keep its place, and reads it at least every
    /// 0.5 s. One that dies delays those behind it by at most 3 s. Not for row locks and advisory locks, whose waiters
    /// stand in the server's own queue.
    fair: bool = false, "whether waiters of all clients are served in the order in which they came";

    /// Sets how long an attempt to connect may take.
    ///
    /// Making a missing table is not part of it. That may take 30 s, or the response timeout if that is longer.
    connect_timeout: Duration = 5 s, CONNECT_TIMEOUT_RANGE = 1 ms..=10 min,
        "how long an attempt to connect may take";

    /// Sets how long the server may take to answer before it counts as unavailable.
    ///
    /// If other clients keep changing a row first, a request tries again for the same time.
    ///
    /// The server itself gives up a little earlier, so that no request waits there after its client has stopped
    /// waiting. PostgreSQL does so by `lock_timeout` and `statement_timeout`. MySQL and MariaDB do so, for locks, by
    /// `innodb_lock_wait_timeout` and `lock_wait_timeout`, in whole seconds, at least one.
    response_timeout: Duration = 5 s, RESPONSE_TIMEOUT_RANGE = 1 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";
}

impl<D: Dialect> ServerOptions<D> {
    /// The range of [`poll`](Self::poll).
    pub const POLL_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);

    /// Uses the server and database that `url` names, in the driver's syntax, with default options. Without a database,
    /// connecting fails with [`Error::InvalidOption`]. For a tenure URL, use `from_url`.
    ///
    /// PostgreSQL: `postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE`, with the parameters `sslmode`, `sslrootcert`,
    /// `sslcert`, `sslkey`, `host` (a directory with a socket), `port` and `application_name`. They mean what they mean
    /// to [libpq](https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS), except that
    /// `sslmode=allow` never encrypts. Parts that the URL leaves out come from libpq's environment variables and from
    /// `~/.pgpass`.
    ///
    /// MySQL and MariaDB: `mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE`, or `mariadb://…`, with the parameters `ssl-mode`,
    /// `ssl-ca`, `ssl-cert` and `ssl-key`, as in [the servers' own
    /// clients](https://dev.mysql.com/doc/refman/8.0/en/connection-options.html), and `socket`, the path of a socket.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Secret(url.into()),
            strategy: Strategy::LeaseRow,
            table: None,
            poll: None,
            connections: None,
            values: Values::default(),
            own: D::Own::default(),
        }
    }

    /// Sets the kind of a lock. Default: [`Strategy::LeaseRow`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the table; `schema.table` if it is in a schema that `search_path` does not lead to, or in another MySQL
    /// database. Each part is 1 to 63 letters, digits and underscores. Default: `tenure_locks`, `tenure_row_locks` for
    /// row locks, `tenure_advisory_locks` for advisory locks.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = Some(table.into());
        self
    }

    /// Sets the longest time between two attempts of a waiter: 1 ms to 1 minute.
    ///
    /// Default: 2 s in PostgreSQL, which notifies waiters of releases, or 100 ms behind a `pooler`, where it cannot;
    /// 200 ms in MySQL and MariaDB, where a client tells only one of several waiting processes of its release. For the
    /// others, the time starts at a millisecond and grows up to this.
    pub fn poll(mut self, longest: Duration) -> Self {
        self.poll = Some(longest);
        self
    }

    /// Sets over how many connections names are spread: 1 to 64. Default: 2. More connections let more names be
    /// acquired and released at the same time. Another one is used for renewals. PostgreSQL also uses one that listens
    /// from the first wait on, and one for latches once one is used. MySQL and MariaDB also use one that sleeps while
    /// a name is awaited, and one that tells others of releases while they wait.
    ///
    /// For row locks and advisory locks, sets how many locks this client may hold or wait for at once, because each
    /// takes a connection: 1 to 1000. Default: 20. One more is refused as [`Error::Unavailable`]. Another connection
    /// takes the tokens.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Passes a parameter to the driver, after those that the URL already has.
    pub(crate) fn for_driver(mut self, name: &str, value: &str) -> Self {
        let separator = if self.url.0.contains('?') { '&' } else { '?' };
        self.url.0 = format!("{}{separator}{name}={}", self.url.0, encode(value));
        self
    }

    /// The options that only this kind of server has.
    pub(crate) fn own(&mut self) -> &mut D::Own {
        &mut self.own
    }

    fn check_files(&self) -> Result<(), Error> {
        let query = self.url.0.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        for (name, file) in pairs {
            let option = D::FILES.iter().find(|option| **option == name);
            if let (Some(option), Ok(path)) = (option, decode(file)) {
                check_readable(option, path)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check(self) -> Result<Checked<D::Own>, Error> {
        self.check_files()?;
        let Values { prefix, create_table, fair, connect_timeout, response_timeout } =
            self.checked_values()?;
        let (strategy, own) = (self.strategy, self.own);
        Ok(Checked {
            table: TablePath::new(self.table.as_deref().unwrap_or(strategy.default_table()))?,
            prefix,
            connections: strategy.check_connections(self.connections)?,
            fair: strategy.check_fair(fair)?,
            poll: Error::check_range("poll", self.poll.unwrap_or_else(|| D::poll(&own)), &Self::POLL_RANGE)?,
            connect_timeout,
            response_timeout,
            strategy,
            create_table,
            own,
        })
    }

    /// The driver's own options for connecting.
    pub(crate) fn connection(&self) -> Result<ConnectOptions<D>, Error> {
        let form = D::FORM;
        // In an invalid URL the password may be anywhere, so no part of it is repeated.
        let wrong = |problem, rest: &str| Error::invalid_option("url", problem, format!("{form}{rest}"));
        let scheme = self.url.0.split_once("://").map_or("", |(scheme, _)| scheme);
        if !D::SCHEMES.contains(&scheme) {
            return Err(wrong("unknown scheme", ""));
        }
        let badly_encoded =
            || wrong("badly encoded text", ", with special characters of the password written as %XX");
        // Of `//user:12#34@host` the driver makes a host `user` and a port 12, which messages would name.
        if self.url.0.contains('#') {
            return Err(badly_encoded());
        }
        // Of `//user:12/34@host` it makes a host `user` and a database `34@host`.
        let place = self.url.0.split('?').next().unwrap_or_default();
        if place.splitn(4, '/').nth(3).is_some_and(|database| database.contains('@')) {
            return Err(badly_encoded());
        }
        let query = self.url.0.split_once('?').map_or("", |(_, query)| query);
        let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
        if !pairs.all(|pair| D::PARAMETERS.contains(&pair.split_once('=').map_or(pair, |(name, _)| name))) {
            let parameters = format!(" with the parameters {}", D::PARAMETERS.join(", "));
            return Err(wrong("unknown parameter", &parameters));
        }
        let connect = self.url.0.parse::<ConnectOptions<D>>();
        D::complete(connect.map_err(|_| badly_encoded())?, query).map_err(|problem| wrong(problem, ""))
    }
}

impl<D: Dialect> Clone for ServerOptions<D> {
    fn clone(&self) -> Self {
        let (url, table, values) = (self.url.clone(), self.table.clone(), self.values.clone());
        Self { url, table, values, own: self.own.clone(), ..*self }
    }
}

impl<D: Dialect> Default for ServerOptions<D> {
    /// Without a URL, for [`ServerBackend::connect_with`](super::ServerBackend::connect_with).
    fn default() -> Self {
        Self::new("")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn refused<D: Dialect>(options: ServerOptions<D>, option: &str) {
        let error = options.connection().map(drop).and_then(|()| options.check().map(drop)).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    /// Of every kind of server. `wrong`: a parameter that there is, with a value that it cannot have.
    pub(crate) fn each_option_has_its_range<D: Dialect>(scheme: &str, right: &str, wrong: &str) {
        let at = |rest: &str| ServerOptions::<D>::new(format!("{scheme}://me:hunter2@localhost{rest}"));
        let server = || at(&format!("/app?{right}"));
        assert!(server().connection().is_ok() && server().check().is_ok());
        refused(ServerOptions::<D>::new(""), "url");
        refused(ServerOptions::<D>::new("redis://me:hunter2@localhost/app"), "url");
        refused(at(":port/app"), "url");
        refused(at(&format!("?{right}")), "url");
        for login in ["me:12/hunter2", "me:/hunter2", "me/hunter2", "me:12#hunter2", "me:#hunter2"] {
            refused(ServerOptions::<D>::new(format!("{scheme}://{login}@localhost/app")), "url");
        }
        refused(at("/app?no-such-mode=hunter2"), "url");
        refused(at(&format!("/app?{wrong}")), "url");
        refused(server().table("a.b.c"), "table");
        refused(server().prefix("a\nb"), "prefix");
        refused(server().poll(Duration::ZERO), "poll");
        refused(server().connections(0), "connections");
        refused(server().connections(65), "connections");
        assert!(server().fair(true).check().unwrap().fair);
        refused(server().strategy(Strategy::RowLock).fair(true), "fair");
        assert!(server().strategy(Strategy::RowLock).connections(65).check().is_ok());
        refused(server().strategy(Strategy::RowLock).connections(1001), "connections");
    }
}
