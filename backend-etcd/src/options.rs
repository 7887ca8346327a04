//! The options of a cluster.

use etcd_client::ConnectOptions;
use std::{sync::Arc, time::Duration};
use tenure_core::{Error, lease, options::Secret};

/// The port of a member that is given without one.
const PORT: u16 = 2379;
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
#[derive(Clone, Debug)]
#[must_use = "options do nothing until the cluster is connected"]
pub struct EtcdOptions {
    hosts: Vec<String>,
    path: String,
    user: Option<(String, Secret<String>)>,
    #[cfg(feature = "tls")]
    tls: Tls,
    values: Values,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(crate) struct Values for EtcdOptions;

    /// Sets the part of each key after the path. Locks of different prefixes never meet, unless the prefixes are nested.
    /// By default, the lock `report` is `tenure/report` for other programs.
    prefix: Prefix = "tenure";

    /// Sets how long the cluster keeps a silent client's keys, and so all its locks, in whole seconds.
    ///
    /// This takes the place of a lease. The cluster's minimum is 1.5 election timeouts: 2 s by default.
    session_timeout: Duration = 30 s, SESSION_TIMEOUT_RANGE = 1 s..=1 h,
        "how long the cluster keeps the keys of a silent client, and all its locks";

    /// Sets how long a connection may take before the next member is tried.
    connect_timeout: Duration = 5 s, CONNECT_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long an attempt to connect may take";

    /// Sets how long an answer may take before the cluster counts as unavailable. Each member gets its part of that time.
    response_timeout: Duration = 5 s, RESPONSE_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";
}

/// Texts in PEM format.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default)]
struct Tls {
    authorities: Option<Secret<String>>,
    certificate: Option<Secret<String>>,
    key: Option<Secret<String>>,
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
    pub(crate) values: Values,
    pub(crate) client: ConnectOptions,
}

impl Checked {
    /// How long a waiter trusts its watch.
    pub(crate) fn ask_again(&self) -> Duration {
        lease::renewal_period(self.values.session_timeout).min(Duration::from_secs(10))
    }
}

impl EtcdOptions {
    /// Uses the cluster with these members, each `host`, `host:port` or `[address]:port`. Default port: 2379.
    pub fn new<Host: Into<String>>(hosts: impl IntoIterator<Item = Host>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            path: String::new(),
            user: None,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            values: Values::default(),
        }
    }

    /// Sets what all keys begin with, before the prefix. Default: nothing.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Authenticates as this user. Its role needs `readwrite` on the keys that begin with path and prefix.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), Secret(password.into())));
        self
    }

    /// Uses TLS with every member. Each must show a certificate for the name or address by which it is reached here,
    /// issued by one of these authorities, which are given in PEM format.
    ///
    /// There is no default: most clusters have an authority of their own.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, authorities: impl Into<String>) -> Self {
        self.tls.authorities = Some(Secret(authorities.into()));
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
        self.tls.certificate = Some(Secret(certificate));
        self
    }

    #[cfg(feature = "tls")]
    pub(crate) fn key(mut self, key: String) -> Self {
        self.tls.key = Some(Secret(key));
        self
    }

    pub(crate) fn check(self) -> Result<Checked, Error> {
        let (scheme, transport) = if self.is_encrypted() { ("etcd+tls", "https") } else { ("etcd", "http") };
        let hosts = check_hosts(&self.hosts)?;
        let path = check_keys("path", &self.path)?;
        let mut values = self.checked_values()?;
        values.prefix = check_keys("prefix", &values.prefix)?;
        let mut client = ConnectOptions::new()
            .with_connect_timeout(values.connect_timeout)
            .with_keep_alive(PING, values.response_timeout)
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(PING)
            .with_require_leader(true);
        if let Some((user, Secret(password))) = &self.user {
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
            values,
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
        use tenure_core::options::GIVEN_TEXT;

        let pem = |option: &'static str, text: Option<Secret<String>>, what: &str| {
            let Some(text) = text else {
                return Err(Error::invalid_option(option, "", format!("{option}=FILE, in PEM format")));
            };
            let fits = text.0.contains(&format!("-----BEGIN {what}")) || text.0.contains(what);
            fits.then_some(text.0).ok_or_else(|| {
                Error::invalid_option(option, GIVEN_TEXT, format!("text in PEM format with a {what}"))
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
    fn names_are_checked() {
        let cluster = || EtcdOptions::new(["etcd1", "etcd2:2479", "[::1]:2379", "[::1]"]);
        let checked = cluster().path("/app/").prefix("locks").check().unwrap();
        let endpoints = ["http://etcd1:2379", "http://etcd2:2479", "http://[::1]:2379", "http://[::1]:2379"];
        assert_eq!(checked.endpoints, endpoints);
        assert_eq!((&*checked.path, &*checked.values.prefix), ("app", "locks"));
        assert_eq!(&*checked.store, "etcd://etcd1,etcd2:2479,[::1]:2379,[::1]/app");
        refused(EtcdOptions::new([""; 0]), "hosts");
        for host in ["", ":2379", "e:0", "e:65536", "e:", "e/a", "a,b", "user@e", "[::1", "[::1]x", "[e]"] {
            refused(EtcdOptions::new([host]), "hosts");
        }
        for keys in ["//", "a//b", "a\0"] {
            refused(cluster().path(keys), "path");
            refused(cluster().prefix(keys), "prefix");
        }
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
