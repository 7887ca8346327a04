//! The options of a cluster.

use etcd_client::ConnectOptions;
use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};
use tenure_core::{Error, lease};

/// The port of a member that is given without one.
const PORT: u16 = 2379;
/// The range of timeouts: for a request, and for the steps before it.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(10);
/// How often a connection with a request on it is checked for life. A cluster ends connections that ping more often than
/// every 5 s.
const PING: Duration = Duration::from_secs(10);

/// Options of a cluster: its members, the part of its keys, and the timeouts.
/// [`EtcdBackend::connect`](crate::EtcdBackend::connect) checks them before it connects.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_etcd::EtcdOptions;
///
/// let options = EtcdOptions::new(["etcd1", "etcd2:2479", "etcd3"])
///     .path("billing")
///     .user("billing", "secret")
///     .session_timeout(Duration::from_secs(20));
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until the cluster is connected"]
pub struct EtcdOptions {
    hosts: Vec<String>,
    path: String,
    prefix: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    response_timeout: Duration,
    user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    tls: Tls,
}

/// Texts in PEM format.
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
struct Tls {
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    /// Whether connections are encrypted.
    is_on: bool,
}

/// Checked options, each within its range.
#[derive(Clone)]
pub(crate) struct Checked {
    /// The cluster's name, for messages.
    pub(crate) store: Arc<str>,
    pub(crate) endpoints: Vec<String>,
    pub(crate) path: String,
    pub(crate) prefix: String,
    pub(crate) session_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) client: ConnectOptions,
}

impl Checked {
    /// How long a waiter trusts its watch.
    pub(crate) fn ask_again(&self) -> Duration {
        lease::renewal_period(self.session_timeout).min(Duration::from_secs(10))
    }
}

impl EtcdOptions {
    /// The range of [`session_timeout`](Self::session_timeout).
    pub const SESSION_TIMEOUT_RANGE: RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_hours(1);
    /// The range of [`connect_timeout`](Self::connect_timeout).
    pub const CONNECT_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;
    /// The range of [`response_timeout`](Self::response_timeout).
    pub const RESPONSE_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;

    /// Uses the cluster with these members, each `host`, `host:port` or `[address]:port`. Default port: 2379.
    pub fn new<Host: Into<String>>(hosts: impl IntoIterator<Item = Host>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            path: String::new(),
            prefix: "tenure".to_owned(),
            session_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            user: None,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }

    /// Sets what all keys begin with, before the prefix. Default: nothing.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the part of each key after the path. Locks of different prefixes never meet, unless the prefixes are nested. Default: `tenure`, so the lock `report` is `tenure/report` for other programs.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the cluster keeps a silent client's keys, and so all its locks: 1 s to 1 hour, in whole seconds.
    /// Default: 30 s.
    ///
    /// This takes the place of a lease. The cluster's minimum is 1.5 election timeouts: 2 s by default.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets how long a connection may take before the next member is tried: 10 ms to 10 minutes. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an answer may take before the cluster counts as unavailable: 10 ms to 10 minutes. Each member gets
    /// its part of that time. Default: 5 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Authenticates as this user. Its role needs `readwrite` on the keys that begin with path and prefix.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// Uses TLS with every member. Each must show a certificate for the name or address by which it is reached here,
    /// issued by one of these authorities, which are given in PEM format.
    ///
    /// There is no default: most clusters have an authority of their own.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, authorities: impl Into<String>) -> Self {
        self.tls.authorities = Some(authorities.into());
        self.encrypted()
    }

    /// Presents this certificate, with its chain, to the members, and uses its private key: both in PEM format. Goes with [`tls`](Self::tls).
    #[cfg(feature = "tls")]
    pub fn tls_identity(self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.certificate(certificate.into()).key(key.into())
    }

    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(mut self) -> Self {
        self.tls.is_on = true;
        self
    }

    #[cfg(feature = "tls")]
    pub(crate) fn certificate(mut self, certificate: String) -> Self {
        self.tls.certificate = Some(certificate);
        self
    }

    #[cfg(feature = "tls")]
    pub(crate) fn key(mut self, key: String) -> Self {
        self.tls.key = Some(key);
        self
    }

    pub(crate) fn check(self) -> Result<Checked, Error> {
        let (scheme, transport) = if self.is_encrypted() { ("etcd+tls", "https") } else { ("etcd", "http") };
        let hosts = check_hosts(&self.hosts)?;
        let path = check_keys("path", &self.path)?;
        let prefix = check_keys("prefix", &self.prefix)?;
        let within = |option, given, range| Error::check_range(option, given, &range);
        let session_timeout = within("session_timeout", self.session_timeout, Self::SESSION_TIMEOUT_RANGE)?;
        let connect_timeout = within("connect_timeout", self.connect_timeout, PATIENCE)?;
        let response_timeout = within("response_timeout", self.response_timeout, PATIENCE)?;
        let mut client = ConnectOptions::new()
            .with_connect_timeout(connect_timeout)
            .with_keep_alive(PING, response_timeout)
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(PING)
            .with_require_leader(true);
        if let Some((user, password)) = &self.user {
            if user.is_empty() {
                return Err(Error::invalid_option("user", format!("{user:?}"), "one or more characters"));
            }
            client = client.with_user(user, password).with_auto_token_refresh(true);
        }
        #[cfg(feature = "tls")]
        if self.tls.is_on {
            client = client.with_tls(self.tls.check()?);
        }
        let slash = if path.is_empty() { "" } else { "/" };
        Ok(Checked {
            store: format!("{scheme}://{}{slash}{path}", self.hosts.join(",")).into(),
            endpoints: hosts.iter().map(|host| format!("{transport}://{host}")).collect(),
            path,
            prefix,
            session_timeout,
            response_timeout,
            client,
        })
    }

    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unused_self, reason = "without TLS no options ask for it")
    )]
    fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_on;
        #[cfg(not(feature = "tls"))]
        return false;
    }
}

