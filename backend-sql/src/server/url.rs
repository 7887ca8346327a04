//! The parts that the URLs of all database servers share.

use super::{dialect::Dialect, options::ServerOptions};
use crate::{strategy::Strategy, table::TablePath};
use tenure_core::{
    Error,
    url::{Parameter, Urls},
};

/// Descriptions that PostgreSQL and MySQL share.
pub(crate) const POLL: &str = "the longest time between two attempts of a waiter";
pub(crate) const ENCRYPTION: &str =
    "whether the connection is encrypted, and the server's certificate checked";
pub(crate) const AUTHORITIES: &str = "authorities that are trusted besides the system's";
pub(crate) const CERTIFICATE: &str = "the client's certificate";
pub(crate) const KEY: &str = "the key of that certificate";

impl<D: Dialect> ServerOptions<D> {
    /// The parameters outside the table of options that every kind of server has.
    pub(crate) const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::<Self>::password_file(),
        Parameter::<Self>::word("strategy", Strategy::WORDS, "lease-row", |options, word| {
            options.strategy(Strategy::of(word))
        })
        .about(
            "the kind of lock: a row that names the holder, a row that a connection has locked, or the server's own \
            named lock (pg_advisory_lock, GET_LOCK)",
        ),
        Parameter::<Self>::text(
            "table",
            TablePath::FORM,
            "tenure_locks, tenure_row_locks or tenure_advisory_locks, by strategy",
            |options, table| options.table(table),
        )
        .about("the table"),
        Parameter::<Self>::number("connections", 1..=1000, "2; 20 for other strategies", |options, count| {
            options.connections(count as usize)
        })
        .about(
            "lease rows: over how many connections names are spread (at most 64); otherwise: how \
            many locks the client may hold or wait for; the client opens a few more",
        ),
    ];

    /// The driver reads the place itself.
    pub(crate) fn read(urls: &Urls<Self>, url: &str) -> Result<Self, Error> {
        urls.read(url, |place| Ok(Self::new(place.url())))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Dialect, ServerOptions};

    /// Of every kind of server. `disabled`: the parameter that switches encryption off.
    pub(crate) fn password_is_read_from_a_file<D: Dialect>(
        scheme: &str,
        disabled: &str,
        read: impl Fn(&str) -> ServerOptions<D>,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "p@ss/w").unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        for place in ["db/app", "me@db:99/app"] {
            let url = format!("{scheme}://{place}?password_file={}&{disabled}", file.display());
            let connection = format!("{:?}", read(&url).connection().unwrap());
            assert!(connection.contains(r#"password: Some("p@ss/w")"#), "{place}: {connection}");
            assert!(connection.contains(r#"host: "db""#) && connection.contains("Disable"), "{connection}");
        }
    }
}
