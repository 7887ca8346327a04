//! How a MySQL or MariaDB server is used for locks.

use crate::{
    options::{self, Strategy, check_prefix, check_range},
    table::TablePath,
};
use sqlx::mysql::MySqlConnectOptions;
use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};
use tenure_core::Error;

/// Which server, which table, and how patient to be. Checked by
/// [`MySqlBackend::connect`](super::MySqlBackend::connect), before the server is asked.
///
/// # Examples
///
/// ```
/// use tenure_sql::MySqlOptions;
///
/// let options = MySqlOptions::new("mysql://app:secret@db.example/app").prefix("billing").table("app.locks");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until the server is connected to"]
pub struct MySqlOptions {
    url: String,
    strategy: Strategy,
    table: Option<String>,
    prefix: String,
    poll: Duration,
    connections: Option<usize>,
    fair: bool,
    connect_timeout: Duration,
    response_timeout: Duration,
    create_table: bool,
}

/// The same, each within its range.
#[derive(Clone)]
pub(super) struct Checked {
    pub(super) strategy: Strategy,
    pub(super) table: TablePath,
    pub(super) prefix: String,
    pub(super) poll: Duration,
    pub(super) connections: usize,
    pub(super) fair: bool,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) create_table: bool,
}

/// The parameters of a URL that are handed to the driver.
const CONNECTION_PARAMETERS: [&str; 5] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"];

impl MySqlOptions {
    /// What [`poll`](Self::poll) may be.
    pub const POLL_RANGE: RangeInclusive<Duration> = options::POLL;
    /// What [`connect_timeout`](Self::connect_timeout) may be.
    pub const CONNECT_TIMEOUT_RANGE: RangeInclusive<Duration> = options::PATIENCE;
    /// What [`response_timeout`](Self::response_timeout) may be.
    pub const RESPONSE_TIMEOUT_RANGE: RangeInclusive<Duration> = options::PATIENCE;

