//! Where the locks live, and the timeouts.

use crate::connection::{
    address::{Address, Target},
    dial::{Dial, Endpoint},
    sentinel::{Access, Sentinels},
    tls::Certificates,
};
use redis::RedisConnectionInfo;
use std::{ops::RangeInclusive, sync::Arc, time::Duration};
use tenure_core::{Error, options::Secret};

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
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they are used to connect"]
pub struct RedisOptions {
    target: Option<Target>,
    user: Option<String>,
    password: Option<Secret<String>>,
    database: u32,
    certificates: Certificates,
    sentinel_user: Option<String>,
    sentinel_password: Option<Secret<String>>,
    fair: bool,
    replicas: u32,
    values: Values,
}

tenure_core::options! {
    /// The options that Redlock has too, for each of its servers.
    pub(crate) struct Values for RedisOptions;

    /// Sets the beginning of the keys: up to 200 bytes without control characters.
    ///
    /// A lock's key is exactly the prefix followed by the name; with `prefix("")` it is the name alone. Names of
    /// different prefixes never meet, unless one prefix begins with the other.
    prefix: Prefix = "tenure:";

    /// Sets how long an attempt to connect may take.
    connect_timeout: Duration = 2 s, CONNECT_TIMEOUT_RANGE = 1 ms..=10 min,
        "how long an attempt to connect may take";

    /// Sets how long the server may take to answer a request. After that, it counts as unavailable and the connection is
    /// replaced.
    response_timeout: Duration = 2 s, RESPONSE_TIMEOUT_RANGE = 1 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";

    /// Sets how long the last token of a name is remembered after its last use.
    ///
    /// The tokens of a forgotten name start again from the server's clock, so they still rise, unless that clock was
    /// set back by more than this time. The cost is some 250 bytes for every name used within it.
    remember: Duration = 1 day, REMEMBER_RANGE = 1 min..=365 days,
        "how long the last token of an unused name is kept; after that, tokens start again from the server's clock";
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
    /// The range of [`replicas`](Self::replicas): more than any master has.
    pub const REPLICAS_RANGE: RangeInclusive<u32> = 0..=100;

    /// This server, without credentials and with default options.
    pub(crate) fn at(target: Target) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// Sets the password of the user `default`.
    pub(crate) fn password(mut self, password: String) -> Self {
        self.password = Some(Secret(password));
        self
    }

    /// Sets the user and password, as in Redis's access control lists. On a server with only a password, the user is
    /// `default`.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        (self.user, self.password) = (Some(user.into()), Some(Secret(password.into())));
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
        (self.sentinel_user, self.sentinel_password) = (Some(user.into()), Some(Secret(password.into())));
        self
    }

    pub(crate) fn sentinel_user(mut self, user: String) -> Self {
        self.sentinel_user = Some(user);
        self
    }

    pub(crate) fn sentinel_password(mut self, password: String) -> Self {
        self.sentinel_password = Some(Secret(password));
        self
    }

    /// Sets the root certificates, in PEM format, that the server's certificate must lead to, as `tls_ca` does in a URL.
    /// Goes with TLS. Default: the system's.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.roots = Some(Secret(pem.into()));
        self
    }

    /// Sets the certificate that the client presents, with its chain, and its key, both in PEM format, as `tls_cert` and
    /// `tls_key` do in a URL. Goes with TLS. Default: none.
    pub fn tls_identity(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls_certificate(certificate.into()).tls_key(key.into())
    }

    pub(crate) fn tls_certificate(mut self, pem: Vec<u8>) -> Self {
        self.certificates.certificate = Some(Secret(pem));
        self
    }

    pub(crate) fn tls_key(mut self, pem: Vec<u8>) -> Self {
        self.certificates.key = Some(Secret(pem));
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
        if let Some(target) = &self.target {
            self.certificates.check(target.is_encrypted())?;
            self.check_sentinels(target)?;
        }
        let Values { prefix, connect_timeout, response_timeout, remember } = self.checked_values()?;
        let replicas = Error::check_range("replicas", self.replicas, &Self::REPLICAS_RANGE)?;
        let fair = self.fair;
        Ok(CheckedOptions { prefix, remember, fair, replicas, connect_timeout, response_timeout })
    }

    fn check_sentinels(&self, target: &Target) -> Result<(), Error> {
        let has_sentinels = matches!(target, Target::Sentinel { .. });
        let none = "none, because there are no sentinels (redis+sentinel:)";
        let (option, given, allowed) = match (&self.sentinel_user, &self.sentinel_password) {
            (None, None) => return Ok(()),
            (_, Some(_)) if has_sentinels => return Ok(()),
            (Some(_), None) if has_sentinels => {
                ("sentinel_password_file", "", "a file with the password of sentinel_user")
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
                Err(Error::invalid_option("url", "", "the address of a server: redis://HOST"))
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
        if let Some(Secret(password)) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    pub(crate) fn sentinel_login(&self) -> Option<RedisConnectionInfo> {
        let login = RedisConnectionInfo::default().set_password(&self.sentinel_password.as_ref()?.0);
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
    fn prefix_and_replicas_are_checked() {
        let some = RedisOptions::default;
        assert!(some().prefix("").check().is_ok());
        refused(&some().prefix("a\nb"), "prefix");
        refused(&some().prefix("x".repeat(201)), "prefix");
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
