//! Where the locks live, and the timeouts.

use crate::connection::{
    address::{Address, Target},
    dial::{Dial, Endpoint},
    sentinel::{Access, Sentinels},
    tls::Certificates,
};
use redis::RedisConnectionInfo;
use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};
use tenure_core::{Error, Name};

/// The default prefix of all keys.
const DEFAULT_PREFIX: &str = "tenure:";

/// The range of timeouts: for a request, and for the steps before it.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(10);

/// Options of a Redis server. [`RedisBackend::connect`](crate::RedisBackend::connect) checks them before it contacts
/// the server.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_redis::RedisOptions;
///
/// let options = RedisOptions::from_url("redis://app:secret@cache/1")?
///     .prefix("billing:")
///     .response_timeout(Duration::from_millis(500));
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are used to connect"]
pub struct RedisOptions {
    target: Option<Target>,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    certificates: Certificates,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    prefix: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    remember: Duration,
    fair: bool,
    replicas: u32,
}

/// The options that a backend needs, each within its range.
#[derive(Clone, Debug)]
pub(crate) struct CheckedOptions {
    pub(crate) prefix: String,
    pub(crate) remember: Duration,
    pub(crate) fair: bool,
    pub(crate) replicas: u32,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl RedisOptions {
    /// The range of [`connect_timeout`](Self::connect_timeout).
    pub const CONNECT_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;
    /// The range of [`response_timeout`](Self::response_timeout).
    pub const RESPONSE_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;
    /// The range of [`remember`](Self::remember).
    pub const REMEMBER_RANGE: RangeInclusive<Duration> =
        Duration::from_mins(1)..=Duration::from_hours(365 * 24);
    /// The range of [`replicas`](Self::replicas): more than any master has.
    pub const REPLICAS_RANGE: RangeInclusive<u32> = 0..=100;

    /// This server, without credentials and with default options.
    pub(crate) fn at(target: Target) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// Sets the password of the user `default`.
    pub(crate) fn password(mut self, password: String) -> Self {
        self.password = Some(password);
        self
    }

    /// Sets the user and password, as in Redis's access control lists. On a server with only a password, the user is
    /// `default`.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        (self.user, self.password) = (Some(user.into()), Some(password.into()));
        self
    }

