//! The options of a MySQL or MariaDB server, including those that other servers lack.

use crate::server::ServerOptions;

/// Options: which MySQL or MariaDB server, which table, and the timeouts.
///
/// # Examples
///
/// ```
/// use tenure_sql::MySqlOptions;
///
/// let options = MySqlOptions::new("mysql://app:secret@db.example/app").prefix("billing").table("app.locks");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
pub type MySqlOptions = ServerOptions<sqlx::MySql>;

/// The options that only MySQL and MariaDB have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Whether an advisory lock is the user-level lock of the same name.
    pub(super) named: bool,
}

impl MySqlOptions {
    /// Sets whether an advisory lock is the user-level lock of the same name, `GET_LOCK('NAME')`. Then tenure and programs
    /// that call `GET_LOCK` exclude each other. All [tables](Self::table) share such locks. Only
    /// [`Strategy::Advisory`](crate::Strategy::Advisory) uses this option. Default: `false`, which hashes database, table,
    /// prefix and name into the lock's name.
    ///
    /// A name has at most 64 characters then: acquiring a longer one fails with [`Error::Store`](tenure_core::Error::Store).
    /// MySQL ignores the case of these names. A [`prefix`](Self::prefix) makes connecting fail with
    /// [`Error::InvalidOption`](tenure_core::Error::InvalidOption).
    pub fn plain_user_locks(mut self, plain: bool) -> Self {
        self.own().named = plain;
        self
    }
}
