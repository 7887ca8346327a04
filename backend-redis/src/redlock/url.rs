//! URLs of several independent servers.

use super::options::RedlockOptions;
use crate::{
    RedisOptions,
    url::{of_each_server, several},
};
use tenure_core::{
    Error,
    options::Contains,
    url::{self, Guide, Scheme, Urls},
};

type Parameter = url::Parameter<RedlockOptions>;

impl Contains<RedisOptions> for RedlockOptions {
    fn change(self, change: impl FnMut(RedisOptions) -> RedisOptions) -> Self {
        self.each(change)
    }
}

impl RedlockOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[
            Scheme {
                form: "redlock://[USER:PASSWORD@]HOST,HOST,HOST[/DB]",
                about: "a majority of independent Redis servers",
            },
            Scheme {
                form: "rediss+redlock://[USER:PASSWORD@]HOST,HOST,HOST[/DB]",
                about: "a majority of Redis servers, over TLS",
            },
        ],
        parameters: &[
            &[Parameter::password_file()],
            RedisOptions::parameters(),
            &of_each_server(),
            &[Parameter::duration("node_timeout", Self::NODE_TIMEOUT_RANGE, "500ms", Self::node_timeout)
                .about("how long a round waits for silent servers, until a majority has answered")],
        ],
    };

    /// Reads a URL: the servers that it names, and the options in its parameters.
    ///
    /// `redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],…[/DATABASE]` uses TCP, with the same user, password and
    /// database on each server; `rediss+redlock://…` adds TLS to each.
    ///
    /// `%XX` is decoded in the user, the password and the parameters. [`urls`](Self::urls) lists the parameters. The
    /// files that they name are read.
    /// `lease` sets no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`], which never repeats the password; also if the file with it cannot be read, or can be read
    /// by others.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Self::URLS.read(url, |place| Ok(Self::of(several(&place)?)))
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        Self::URLS.guide()
    }
}
