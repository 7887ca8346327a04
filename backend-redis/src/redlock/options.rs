//! Which servers, and the timeout of each.

use super::{identity::Identities, voter::Voter};
use crate::RedisOptions;
use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc, time::Duration};
use tenure_core::{Background, Error};

/// The possible numbers of servers.
const SERVERS: RangeInclusive<usize> = 3..=31;
/// The default of `node_timeout`.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of independent Redis servers, a quorum of which holds each lock.
///
/// Use an odd number: five survive the loss of two, and six survive no more than that. Each is a master of its own,
/// without replicas that could take over. [`RedlockBackend::connect`](crate::RedlockBackend::connect) checks the
/// options before it contacts any server.
///
/// # Examples
///
/// ```
/// use tenure_redis::{RedisOptions, RedlockOptions};
///
/// let options = RedlockOptions::from_url("redlock://app:secret@a,b,c:6380/1")?
///     .each(|server| server.prefix("billing:"));
///
/// // With a different password for each:
/// let servers = ["rediss://:one@a", "rediss://:two@b", "rediss://:three@c"].map(RedisOptions::from_url);
/// let options = RedlockOptions::of(servers.into_iter().collect::<Result<Vec<_>, _>>()?);
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are used to connect"]
pub struct RedlockOptions {
    servers: Vec<RedisOptions>,
    node_timeout: Duration,
}

/// The options that a backend needs, each within its range.
pub(crate) struct CheckedRedlockOptions {
    pub(crate) voters: Vec<Voter>,
    pub(crate) node_timeout: Duration,
    /// The options that all servers share.
    pub(crate) background: Background,
}

impl RedlockOptions {
    /// The range of [`node_timeout`](Self::node_timeout).
    pub const NODE_TIMEOUT_RANGE: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_mins(1);

    /// Uses these servers, 3 to 31 of them.
    pub fn of(servers: impl IntoIterator<Item = RedisOptions>) -> Self {
        Self { servers: servers.into_iter().collect(), node_timeout: NODE_TIMEOUT }
    }

    /// Changes the options of every server in the same way.
    pub fn each(mut self, change: impl FnMut(RedisOptions) -> RedisOptions) -> Self {
        self.servers = self.servers.into_iter().map(change).collect();
        self
    }

    /// Sets how long one server may take per round before the lock is decided without it: 1 ms to 1 minute, and never
    /// longer than a lease. Default: 500 ms.
    ///
    /// A server that hangs costs nothing as long as the others are a quorum. When they are not, this bounds the cost.
    pub fn node_timeout(mut self, longest: Duration) -> Self {
        self.node_timeout = longest;
        self
    }

    pub(crate) fn check(self) -> Result<CheckedRedlockOptions, Error> {
        Error::check_range("node_timeout", self.node_timeout, &Self::NODE_TIMEOUT_RANGE)?;
        if !SERVERS.contains(&self.servers.len()) {
            let given = self.servers.len().to_string();
            return Err(Error::invalid_option(
                "number of servers",
                given,
                "3 to 31, preferably an odd number",
            ));
        }
        let background = Background::new();
        let (mut voters, mut places, mut prefixes) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let identities = Arc::<Identities>::default();
        for options in &self.servers {
            let checked = options.check()?;
            if checked.fair {
                return Err(Error::invalid_option(
                    "fair",
                    "true",
                    "false, because the servers share no queue",
                ));
            }
            if checked.replicas > 0 {
                let given = checked.replicas.to_string();
                return Err(Error::invalid_option(
                    "replicas",
                    given,
                    "0, because a majority of the servers keeps a grant",
                ));
            }
            prefixes.insert(checked.prefix.clone());
            let voter = Voter::new(options, checked, &background, Arc::clone(&identities))?;
            if !places.insert(voter.address()) {
                let given = format!("{} twice", voter.address());
                return Err(Error::invalid_option("servers", given, "a different server each time"));
            }
            voters.push(voter);
        }
        if prefixes.len() > 1 {
            let given = format!("{prefixes:?}");
            return Err(Error::invalid_option("prefix", given, "the same prefix on every server"));
        }
        Ok(CheckedRedlockOptions { voters, node_timeout: self.node_timeout, background })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(url: &str) -> Result<Vec<String>, Error> {
        let checked = RedlockOptions::from_url(url)?.check()?;
        Ok(checked.voters.iter().map(|voter| voter.address().to_string()).collect())
    }

    #[tokio::test]
    async fn servers_are_read_from_the_url() {
        assert_eq!(places("redlock://a,b:7000,[::1]:1").unwrap(), ["a:6379", "b:7000", "[::1]:1"]);
        assert_eq!(places("REDLOCK://u:p,q@r@a,b,c/3").unwrap().len(), 3);
    }

    #[tokio::test]
    async fn refusals_name_the_mistake() {
        for (url, problem) in [
            ("redlock:a,b,c", "missing host"),
            ("redlock://a,b,c:x", "port is not a number"),
            ("redlock://user@a,b,c", "user without a password"),
            ("redlock://a,b", "invalid number of servers: 2; expected 3 to 31"),
            ("redlock://a,b,a:6379", "a:6379 twice"),
        ] {
            let error = places(url).expect_err(url).to_string();
            assert!(error.contains(problem), "{url}: {error}");
        }
        let servers = || RedlockOptions::from_url("redlock://a,b,c").unwrap();
        for (options, option) in [
            (servers().node_timeout(Duration::ZERO), "node_timeout"),
            (servers().each(|server| server.fair(true)), "fair"),
            (servers().each(|server| server.prefix("\n")), "prefix"),
        ] {
            let error = options.check().err().expect(option).to_string();
            assert!(error.contains(option), "{error}");
        }
        let mut number = 0;
        let differing = servers().each(|server| {
            number += 1;
            server.prefix(format!("{number}:"))
        });
        assert!(differing.check().err().unwrap().to_string().contains("the same prefix on every server"));
    }
}
