//! URLs of MySQL and MariaDB servers.

use super::MySqlOptions;
use crate::server::url::{AUTHORITIES, CERTIFICATE, ENCRYPTION, KEY, POLL};
use tenure_core::{
    Error,
    url::{self, Guide, Scheme, Urls},
};

type Parameter = url::Parameter<MySqlOptions>;

impl MySqlOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[
            Scheme { form: "mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE", about: "MySQL" },
            Scheme { form: "mariadb://[USER:PASSWORD@]HOST[:PORT]/DATABASE", about: "MariaDB" },
        ],
        parameters: &[
            Self::parameters(),
            Self::PARAMETERS,
            &[
                Parameter::duration("poll", Self::POLL_RANGE, "200ms", Self::poll).about(POLL),
                Parameter::word("key", &["hash", "name"], "hash", |options, word| {
                    options.plain_user_locks(word == "name")
                })
                .about(
                    "strategy=advisory: what GET_LOCK gets: tenure's own hash, or the plain name, as other programs use",
                ),
                Parameter::word(
                    "ssl-mode",
                    &["disabled", "preferred", "required", "verify_ca", "verify_identity"],
                    "preferred",
                    |options, mode| options.for_driver("ssl-mode", mode),
                )
                .about(ENCRYPTION),
                Parameter::text("ssl-ca", "a file", "none", |options, file| {
                    options.for_driver("ssl-ca", file)
                })
                .about(AUTHORITIES),
                Parameter::text("ssl-cert", "a file", "none", |options, file| {
                    options.for_driver("ssl-cert", file)
                })
                .about(CERTIFICATE),
                Parameter::text("ssl-key", "a file", "none", |options, file| {
                    options.for_driver("ssl-key", file)
                })
                .about(KEY),
            ],
        ],
    };

    /// Reads a URL: the server and database that it names, and the options in its parameters, which
    /// [`urls`](Self::urls) lists.
    ///
    /// The `ssl-…` parameters have the names and meanings of [`new`](Self::new). `lease` sets no option:
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
    /// use tenure_sql::MySqlOptions;
    ///
    /// let url = "mariadb://app:secret@db.example/app?prefix=billing&ssl-mode=verify_identity";
    /// let options = MySqlOptions::from_url(url)?;
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
        let url = "mariadb://db/app?ssl-mode=verify_ca&ssl-ca=%2Fa%20b%26c.pem&ssl-cert=d.pem&ssl-key=e.key";
        let seen = format!("{:?}", MySqlOptions::from_url(url).unwrap().connection().unwrap());
        for value in ["VerifyCa", "/a b&c.pem", "d.pem", "e.key"] {
            assert!(seen.contains(value), "{value} is not in {seen}");
        }
    }

    #[test]
    fn missing_file_is_refused_before_connecting() {
        let options = MySqlOptions::from_url("mariadb://db/app?ssl-ca=%2Fno%20such.pem").unwrap();
        let error = options.check().map(drop).unwrap_err().to_string();
        assert!(error.contains("invalid ssl-ca: \"/no such.pem\" (No such file"), "{error}");
    }

    #[test]
    fn password_is_read_from_a_file() {
        tests::password_is_read_from_a_file("mysql", "ssl-mode=disabled", |url| {
            MySqlOptions::from_url(url).unwrap()
        });
    }
}
