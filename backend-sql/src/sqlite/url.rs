//! URLs of SQLite files.

use super::options::SqliteOptions;
use tenure_core::{
    Error,
    url::{Guide, Refusal, Scheme, Urls, decode},
};

const FORMS: &str = "write sqlite:locks.db, sqlite:/var/lib/app/locks.db or sqlite:///var/lib/app/locks.db";

impl SqliteOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[Scheme { form: "sqlite:PATH", about: "a SQLite file, for the processes of one machine" }],
        parameters: &[Self::parameters()],
    };

    /// Reads a URL: the file that it names, and the options in its parameters.
    ///
    /// `sqlite:locks.db` is a relative path, `sqlite:/var/lib/app/locks.db` an absolute one, which may also follow
    /// `sqlite://`. `%XX` is decoded and `~` is not expanded. [`urls`](Self::urls) lists the parameters. `lease` sets
    /// no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_sql::SqliteOptions;
    ///
    /// let options = SqliteOptions::from_url("sqlite:/var/lib/app/locks.db?prefix=billing&poll=20ms")?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Self::URLS.read(url, |place| {
            let Some(path) = place.path() else {
                return Err(Refusal::new("sqlite: takes no host", FORMS));
            };
            check_path(decode(path)?).map(Self::new)
        })
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        Self::URLS.guide()
    }
}

fn check_path(path: String) -> Result<String, Refusal> {
    let (problem, valid) = if path.is_empty() {
        ("missing path", FORMS)
    } else if path == ":memory:" {
        ("a SQLite database in memory cannot be shared", "write memory: for locks in memory")
    } else if path == "~" || path.starts_with("~/") {
        ("~ is not expanded", "write the path of the home directory, or ./~ for a directory of that name")
    } else if path.chars().any(char::is_control) {
        ("control character in the path", FORMS)
    } else {
        return Ok(path);
    };
    Err(Refusal::new(problem, valid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_urls() {
        for (url, path) in [
            ("sqlite:locks.db", "locks.db"),
            ("SQLite:locks.db", "locks.db"),
            ("sqlite:a/../locks.db", "a/../locks.db"),
            ("sqlite:/var/x.db", "/var/x.db"),
            ("sqlite:///var/x.db", "/var/x.db"),
            ("sqlite:./~", "./~"),
            ("sqlite:a%20b%3F%23%25+@é.db?lease=5s", "a b?#%+@é.db"),
        ] {
            let shown = format!("{:?}", SqliteOptions::from_url(url).unwrap());
            assert_eq!(shown, format!("{:?}", SqliteOptions::new(path)), "{url}");
        }
    }
}
