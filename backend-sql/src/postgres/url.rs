//! URLs of PostgreSQL servers.

use super::{AdvisoryKey, PostgresOptions, options::Durability};
use crate::server::url::{AUTHORITIES, CERTIFICATE, ENCRYPTION, KEY, POLL};
use tenure_core::{
    Error,
    url::{self, Guide, Scheme, Urls},
};

type Parameter = url::Parameter<PostgresOptions>;

impl PostgresOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[
            Scheme { form: "postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE", about: "PostgreSQL" },
            Scheme { form: "postgresql://[USER:PASSWORD@]HOST[:PORT]/DATABASE", about: "the same" },
        ],
        parameters: &[
            Self::parameters(),
            Self::PARAMETERS,
            &[
                Parameter::duration("poll", Self::POLL_RANGE, "2s; 100ms with pooler", Self::poll)
                    .about(POLL),
                Parameter::word("durability", &["full", "relaxed"], "full", |options, word| {
                    options.durability(if word == "full" { Durability::Full } else { Durability::Relaxed })
                })
                .about(
                    "whether a commit waits for the disk; with relaxed, a server crash may undo the \
                    last moments",
                ),
                Parameter::flag("pooler", "none", Self::pooler).about(
                    "the pooler in use: true in transaction mode (no session features are used), false in \
                    session mode",
                ),
                Parameter::checked_text(
                    "key",
                    AdvisoryKey::FORMS,
                    |text| text.parse::<AdvisoryKey>().is_ok(),
                    "own",
                    // It was checked just before.
                    |options, text| options.advisory_key(text.parse().unwrap_or_default()),
                )
                .about(
                    "strategy=advisory: the key of pg_advisory_lock: tenure's own, PostgreSQL's hash of the name, or one \
                    number for all names",
                ),
                Parameter::word(
                    "sslmode",
                    &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
                    "prefer",
                    |options, mode| options.for_driver("sslmode", mode),
                )
                .about(ENCRYPTION),
                Parameter::text("sslrootcert", "a file", "none", |options, file| {
                    options.for_driver("sslrootcert", file)
                })
                .about(AUTHORITIES),
                Parameter::text("sslcert", "a file", "none", |options, file| {
                    options.for_driver("sslcert", file)
                })
                .about(CERTIFICATE),
                Parameter::text("sslkey", "a file", "none", |options, file| {
                    options.for_driver("sslkey", file)
                })
                .about(KEY),
            ],
        ],
    };

    /// Reads a URL: the server and database that it names, and the options in its parameters, which
    /// [`urls`](Self::urls) lists.
    ///
    /// The `ssl…` parameters have the names and meanings of [`new`](Self::new). `lease` sets no option:
    /// [`url::lease`](tenure_core::url::lease()) reads it, for [`Locks::with_lease`](tenure_core::Locks::with_lease).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL, without its user and password; also if the file that `password_file`
    /// names cannot be read, or can be read by others.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_sql::PostgresOptions;
    ///
    /// let url = "postgres://app:secret@db.example/app?prefix=billing&sslmode=verify-full";
    /// let options = PostgresOptions::from_url(url)?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Self::read(&Self::URLS, url)
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        Self::URLS.guide()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::url::tests;

    #[test]
    fn driver_parameters_reach_the_driver() {
        let url =
            "postgres://db/app?sslmode=verify-ca&sslrootcert=%2Fa%20b%26c.pem&sslcert=d.pem&sslkey=e.key";
        let seen = format!("{:?}", PostgresOptions::from_url(url).unwrap().connection().unwrap());
        for value in ["VerifyCa", "/a b&c.pem", "d.pem", "e.key"] {
            assert!(seen.contains(value), "{value} is not in {seen}");
        }
    }

    #[test]
    fn missing_file_is_refused_before_connecting() {
        let options = PostgresOptions::from_url("postgres://db/app?sslrootcert=%2Fno%20such.pem").unwrap();
        let error = options.check().map(drop).unwrap_err().to_string();
        assert!(error.contains("invalid sslrootcert: \"/no such.pem\" (No such file"), "{error}");
    }

    #[test]
    fn password_is_read_from_a_file() {
        tests::password_is_read_from_a_file("postgres", "sslmode=disable", |url| {
            PostgresOptions::from_url(url).unwrap()
        });
    }
}
