//! The options of a PostgreSQL server, including those that other servers lack.

use crate::server::ServerOptions;

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

/// The options that only PostgreSQL has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    pub(super) durability: Durability,
    /// Whether a pooler may lend one session of the server to several clients. Unless the user says so, each session is
    /// [checked](super::server::Postgres::check_session).
    pub(super) pooler: Option<bool>,
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
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.own().pooler = Some(pooler);
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