    /// Sets the number of the database. Locks of different databases never meet. Default: 0.
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Sets the user and password of the sentinels, if they are not the master's. On sentinels with only a password, the
    /// user is `default`. Default: a sentinel that wants a login gets the master's.
    pub fn sentinel_credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        (self.sentinel_user, self.sentinel_password) = (Some(user.into()), Some(password.into()));
        self
    }

    pub(crate) fn sentinel_user(mut self, user: String) -> Self {
        self.sentinel_user = Some(user);
        self
    }

    pub(crate) fn sentinel_password(mut self, password: String) -> Self {
        self.sentinel_password = Some(password);
        self
    }

    /// Sets the root certificates, in PEM format, that the server's certificate must lead to, as `tls_ca` does in a URL.
    /// Goes with TLS. Default: the system's.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.roots = Some(pem.into());
        self
    }

    /// Sets the certificate that the client presents, with its chain, and its key, both in PEM format, as `tls_cert` and
    /// `tls_key` do in a URL. Goes with TLS. Default: none.
    pub fn tls_identity(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls_certificate(certificate.into()).tls_key(key.into())
    }

    pub(crate) fn tls_certificate(mut self, pem: Vec<u8>) -> Self {
        self.certificates.certificate = Some(pem);
        self
    }

    pub(crate) fn tls_key(mut self, pem: Vec<u8>) -> Self {
        self.certificates.key = Some(pem);
        self
    }

    /// Sets the beginning of the keys: up to 200 bytes without control characters. Default: `tenure:`.
    ///
    /// A lock's key is exactly the prefix followed by the name; with `prefix("")` it is the name alone. Names of
    /// different prefixes never meet, unless one prefix begins with the other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long an attempt to connect may take: 1 ms to 10 minutes. Default: 2 s.
    pub fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// Sets how long the server may take to answer a request: 1 ms to 10 minutes. After that, it counts as unavailable
    /// and the connection is replaced. Default: 2 s.
    pub fn response_timeout(mut self, longest: Duration) -> Self {
        self.response_timeout = longest;
        self
    }

    /// Sets how long the last token of a name is remembered after its last use: 1 minute to 365 days. Default: 1 day.
    ///
    /// The tokens of a forgotten name start again from the server's clock, so they still rise, unless that clock was
    /// set back by more than this time. The cost is some 250 bytes for every name used within it.
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// Sets whether the waiters of all clients are served in the order in which they came. Default: `false`.
    ///
    /// If so, the server keeps a queue, and each release makes the next waiter the holder in the same step. All clients
    /// of a name must agree: a client without this option neither joins the queue nor respects it, though no two
    /// clients ever hold the lock together.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Sets how many replicas must have a grant before it counts: 0 to 100. Default: 0.
    ///
    /// With replicas, the master is asked to [wait](https://redis.io/docs/latest/commands/wait/) for them, for a
    /// quarter of the response timeout. If fewer have the grant by then, it is withdrawn and the lock counts as
    /// unavailable. So a replica that takes over knows the holder, if it is one of those. Renewals do not wait.
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = count;
        self
    }

    pub(crate) fn check(&self) -> Result<CheckedOptions, Error> {
        let replicas = Self::REPLICAS_RANGE;
        if let Some(target) = &self.target {
            self.certificates.check(target.is_encrypted())?;
            self.check_sentinels(target)?;
        }
        Ok(CheckedOptions {
            prefix: check_prefix(&self.prefix)?,
            fair: self.fair,
            replicas: if replicas.contains(&self.replicas) {
                self.replicas
            } else {
                let allowed = format!("{} to {}", replicas.start(), replicas.end());
                return Err(Error::invalid_option("replicas", self.replicas.to_string(), allowed));
            },
            remember: Error::check_range("remember", self.remember, &Self::REMEMBER_RANGE)?,
            connect_timeout: Error::check_range(
                "connect_timeout",
                self.connect_timeout,
                &Self::CONNECT_TIMEOUT_RANGE,
            )?,
            response_timeout: Error::check_range(
                "response_timeout",
                self.response_timeout,
                &Self::RESPONSE_TIMEOUT_RANGE,
            )?,
        })
    }

    fn check_sentinels(&self, target: &Target) -> Result<(), Error> {
        let has_sentinels = matches!(target, Target::Sentinel { .. });
        let none = "none, because there are no sentinels (redis+sentinel:)";
        let (option, given, allowed) = match (&self.sentinel_user, &self.sentinel_password) {
            (None, None) => return Ok(()),
            (_, Some(_)) if has_sentinels => return Ok(()),
            (Some(_), None) if has_sentinels => {
                ("sentinel_password_file", "missing", "a file with the password of sentinel_user")
            }
            (Some(_), _) => ("sentinel_user", "a user", none),
            (None, Some(_)) => ("sentinel_password_file", "a file", none),
        };
        Err(Error::invalid_option(option, given, allowed))
    }

    /// Where to connect.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Error> {
        match &self.target {
            Some(Target::Server(address)) => self.endpoint_at(address),
            Some(Target::Sentinel { sentinels, service, tls }) => {
                let access = Access {
                    tls: *tls,
                    certificates: self.certificates.clone(),
                    login: self.login(),
                    sentinels: self.sentinel_login(),
                };
                Ok(Endpoint::Master(Arc::new(Sentinels::new(sentinels.clone(), service.clone(), access))))
            }
            // A Cluster has an endpoint for each of its servers.
            Some(Target::Cluster { .. }) | None => {
                Err(Error::invalid_option("url", "missing", "the address of a server: redis://HOST"))
            }
        }
    }

    /// The seeds of a Cluster, and whether they speak TLS.
    pub(crate) fn seeds(&self) -> Option<(&[Address], bool)> {
        match &self.target {
            Some(Target::Cluster { seeds, tls }) => Some((seeds, *tls)),
            _ => None,
        }
    }

    /// The endpoint of this server, with the same options.
    pub(crate) fn endpoint_at(&self, address: &Address) -> Result<Endpoint, Error> {
        self.client(address).map(|client| Endpoint::Server(Arc::new(client)))
    }

    pub(crate) fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default()
            .set_db(i64::from(self.database))
            .set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    pub(crate) fn sentinel_login(&self) -> Option<RedisConnectionInfo> {
        let login = RedisConnectionInfo::default().set_password(self.sentinel_password.as_ref()?);
        Some(match &self.sentinel_user {
            Some(user) => login.set_username(user),
            None => login,
        })
    }

    /// A client of the `redis` crate for the address.
    fn client(&self, address: &Address) -> Result<redis::Client, Error> {
        let refused = |error: redis::RedisError| {
            Error::invalid_option("url", format!("this address ({error})"), "redis://HOST")
        };
        let info = address.info(self.login()).map_err(refused)?;
        address.client(info, &self.certificates).map_err(refused)
    }
}