#[cfg(feature = "tls")]
impl Tls {
    fn check(self) -> Result<etcd_client::TlsOptions, Error> {
        use etcd_client::{Certificate, Identity, TlsOptions};

        let pem = |option: &'static str, text: Option<String>, what: &str| {
            let given = if text.is_some() { "the given text" } else { "missing" };
            let fits =
                text.filter(|text| text.contains(&format!("-----BEGIN {what}")) || text.contains(what));
            fits.ok_or_else(|| {
                Error::invalid_option(option, given, format!("text in PEM format with a {what}"))
            })
        };
        let authorities = pem("tls_ca", self.authorities, "CERTIFICATE")?;
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(authorities));
        if self.certificate.is_none() && self.key.is_none() {
            return Ok(options);
        }
        let certificate = pem("tls_cert", self.certificate, "CERTIFICATE")?;
        let key = pem("tls_key", self.key, "PRIVATE KEY")?;
        Ok(options.identity(Identity::from_pem(certificate, key)))
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .field("prefix", &self.prefix)
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("encrypted", &self.is_encrypted())
            .finish_non_exhaustive()
    }
}

/// Each host with its port.
fn check_hosts(hosts: &[String]) -> Result<Vec<String>, Error> {
    let wrong = |given: &str| {
        let allowed = "one or more of host, host:port, [address]:port, with ports 1 to 65535";
        Error::invalid_option("hosts", format!("{given:?}"), allowed)
    };
    if hosts.is_empty() {
        return Err(wrong(""));
    }
    let check = |given: &String| {
        let (host, port) = match given.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(0)),
            _ => (given.as_str(), PORT),
        };
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let fits = address.map_or_else(
            || !host.is_empty() && host.chars().all(plain),
            |address| address.parse::<std::net::Ipv6Addr>().is_ok(),
        );
        if fits && port != 0 { Ok(format!("{host}:{port}")) } else { Err(wrong(given)) }
    };
    hosts.iter().map(check).collect()
}

/// The beginning of keys, without slashes around it.
fn check_keys(option: &'static str, given: &str) -> Result<String, Error> {
    let keys = given.strip_prefix('/').unwrap_or(given);
    let keys = keys.strip_suffix('/').unwrap_or(keys);
    let fits = |part: &str| !part.is_empty() && !part.chars().any(char::is_control);
    if keys.len() > 400 || given.contains("//") || !keys.is_empty() && !keys.split('/').all(fits) {
        let shown = format!("{:?}", given.chars().take(80).collect::<String>());
        return Err(Error::invalid_option(
            option,
            shown,
            "at most 400 bytes, no empty part, such as app/locks",
        ));
    }
    Ok(keys.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: EtcdOptions, option: &str) {
        let Err(error) = options.check() else { panic!("{option} was not refused") };
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
    }

    #[test]
    fn each_option_has_its_range() {
        let cluster = || EtcdOptions::new(["etcd1", "etcd2:2479", "[::1]:2379", "[::1]"]);
        let checked = cluster().path("/app/").prefix("locks").check().unwrap();
        let endpoints = ["http://etcd1:2379", "http://etcd2:2479", "http://[::1]:2379", "http://[::1]:2379"];
        assert_eq!(checked.endpoints, endpoints);
        assert_eq!((&*checked.path, &*checked.prefix), ("app", "locks"));
        assert_eq!(&*checked.store, "etcd://etcd1,etcd2:2479,[::1]:2379,[::1]/app");
        refused(EtcdOptions::new([""; 0]), "hosts");
        for host in ["", ":2379", "e:0", "e:65536", "e:", "e/a", "a,b", "user@e", "[::1", "[::1]x", "[e]"] {
            refused(EtcdOptions::new([host]), "hosts");
        }
        for keys in ["//", "a//b", "a\0"] {
            refused(cluster().path(keys), "path");
            refused(cluster().prefix(keys), "prefix");
        }
        refused(cluster().session_timeout(Duration::from_millis(999)), "session_timeout");
        refused(cluster().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(cluster().response_timeout(Duration::MAX), "response_timeout");
        refused(cluster().user("", "x"), "user");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_asked_for() {
        refused(EtcdOptions::new(["e"]).encrypted(), "tls_ca");
        refused(EtcdOptions::new(["e"]).tls("no certificate"), "tls_ca");
        let pem = "-----BEGIN CERTIFICATE-----";
        refused(EtcdOptions::new(["e"]).tls(pem).certificate(pem.to_owned()), "tls_key");
        assert!(EtcdOptions::new(["e"]).tls(pem).check().unwrap().store.starts_with("etcd+tls://"));
    }
}
