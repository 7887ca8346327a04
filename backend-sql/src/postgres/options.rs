//! How a PostgreSQL server is used for locks.

use crate::{
    options::{self, Strategy, check_prefix, check_range},
    table::TablePath,
};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};
use tenure_core::Error;

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// What the server's `synchronous_commit` says: normally the disk, and with it the replicas that are configured so.
    #[default]
    Full,
    /// Nothing (`synchronous_commit = off`): several times faster. When the *server* crashes, grants and releases of its
    /// last moments (three times `wal_writer_delay`, 0.6 s by default) may be undone, so a lock granted then can be granted
    /// again while its holder still works. Tokens still rise, because they follow the server's clock, so a resource that
    /// checks them stays right.
    Relaxed,
}

/// Which server, which table, and how patient to be. Checked by
/// [`PostgresBackend::connect`](super::PostgresBackend::connect), before the server is asked.
///
/// # Examples
///
/// ```
/// use tenure_sql::PostgresOptions;
///
/// let options = PostgresOptions::new("postgres://app:secret@db.example/app").prefix("billing").table("app.locks");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until the server is connected to"]
pub struct PostgresOptions {
    url: String,
    strategy: Strategy,
    table: Option<String>,
    prefix: String,
    poll: Option<Duration>,
    connections: Option<usize>,
    fair: bool,
    connect_timeout: Duration,
    response_timeout: Duration,
    create_table: bool,
    durability: Durability,
    pooler: bool,
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
    pub(super) durability: Durability,
    pub(super) pooler: bool,
}

/// The parameters of a URL that are handed to the driver.
const CONNECTION_PARAMETERS: [&str; 7] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port", "application_name"];

impl PostgresOptions {
    /// What [`poll`](Self::poll) may be.
    pub const POLL_RANGE: RangeInclusive<Duration> = options::POLL;
    /// What [`connect_timeout`](Self::connect_timeout) may be.
    pub const CONNECT_TIMEOUT_RANGE: RangeInclusive<Duration> = options::PATIENCE;
    /// What [`response_timeout`](Self::response_timeout) may be.
    pub const RESPONSE_TIMEOUT_RANGE: RangeInclusive<Duration> = options::PATIENCE;

