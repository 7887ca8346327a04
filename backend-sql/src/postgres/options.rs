//! The options of a PostgreSQL server, including those that other servers lack.

use crate::server::ServerOptions;
use std::{fmt, str::FromStr};

/// Options of a PostgreSQL server: its URL, the table, and the timeouts.
///
/// # Examples
///
/// ```
/// use tenure_sql::PostgresOptions;
///
/// let options = PostgresOptions::new("postgres://app:secret@db.example/app").prefix("billing").table("app.locks");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
pub type PostgresOptions = ServerOptions<sqlx::Postgres>;

/// The disks and replicas that a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// As the server's `synchronous_commit` says: normally the disk, and the replicas that are configured to confirm.
    /// Only the release of a lease row waits for nothing: if the *server* crashes at that moment, the name becomes free
    /// one lease later.
    #[default]
    Full,
    /// Nothing (`synchronous_commit = off`): several times faster. If the *server* crashes, grants and releases of its
    /// last moments (three times `wal_writer_delay`, 0.6 s by default) may be undone. A lock granted in that time can
    /// then be granted again while its holder still works. Tokens still rise, because they follow the server's clock,
    /// so a resource that checks them stays correct. Latches are always written as with [`Full`](Self::Full).
    Relaxed,
}

/// How the key of an advisory lock is made from its name.
///
/// Two programs that lock the same key in one database exclude each other. [`Own`](Self::Own) is for clients of tenure. The
/// other keys are those of programs that call `pg_advisory_lock` themselves: all [tables](PostgresOptions::table) share
/// them, and a [`prefix`](PostgresOptions::prefix) is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdvisoryKey {
    /// 64 bits of a hash of table, prefix and name.
    #[default]
    Own,
    /// `hashtextextended('NAME', 0)`, with 64 bits.
    HashTextExtended,
    /// `hashtext('NAME')`, with 32 bits: of 10,000 names, two have the same key with a probability of one in a hundred.
    HashText,
    /// This number for every name, so all names are one lock: a program that waits for a second name while it holds a first
    /// one waits for itself.
    Number(i64),
}

impl AdvisoryKey {
    /// The forms of a key in a URL.
    pub(super) const FORMS: &'static str = "own, hashtextextended, hashtext, or a number";

    /// The key as an expression, where `$1` is the name, and `{seed}` a number for table and prefix.
    pub(super) fn expression(self) -> String {
        match self {
            Self::Own => "hashtextextended($1, {seed})".to_owned(),
            Self::HashTextExtended => "hashtextextended($1, 0)".to_owned(),
            Self::HashText => "hashtext($1)::bigint".to_owned(),
            // A parameter that no expression uses has no type.
            Self::Number(number) => format!("coalesce('{number}'::bigint, length($1))"),
        }
    }
}

/// The value of the parameter `key`: `own`, `hashtextextended`, `hashtext` or a number.
impl fmt::Display for AdvisoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::HashTextExtended => f.write_str("hashtextextended"),
            Self::HashText => f.write_str("hashtext"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Reads the value of the parameter `key`.
impl FromStr for AdvisoryKey {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "own" => Ok(Self::Own),
            "hashtextextended" => Ok(Self::HashTextExtended),
            "hashtext" => Ok(Self::HashText),
            number => number.parse().map(Self::Number),
        }
    }
}

/// The options that only PostgreSQL has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    pub(super) durability: Durability,
    /// Whether a pooler may lend one session of the server to several clients. Unless the user says so, each session is
    /// [checked](super::server::Postgres::check_session).
    pub(super) pooler: Option<bool>,
    /// Only for advisory locks.
    pub(super) key: AdvisoryKey,
}

impl Own {
    /// Whether nothing may be left in a session beyond a transaction.
    pub(super) fn pooled(self) -> bool {
        self.pooler == Some(true)
    }
}

impl PostgresOptions {
    /// Sets the disks and replicas that a commit waits for. Default: [`Durability::Full`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.own().durability = durability;
        self
    }

    /// Sets whether the server is behind a pooler in transaction mode, such as `PgBouncer`: `true`, or `false` if it is
    /// behind one in session mode. By default, connecting fails if there is a pooler, because other programs may use
    /// the same sessions of the server.
    ///
    /// With `true`, nothing that belongs to a session is used: no prepared statements and no notifications. Each request
    /// is a short transaction in one message, which a vanishing client cannot leave open.
    ///
    /// [`Strategy::Advisory`](crate::Strategy::Advisory) keeps its locks in sessions, so with `true` connecting fails with
    /// [`Error::InvalidOption`](tenure_core::Error::InvalidOption).
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.own().pooler = Some(pooler);
        self
    }

    /// Sets how the key of an advisory lock is made from its name. Only [`Strategy::Advisory`](crate::Strategy::Advisory)
    /// uses this option. All clients of a name must agree on it. Default: [`AdvisoryKey::Own`].
    ///
    /// With another key, a [`prefix`](Self::prefix) makes connecting fail with
    /// [`Error::InvalidOption`](tenure_core::Error::InvalidOption).
    pub fn advisory_key(mut self, key: AdvisoryKey) -> Self {
        self.own().key = key;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::options_tests::{each_option_has_its_range, refused};
    use std::time::Duration;

    #[test]
    fn options_have_their_ranges() {
        each_option_has_its_range::<sqlx::Postgres>("postgres", "sslmode=disable", "sslmode=hunter2");
        refused(PostgresOptions::new("mysql://me:hunter2@localhost/app"), "url");
    }

    #[test]
    fn poll_is_shorter_behind_a_pooler() {
        let server = || PostgresOptions::new("postgres://localhost/app");
        assert_eq!(server().check().unwrap().poll, Duration::from_secs(2));
        assert_eq!(server().pooler(true).check().unwrap().poll, Duration::from_millis(100));
        assert_eq!(
            server().pooler(true).poll(Duration::from_secs(1)).check().unwrap().poll,
            Duration::from_secs(1)
        );
    }
}