impl CheckedOptions {
    pub(crate) fn dial(&self, endpoint: Endpoint) -> Dial {
        Dial::new(endpoint, self.connect_timeout, self.response_timeout)
    }
}

impl Default for RedisOptions {
    /// Without an address, for [`RedisBackend::from_client`](crate::RedisBackend::from_client).
    fn default() -> Self {
        Self {
            target: None,
            user: None,
            password: None,
            database: 0,
            certificates: Certificates::default(),
            sentinel_user: None,
            sentinel_password: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            remember: Duration::from_hours(24),
            fair: false,
            replicas: 0,
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("target", &self.target)
            .field("user", &self.user)
            .field("sentinel_user", &self.sentinel_user)
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("remember", &self.remember)
            .field("fair", &self.fair)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

fn check_prefix(prefix: &str) -> Result<String, Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(prefix.to_owned());
    }
    let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &RedisOptions, option: &str) {
        let error = options.check().unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
    }

    #[test]
    fn each_option_has_its_range() {
        let some = RedisOptions::default;
        assert!(some().prefix("").check().is_ok());
        refused(&some().prefix("a\nb"), "prefix");
        refused(&some().prefix("x".repeat(201)), "prefix");
        refused(&some().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(&some().response_timeout(Duration::MAX), "response_timeout");
        refused(&some().remember(Duration::from_secs(59)), "remember");
        refused(&some().replicas(101), "replicas");
        assert!(some().endpoint().is_err());
    }

    fn options(url: &str) -> RedisOptions {
        RedisOptions::from_url(url).expect(url)
    }

    fn info(url: &str) -> (String, i64, Option<String>, Option<String>) {
        let Endpoint::Server(client) = options(url).endpoint().expect(url) else { panic!("{url}") };
        let info = client.get_connection_info();
        let login = info.redis_settings();
        let [user, password] = [login.username(), login.password()].map(|text| text.map(str::to_owned));
        (info.addr().to_string(), login.db(), user, password)
    }

    #[test]
    fn addresses_are_read_from_urls() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(info("redis://host"), ("host:6379".into(), 0, None, None));
        assert_eq!(info("REDIS://host/"), ("host:6379".into(), 0, None, None));
        assert_eq!(info("redis://10.0.0.1:7000/15"), ("10.0.0.1:7000".into(), 15, None, None));
        assert_eq!(info("redis://[::1]:7000"), ("::1:7000".into(), 0, None, None));
        assert_eq!(info("redis://:p%40ss@h"), ("h:6379".into(), 0, None, some("p@ss")));
        assert_eq!(info("redis://u:p:q@h"), ("h:6379".into(), 0, some("u"), some("p:q")));
        assert_eq!(info("redis+unix:/run/a%20b.sock"), ("/run/a b.sock".into(), 0, None, None));
        assert_eq!(info("redis+unix:///run/r.sock"), ("/run/r.sock".into(), 0, None, None));
    }

    #[test]
    fn sentinels_are_read_from_urls() {
        let url = |url: &str| {
            let options = options(url);
            options.check().map(|checked| checked.dial(options.endpoint().unwrap()).url())
        };
        let same = "redis+sentinel://h1:26379,h2:7000,[::1]:26379/my master/3";
        assert_eq!(url("redis+sentinel://u:p@h1,h2:7000,[::1]/my%20master/3").unwrap(), same);
        assert_eq!(url("redis+sentinel://h/x").unwrap(), "redis+sentinel://h:26379/x");
        #[cfg(feature = "tls")]
        assert_eq!(url("rediss+sentinel://h/x").unwrap(), "rediss+sentinel://h:26379/x");
    }
}
