//! URLs of SQLite files.

use super::options::SqliteOptions;
use crate::table::TableName;
use tenure_core::{
    Error,
    url::{self, Guide, Refusal, Scheme, Urls, decode},
};

type Parameter = url::Parameter<SqliteOptions>;

const FORMS: &str = "write sqlite:locks.db, sqlite:/var/lib/app/locks.db or sqlite:///var/lib/app/locks.db";

impl SqliteOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[Scheme { form: "sqlite:PATH", about: "a SQLite file, for the processes of one machine" }],
        parameters: &[&[
            Parameter::prefix("none", |options, prefix| options.prefix(prefix)),
            Parameter::text("table", TableName::FORM, "tenure_locks", |options, table| options.table(table))
                .about("the table"),
            Parameter::flag("create_table", "true", Self::create_table)
                .about("whether the table is created when it is missing"),
            Parameter::flag("create_directory", "false", Self::create_directory)
                .about("whether the file's directory is created when it is missing"),
            Parameter::duration("poll", Self::POLL_RANGE, "50ms", Self::poll)
                .about("the longest time between two attempts of a waiter"),
            Parameter::duration("busy_timeout", Self::BUSY_TIMEOUT_RANGE, "5s", Self::busy_timeout)
                .about("how long a request waits while others write to the file"),
            Parameter::flag("fair", "false", Self::fair)
                .about("whether waiters of all clients are served in the order in which they came"),
        ]],
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

    #[test]
    fn every_parameter_reaches_its_option() {
        let url = "sqlite:x?prefix=a%26b+c&table=t&create_table=false&create_directory=true&poll=1s&busy_timeout=1m%2030s&fair=true";
        let [poll, busy_timeout] = [1, 90].map(std::time::Duration::from_secs);
        let options = SqliteOptions::new("x").prefix("a&b+c").table("t").create_table(false);
        let options = options.create_directory(true).poll(poll).busy_timeout(busy_timeout).fair(true);
        assert_eq!(format!("{:?}", SqliteOptions::from_url(url).unwrap()), format!("{options:?}"));
    }
}
