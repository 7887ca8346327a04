//! Options, and their ranges.

use async_nats::ConnectOptions;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tenure_core::{
    Error,
    options::{GIVEN_TEXT, Secret, check_readable},
};

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
#[derive(Clone, Debug)]
#[must_use]
pub struct NatsOptions {
    hosts: Vec<String>,
    bucket: String,
    user: Option<(String, Secret<String>)>,
    credentials: Option<Secret<String>>,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    values: Values,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(crate) struct Values for NatsOptions;

    /// Puts this before each key. Locks with different prefixes never meet.
    prefix: Prefix = "tenure";

    /// How many servers keep a bucket that is created here: 1, 3 or 5. With 3, one server may fail.
    replicas: u32 = 1, REPLICAS_RANGE = 1..=5,
        "how many servers keep a bucket that tenure creates; with 3, one may fail, with 5, two";

    /// How far the clocks of the servers may differ. A dead client delays others by up to twice that.
    clock_skew: Duration = 500 ms, CLOCK_SKEW_RANGE = 1 ms..=10 s,
        "how far the servers' clocks may differ; a dead client delays others by up to twice that";

    /// How long an attempt to connect to one server may take.
    connect_timeout: Duration = 5 s, CONNECT_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long an attempt to connect may take";

    /// How long the servers may take to answer before they count as unavailable.
    response_timeout: Duration = 5 s, RESPONSE_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";
}

/// Options that are in range.
pub(crate) struct Checked {
    pub(crate) store: Arc<str>,
    pub(crate) addresses: Vec<String>,
    pub(crate) bucket: String,
    pub(crate) values: Values,
    pub(crate) client: ConnectOptions,
}

impl NatsOptions {
    /// Uses this key-value bucket of the cluster with these servers: `host`, or `host:port` if the port is not 4222.
    ///
    /// If there is no such bucket, it is created. Its name has letters, digits, `-` and `_`.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>, bucket: impl Into<String>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            bucket: bucket.into(),
            user: None,
            credentials: None,
            tls: false,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            values: Values::default(),
        }
    }

    /// Authenticates as this user.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), Secret(password.into())));
        self
    }

    /// Authenticates with the content of a credentials file: a JWT and the seed of an `NKey`. Errors call it
    /// `credentials_file`, as a URL does.
    pub fn credentials(mut self, credentials: impl Into<String>) -> Self {
        self.credentials = Some(Secret(credentials.into()));
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
        let prefix = &self.values.prefix;
        if prefix.is_empty() || prefix.len() > 200 || prefix.chars().any(char::is_control) {
            return wrong("prefix", prefix, "1 to 200 bytes, no control character");
        }
        let values = self.checked_values()?;
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
            .connection_timeout(values.connect_timeout)
            .ping_interval(PING)
            .request_timeout(Some(values.response_timeout));
        if let Some((user, Secret(password))) = self.user {
            client = client.user_and_password(user, password);
        }
        if let Some(Secret(credentials)) = &self.credentials {
            client = client.credentials(credentials).map_err(|_| {
                Error::invalid_option(
                    "credentials_file",
                    GIVEN_TEXT,
                    "a JWT and an NKey seed, as nsc writes them",
                )
            })?;
        }
        let files = [("tls_ca", &self.tls_ca), ("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key)];
        if self.tls {
            client = client.require_tls(true);
        } else if let Some((option, _)) = files.into_iter().find(|(_, file)| file.is_some()) {
            return Err(Error::invalid_option(option, "it needs TLS", "nats+tls: in the URL"));
        }
        for (option, file) in files {
            file.as_ref().map_or(Ok(()), |file| check_readable(option, file))?;
        }
        if let Some(file) = self.tls_ca {
            client = client.add_root_certificates(file);
        }
        match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => client = client.add_client_certificate(certificate, key),
            (None, None) => {}
            (None, _) => {
                return Err(Error::invalid_option("tls_cert", "", "the certificate for tls_key"));
            }
            (_, None) => return Err(Error::invalid_option("tls_key", "", "the key for tls_cert")),
        }
        let store = format!("{scheme}://{}/{}", self.hosts.join(","), self.bucket).into();
        Ok(Checked { store, addresses, bucket: self.bucket, values, client })
    }
}
