//! Options, and their ranges.

use async_nats::ConnectOptions;
use std::{fmt, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};
use tenure_core::Error;

const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(10);
/// How often a connection is checked. One that is silent for three such intervals is replaced.
const PING: Duration = Duration::from_secs(3);

/// How to use a bucket of a NATS server or cluster.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_nats::NatsOptions;
///
/// let options = NatsOptions::new(["nats1", "nats2:4223"], "locks").replicas(3).response_timeout(Duration::from_secs(2));
/// assert!(format!("{options:?}").contains("nats2:4223"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct NatsOptions {
    hosts: Vec<String>,
    bucket: String,
    prefix: String,
    replicas: u32,
    clock_skew: Duration,
    connect_timeout: Duration,
    response_timeout: Duration,
    user: Option<(String, String)>,
    credentials: Option<String>,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
}

/// Options that are in range.
pub(crate) struct Checked {
    pub(crate) store: Arc<str>,
    pub(crate) addresses: Vec<String>,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) replicas: usize,
    pub(crate) clock_skew: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) client: ConnectOptions,
}

impl NatsOptions {
    /// The range of [`replicas`](Self::replicas).
    pub const REPLICAS_RANGE: RangeInclusive<u32> = 1..=5;
    /// The range of [`clock_skew`](Self::clock_skew).
    pub const CLOCK_SKEW_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    /// The range of [`connect_timeout`](Self::connect_timeout).
    pub const CONNECT_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;
    /// The range of [`response_timeout`](Self::response_timeout).
    pub const RESPONSE_TIMEOUT_RANGE: RangeInclusive<Duration> = PATIENCE;

    /// Uses this key-value bucket of the cluster with these servers: `host`, or `host:port` if the port is not 4222.
    ///
    /// If there is no such bucket, it is created. Its name has letters, digits, `-` and `_`.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>, bucket: impl Into<String>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            bucket: bucket.into(),
            prefix: "tenure".to_owned(),
            replicas: 1,
            clock_skew: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            user: None,
            credentials: None,
            tls: false,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }

    /// Puts this before each key. Locks with different prefixes never meet. Default: `tenure`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many servers keep a bucket that is created here: 1, 3 or 5. Default: 1. With 3, one server may fail.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// How far the clocks of the servers may differ. Default: 500 ms. A dead client's lock is free later by up to
    /// twice as much.
    pub fn clock_skew(mut self, at_most: Duration) -> Self {
        self.clock_skew = at_most;
        self
    }

    /// How long an attempt to connect to one server may take. Default: 5 s.
    pub fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// How long the servers may take to answer before they count as unavailable. Default: 5 s.
    pub fn response_timeout(mut self, longest: Duration) -> Self {
        self.response_timeout = longest;
        self
    }

    /// Authenticates as this user.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// Authenticates with the content of a credentials file: a JWT and the seed of an `NKey`.
    pub fn credentials(mut self, credentials: impl Into<String>) -> Self {
        self.credentials = Some(credentials.into());
        self
    }

    /// Uses TLS, with the authorities that the system trusts.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Trusts the authorities in this file in place of the system's. It is in PEM format. Goes with [`tls`](Self::tls).
    pub fn tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(file.into());
        self
    }

    /// Presents this certificate to the servers, with its private key: files in PEM format. Goes with [`tls`](Self::tls).
    pub fn tls_identity(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate(certificate.into()).key(key.into())
    }

    pub(crate) fn certificate(mut self, file: PathBuf) -> Self {
        self.tls_cert = Some(file);
        self
    }

    pub(crate) fn key(mut self, file: PathBuf) -> Self {
        self.tls_key = Some(file);
        self
    }

    pub(crate) fn check(self) -> Result<Checked, Error> {
        let wrong = |option, given: &str, allowed: &str| {
            let shown = format!("{:?}", given.chars().take(80).collect::<String>());
            Err(Error::invalid_option(option, shown, allowed))
        };
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if self.bucket.is_empty() || self.bucket.len() > 200 || !is_plain(&self.bucket) {
            return wrong("bucket", &self.bucket, "1 to 200 letters, digits, - or _");
        }
        if self.prefix.is_empty() || self.prefix.len() > 200 || self.prefix.chars().any(char::is_control) {
            return wrong("prefix", &self.prefix, "1 to 200 bytes, no control character");
        }
        Error::check_range("replicas", self.replicas, &Self::REPLICAS_RANGE)?;
        let within = |option, given, range| Error::check_range(option, given, &range);
        let clock_skew = within("clock_skew", self.clock_skew, Self::CLOCK_SKEW_RANGE)?;
        let connect_timeout = within("connect_timeout", self.connect_timeout, PATIENCE)?;
        let response_timeout = within("response_timeout", self.response_timeout, PATIENCE)?;
        let (scheme, transport) = if self.tls { ("nats+tls", "tls") } else { ("nats", "nats") };
        let addresses: Vec<String> = self.hosts.iter().map(|host| format!("{transport}://{host}")).collect();
        for (host, address) in self.hosts.iter().zip(&addresses) {
            let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ',']);
            if !is_host || address.parse::<async_nats::ServerAddr>().is_err() {
                return wrong("hosts", host, "host, host:port or [address]:port");
            }
        }
        if addresses.is_empty() {
            return wrong("hosts", "", "one or more hosts");
        }
        let mut client = ConnectOptions::new()
            .name("tenure")
            .connection_timeout(connect_timeout)
            .ping_interval(PING)
            .request_timeout(Some(response_timeout));
        if let Some((user, password)) = self.user {
            client = client.user_and_password(user, password);
        }
        if let Some(credentials) = &self.credentials {
            client = client.credentials(credentials).map_err(|_| {
                Error::invalid_option(
                    "credentials",
                    "the given text",
                    "a JWT and an NKey seed, as nsc writes them",
                )
            })?;
        }
        if self.tls {
            client = client.require_tls(true);
        }
        if let Some(file) = self.tls_ca {
            client = client.add_root_certificates(file);
        }
        match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => client = client.add_client_certificate(certificate, key),
            (None, None) => {}
            (None, _) => {
                return Err(Error::invalid_option("tls_cert", "missing", "the certificate for tls_key"));
            }
            (_, None) => return Err(Error::invalid_option("tls_key", "missing", "the key for tls_cert")),
        }
        let store = format!("{scheme}://{}/{}", self.hosts.join(","), self.bucket).into();
        let replicas = usize::try_from(self.replicas).unwrap_or(1);
        let Self { bucket, prefix, .. } = self;
        Ok(Checked { store, addresses, bucket, prefix, replicas, clock_skew, response_timeout, client })
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("hosts", &self.hosts)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .field("clock_skew", &self.clock_skew)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("credentials", &self.credentials.is_some())
            .field("tls", &self.tls)
            .field("tls_ca", &self.tls_ca)
            .field("tls_cert", &self.tls_cert)
            .field("tls_key", &self.tls_key)
            .finish()
    }
}