    /// The server and database that `url` names, with every option at its default.
    ///
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters `sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    /// `host` (a directory with a socket), `port` and `application_name` as
    /// [libpq](https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS) has them, except that
    /// `sslmode=allow` never encrypts. What the URL leaves out comes from libpq's environment variables and from `~/.pgpass`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            strategy: Strategy::LeaseRow,
            table: None,
            prefix: String::new(),
            poll: None,
            connections: None,
            fair: false,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            create_table: true,
            durability: Durability::Full,
            pooler: false,
        }
    }

    /// What a lock is: [`Strategy::LeaseRow`] unless said.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The table, `tenure_locks` unless said, or `tenure_row_locks` for row locks; `schema.table` where it is in a schema
    /// that `search_path` does not lead to. Each part is 1 to 63 letters, digits and underscores.
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

    /// The longest time that a waiter lets pass without asking again: 1 ms to 1 minute. Unless said, 2 s, because the
    /// server tells waiters of releases; 100 ms behind a [`pooler`](Self::pooler), where it cannot.
    pub fn poll(mut self, longest: Duration) -> Self {
        self.poll = Some(longest);
        self
    }

    /// Over how many connections names are spread: 1 to 64, 2 unless said. More of them let more names be acquired and
    /// released at the same time. Beside them there are one for renewals and, while somebody waits, one that listens.
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
    /// The server itself gives up a little earlier (`lock_timeout`, `statement_timeout`), so that nothing waits there that nobody
    /// waits for.
    pub fn response_timeout(mut self, longest: Duration) -> Self {
        self.response_timeout = longest;
        self
    }

    /// Whether the table is created when it is missing: `true` unless said. See
    /// [`postgres_schema`](super::postgres_schema) for those who create it by hand.
    pub fn create_table(mut self, create: bool) -> Self {
        self.create_table = create;
        self
    }

    /// What a commit waits for: [`Durability::Full`] unless said.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether the server is reached through a pooler in transaction mode, such as `PgBouncer`: `false` unless said.
    ///
    /// Then nothing is used that belongs to a session: no prepared statements and no notifications, and each request is a
    /// short transaction in one message, which a client that vanishes cannot leave open. A pooler in session mode needs none of this.
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    pub(super) fn check(self) -> Result<Checked, Error> {
        let poll = if self.pooler { Duration::from_millis(100) } else { Duration::from_secs(2) };
        Ok(Checked {
            strategy: self.strategy,
            table: TablePath::new(self.table.as_deref().unwrap_or(self.strategy.default_table()))?,
            prefix: check_prefix(self.prefix)?,
            connections: self.strategy.check_connections(self.connections)?,
            fair: self.strategy.check_fair(self.fair)?,
            poll: check_range("poll", self.poll.unwrap_or(poll), &Self::POLL_RANGE)?,
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
            durability: self.durability,
            pooler: self.pooler,
        })
    }

    /// What the driver needs to connect.
    pub(super) fn connection(&self) -> Result<PgConnectOptions, Error> {
        // A URL that is wrong may have its password in any place, so nothing of it is repeated.
        let wrong = |allowed: String| Error::invalid_option("url", "that", allowed);
        let form = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| self.url.strip_prefix(scheme));
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
        let connect = PgConnectOptions::from_str(&self.url)
            .map_err(|_| wrong(format!("{form}, with special characters of the password written as %XX")))?;
        // As libpq has it. The driver would not look at the certificate.
        let authorities = query.split('&').any(|pair| pair.starts_with("sslrootcert="))
            || std::env::var_os("PGSSLROOTCERT").is_some();
        let connect = match connect.get_ssl_mode() {
            PgSslMode::Require if authorities => connect.ssl_mode(PgSslMode::VerifyCa),
            _ => connect,
        };
        if connect.get_application_name().is_some() {
            return Ok(connect);
        }
        Ok(connect.application_name("tenure"))
    }
}

impl Default for PostgresOptions {
    /// Without a URL, for [`PostgresBackend::from_pool`](super::PostgresBackend::from_pool).
    fn default() -> Self {
        Self::new("")
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("strategy", &self.strategy)
            .field("table", &self.table)
            .field("prefix", &self.prefix)
            .field("poll", &self.poll)
            .field("fair", &self.fair)
            .field("durability", &self.durability)
            .field("pooler", &self.pooler)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: PostgresOptions, option: &str) {
        let error = options.connection().map(drop).and_then(|()| options.check().map(drop)).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn each_option_has_its_range() {
        let server = || PostgresOptions::new("postgres://me:hunter2@localhost/app?sslmode=disable");
        assert!(server().connection().is_ok() && server().check().is_ok());
        refused(PostgresOptions::new(""), "url");
        refused(PostgresOptions::new("mysql://me:hunter2@localhost/app"), "url");
        refused(PostgresOptions::new("postgres://me:hunter2@localhost:port/app"), "url");
        refused(PostgresOptions::new("postgres://me:hunter2@localhost/app?sslmod=hunter2"), "url");
        refused(PostgresOptions::new("postgres://me:hunter2@localhost/app?sslmode=hunter2"), "url");
        refused(server().table("a.b.c"), "table");
        refused(server().prefix("a\nb"), "prefix");
        refused(server().poll(Duration::ZERO), "poll");
        refused(server().connections(0), "connections");
        refused(server().connections(65), "connections");
        assert!(server().fair(true).check().unwrap().fair);
        refused(server().strategy(Strategy::RowLock).fair(true), "fair");
        assert!(server().strategy(Strategy::RowLock).connections(65).check().is_ok());
        refused(server().strategy(Strategy::RowLock).connections(1001), "connections");
        refused(server().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(server().response_timeout(Duration::MAX), "response_timeout");
    }

    #[test]
    fn waiters_ask_more_often_where_nobody_tells_them() {
        let server = || PostgresOptions::new("postgres://localhost/app");
        assert_eq!(server().check().unwrap().poll, Duration::from_secs(2));
        assert_eq!(server().pooler(true).check().unwrap().poll, Duration::from_millis(100));
        assert_eq!(
            server().pooler(true).poll(Duration::from_secs(1)).check().unwrap().poll,
            Duration::from_secs(1)
        );
    }
}