    /// The server and database that `url` names, with every option at its default.
    ///
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `mariadb://…`, with the parameters `ssl-mode`, `ssl-ca`, `ssl-cert`,
    /// `ssl-key` as [the servers' own clients](https://dev.mysql.com/doc/refman/8.0/en/connection-options.html) have them,
    /// and `socket`, the path of one.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            strategy: Strategy::LeaseRow,
            table: None,
            prefix: String::new(),
            poll: Duration::from_millis(200),
            connections: None,
            fair: false,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            create_table: true,
        }
    }

    /// What a lock is: [`Strategy::LeaseRow`] unless said.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The table, `tenure_locks` unless said, or `tenure_row_locks` for row locks; `database.table` where it is in another
    /// database. Each part is 1 to 63 letters, digits and underscores.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = Some(table.into());
        self
    }

    /// The namespace, empty unless said: up to 200 bytes without control characters. Names of different prefixes
    /// never meet.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest time that a waiter lets pass without looking again: 1 ms to 1 minute, 200 ms unless said. It begins at a
    /// millisecond and grows up to this.
    pub fn poll(mut self, longest: Duration) -> Self {
        self.poll = longest;
        self
    }

    /// Over how many connections names are spread: 1 to 64, 2 unless said. More of them let more names be acquired and
    /// released at the same time. Beside them there is one for renewals.
    ///
    /// For row locks it is how many locks this client may hold or wait for at once, because each takes a connection: 1 to
    /// 1000, 20 unless said. One more is refused as [`Error::Unavailable`]. Beside them there is one that takes tokens.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Whether waiters of all processes are served in the order in which they came: `false` unless said. All clients of a name
    /// must agree on it.
    ///
    /// Each waiting process then writes the name's row two to five times a second, to keep its place; one that dies delays
    /// those behind it by 3 s at most. Not for row locks, which stand in the server's own queue.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// How long it may take to connect: 1 ms to 10 minutes, 5 s unless said.
    pub fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// How long the server may take to answer, before it counts as unavailable: 1 ms to 10 minutes, 5 s unless said.
    ///
    /// The server itself gives up waiting for locks a little earlier (`innodb_lock_wait_timeout`, `lock_wait_timeout`), so that
    /// nothing waits there that nobody waits for. It counts whole seconds, at least one.
    pub fn response_timeout(mut self, longest: Duration) -> Self {
        self.response_timeout = longest;
        self
    }

    /// Whether the table is created when it is missing: `true` unless said. See
    /// [`mysql_schema`](super::mysql_schema) for those who create it by hand.
    pub fn create_table(mut self, create: bool) -> Self {
        self.create_table = create;
        self
    }

    pub(super) fn check(self) -> Result<Checked, Error> {
        Ok(Checked {
            strategy: self.strategy,
            table: TablePath::new(self.table.as_deref().unwrap_or(self.strategy.default_table()))?,
            prefix: check_prefix(self.prefix)?,
            connections: self.strategy.check_connections(self.connections)?,
            fair: self.strategy.check_fair(self.fair)?,
            poll: check_range("poll", self.poll, &Self::POLL_RANGE)?,
            connect_timeout: check_range(
                "connect_timeout",
                self.connect_timeout,
                &Self::CONNECT_TIMEOUT_RANGE,
            )?,
            response_timeout: check_range(
                "response_timeout",
                self.response_timeout,
                &Self::RESPONSE_TIMEOUT_RANGE,
            )?,
            create_table: self.create_table,
        })
    }

    /// What the driver needs to connect.
    pub(super) fn connection(&self) -> Result<MySqlConnectOptions, Error> {
        // A URL that is wrong may have its password in any place, so nothing of it is repeated.
        let wrong = |allowed: String| Error::invalid_option("url", "that", allowed);
        let form = "mysql://USER:PASSWORD@HOST:PORT/DATABASE";
        let rest = ["mysql://", "mariadb://"].iter().find_map(|scheme| self.url.strip_prefix(scheme));
        let Some(rest) = rest else { return Err(wrong(form.to_owned())) };
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            if !CONNECTION_PARAMETERS.contains(&name) {
                return Err(wrong(format!(
                    "{form} with the parameters {}",
                    CONNECTION_PARAMETERS.join(", ")
                )));
            }
        }
        let connect = MySqlConnectOptions::from_str(&self.url)
            .map_err(|_| wrong(format!("{form}, with special characters of the password written as %XX")))?;
        if connect.get_database().is_none() {
            return Err(wrong(format!("{form}, with a database")));
        }
        Ok(connect)
    }
}

impl Default for MySqlOptions {
    /// Without a URL, for [`MySqlBackend::from_pool`](super::MySqlBackend::from_pool).
    fn default() -> Self {
        Self::new("")
    }
}

impl fmt::Debug for MySqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlOptions")
            .field("strategy", &self.strategy)
            .field("table", &self.table)
            .field("prefix", &self.prefix)
            .field("poll", &self.poll)
            .field("fair", &self.fair)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: MySqlOptions, option: &str) {
        let error = options.connection().map(drop).and_then(|()| options.check().map(drop)).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn each_option_has_its_range() {
        let server = || MySqlOptions::new("mysql://me:hunter2@localhost/app?ssl-mode=disabled");
        assert!(server().connection().is_ok() && server().check().is_ok());
        refused(MySqlOptions::new(""), "url");
        refused(MySqlOptions::new("redis://me:hunter2@localhost/app"), "url");
        refused(MySqlOptions::new("mysql://me:hunter2@localhost:port/app"), "url");
        refused(MySqlOptions::new("mysql://me:hunter2@localhost"), "url");
        refused(MySqlOptions::new("mysql://me:hunter2@localhost/app?ssl-mod=hunter2"), "url");
        refused(MySqlOptions::new("mysql://me:hunter2@localhost/app?ssl-mode=hunter2"), "url");
        refused(server().table("a.b.c"), "table");
        refused(server().prefix("a\nb"), "prefix");
        refused(server().poll(Duration::ZERO), "poll");
        refused(server().connections(0), "connections");
        refused(server().connections(65), "connections");
        assert!(server().fair(true).check().unwrap().fair);
        refused(server().strategy(Strategy::RowLock).fair(true), "fair");
        refused(server().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(server().response_timeout(Duration::MAX), "response_timeout");
    }
}
