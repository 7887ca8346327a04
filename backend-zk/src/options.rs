//! The options of a ZooKeeper ensemble.
//!
//! | file | what is in it |
//! |---|---|
//! | `login` | who the client is |
//! | `tls` | encryption, and certificates |

pub(crate) mod login;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use self::login::Login;
#[cfg(feature = "tls")]
use self::tls::{CheckedTls, Tls, may_be_certified};
use std::fmt;
use tenure_core::Error;
#[cfg(feature = "tls")]
use tenure_core::options::Secret;

/// The port of a server that is given without one.
const PORT: u16 = 2181;

/// Options of a ZooKeeper ensemble: its servers, the part of its tree, and the timeouts.
/// [`ZkBackend::connect`](crate::ZkBackend::connect) checks them before it connects.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_zk::ZkOptions;
///
/// let options = ZkOptions::new(["zk1", "zk2:2182", "zk3"])
///     .chroot("/billing")
///     .digest("billing", "secret")
///     .session_timeout(Duration::from_secs(20));
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until the ensemble is connected"]
pub struct ZkOptions {
    hosts: Vec<String>,
    chroot: String,
    prefix: String,
    read_write: bool,
    login: Option<Login>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    values: Values,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(crate) struct Values for ZkOptions;

    /// Sets how long the servers keep a silent client's session, and all its locks.
    ///
    /// This takes the place of a lease. The servers bring it into their own range: 2 to 20 of their ticks (4 s to
    /// 40 s), unless they are configured otherwise.
    session_timeout: Duration = 30 s, SESSION_TIMEOUT_RANGE = 500 ms..=1 h,
        "how long the servers keep the session of a silent client, and all its locks";

    /// Sets how long opening a session may take before the ensemble counts as unavailable.
    connect_timeout: Duration = 10 s, CONNECT_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long an attempt to connect may take";

    /// Sets how long an answer may take before the ensemble counts as unavailable.
    response_timeout: Duration = 5 s, RESPONSE_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";
}

/// Checked options, each within its range.
#[derive(Clone)]
pub(crate) struct Checked {
    /// The ensemble's name, for messages.
    pub(crate) store: String,
    /// `host:port,host:port/chroot`, as the client takes it.
    pub(crate) ensemble: String,
    pub(crate) hosts: Vec<Host>,
    pub(crate) chroot: String,
    /// `/a/b`, or empty for the root.
    pub(crate) prefix: String,
    pub(crate) values: Values,
    pub(crate) read_write: bool,
    pub(crate) login: Option<Login>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CheckedTls>,
}

/// Where one server is.
#[derive(Clone)]
pub(crate) struct Host {
    /// Without the brackets of an IPv6 address.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl ZkOptions {
    /// Uses the ensemble with these servers, each `host`, `host:port` or `[address]:port`. Default port: 2181.
    pub fn new<Host: Into<String>>(hosts: impl IntoIterator<Item = Host>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            chroot: String::new(),
            prefix: "/tenure".to_owned(),
            read_write: false,
            login: None,
            #[cfg(feature = "tls")]
            tls: None,
            values: Values::default(),
        }
    }

    /// Sets the node that takes the place of the root. It must exist. Default: none.
    pub fn chroot(mut self, path: impl Into<String>) -> Self {
        self.chroot = path.into();
        self
    }

    /// Sets the node under which each lock has a node of its own. It is created if it is missing. Names of different
    /// prefixes never meet, unless one prefix is a lock's node of another. Default: `/tenure`.
    pub fn prefix(mut self, path: impl Into<String>) -> Self {
        self.prefix = path.into();
        self
    }

    /// Sets whether exclusive claims' nodes are named like the writers of Curator's `InterProcessReadWriteLock` instead
    /// of like its `InterProcessMutex`. Only one of the two can see a node, just as Curator's own locks do not see each
    /// other.
    ///
    /// Readers' nodes are always named like those of `InterProcessReadWriteLock`. Clients of this library understand
    /// both kinds of names.
    pub fn read_write_nodes(mut self, yes: bool) -> Self {
        self.read_write = yes;
        self
    }

    /// Authenticates by the `digest` scheme. All nodes are then created so that only the same user can change them;
    /// every user can read them.
    ///
    /// The servers know no users: clients with the same user and password are the same user. Of several authentication
    /// calls, the last counts.
    pub fn digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some(Login::digest(user.into(), password.into()));
        self
    }

    /// Authenticates by SASL with the mechanism DIGEST-MD5, as a user whom the servers know from a JAAS file. All nodes
    /// are then created so that only the same user can change them; every user can read them. Of several authentication
    /// calls, the last counts.
    ///
    /// A session that the servers accept without checking the user is not used. Servers before 3.7 cannot be asked
    /// about that, but refuse to create the nodes.
    #[cfg(feature = "sasl")]
    pub fn sasl(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some(Login::sasl(user.into(), password.into()));
        self
    }

    /// Uses TLS with every server. Each must show a certificate for the name or address by which it is reached here,
    /// issued by one of these authorities, which are given in PEM format. Revocation lists among them are heeded.
    ///
    /// There is no default: most ensembles have an authority of their own. Errors call it `tls_ca`, as a URL does.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, authorities: impl Into<String>) -> Self {
        let identity = self.tls.and_then(|tls| tls.identity);
        self.tls = Some(Tls { roots: Secret(authorities.into()), identity });
        self
    }

    /// Presents this certificate to the servers, with those that lead to its authority, and uses its private key: both
    /// in PEM format. Goes with [`tls`](Self::tls). Errors call them `tls_cert` and `tls_key`, as a URL does.
    #[cfg(feature = "tls")]
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        let roots = self.tls.map(|tls| tls.roots).unwrap_or_default();
        self.tls = Some(Tls { roots, identity: Some(Secret((certificate.into(), key.into()))) });
        self
    }

    pub(crate) fn check(self) -> Result<Checked, Error> {
        let chroot = check_path("chroot", &self.chroot)?;
        let hosts = check_hosts(&self.hosts)?;
        let encrypted = self.is_encrypted();
        #[cfg(feature = "tls")]
        if encrypted && let Some(at) = hosts.iter().position(|host| !may_be_certified(&host.name)) {
            let given = format!("{:?}", self.hosts[at]);
            return Err(Error::invalid_option(
                "hosts",
                given,
                "a host name or an address that a certificate can cover",
            ));
        }
        let (scheme, each) = if encrypted { ("zookeeper+tls", "tcp+tls://") } else { ("zookeeper", "") };
        let each: Vec<_> = self.hosts.iter().map(|host| format!("{each}{host}")).collect();
        Ok(Checked {
            store: format!("{scheme}://{}{chroot}", self.hosts.join(",")),
            ensemble: format!("{}{chroot}", each.join(",")),
            hosts,
            chroot,
            prefix: check_path("prefix", &self.prefix)?,
            values: self.checked_values()?,
            read_write: self.read_write,
            login: self.login.map(Login::check).transpose()?,
            #[cfg(feature = "tls")]
            tls: self.tls.map(Tls::check).transpose()?,
        })
    }

    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unused_self, reason = "without TLS no options ask for it")
    )]
    fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

fn check_hosts(hosts: &[String]) -> Result<Vec<Host>, Error> {
    let wrong = |given: &str| {
        Error::invalid_option(
            "hosts",
            format!("{given:?}"),
            "one or more of host, host:port, [address]:port, with ports 1 to 65535",
        )
    };
    if hosts.is_empty() {
        return Err(wrong(""));
    }
    let check = |given: &String| {
        let (host, port) = match given.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((address, ""))) => (address, None),
            Some(Some((address, port))) => (address, Some(port.strip_prefix(':').unwrap_or_default())),
            Some(None) => return Err(wrong(given)),
            None => match given.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (given.as_str(), None),
            },
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        let port = port.map_or(Ok(PORT), str::parse).unwrap_or(0);
        if host.is_empty() || !host.chars().all(plain) || port == 0 {
            return Err(wrong(given));
        }
        Ok(Host { name: host.to_owned(), port })
    };
    hosts.iter().map(check).collect()
}

/// A path without its last slash: empty for the root.
fn check_path(option: &'static str, given: &str) -> Result<String, Error> {
    let wrong = || {
        let shown = format!("{:?}", given.chars().take(80).collect::<String>());
        Error::invalid_option(
            option,
            shown,
            "a path such as /app/locks: no empty, . or .. element, no character that ZooKeeper refuses",
        )
    };
    let path = given.strip_suffix('/').unwrap_or(given);
    if path.is_empty() {
        return Ok(String::new());
    }
    let elements = path.strip_prefix('/').ok_or_else(wrong)?;
    let fits = |element: &str| {
        !element.is_empty()
            // `encode` changes only what the server refuses, and `%`.
            && crate::node::names::encode(&element.replace('%', ""), false) == element.replace('%', "")
    };
    let reserved = elements == "zookeeper" || elements.starts_with("zookeeper/");
    if path.len() > 400 || reserved || !elements.split('/').all(fits) {
        return Err(wrong());
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: ZkOptions, option: &str) {
        let Err(error) = options.check() else { panic!("{option} was not refused") };
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
    }

    #[test]
    fn names_are_checked() {
        let ensemble = || ZkOptions::new(["zk1", "zk2:2182", "[::1]:2181", "[::1]"]);
        assert_eq!(ensemble().check().unwrap().ensemble, "zk1,zk2:2182,[::1]:2181,[::1]");
        refused(ZkOptions::new([""; 0]), "hosts");
        for host in ["", ":2181", "zk:0", "zk:65536", "zk:", "zk/a", "a,b", "user@zk", "[::1", "[::1]x"] {
            refused(ZkOptions::new([host]), "hosts");
        }
        for path in ["a", "//", "/a//b", "/a/../b", "/.", "/a\0", "/zookeeper", "/zookeeper/x", "/🔒"] {
            refused(ensemble().chroot(path), "chroot");
            refused(ensemble().prefix(path), "prefix");
        }
        refused(ensemble().digest("", "x"), "user");
        refused(ensemble().digest("a:b", "x"), "user");
    }

    #[test]
    fn root_is_an_empty_path() {
        let checked = ZkOptions::new(["zk"]).chroot("/").prefix("/").check().unwrap();
        assert_eq!((checked.ensemble.as_str(), checked.prefix.as_str()), ("zk", ""));
        let checked = ZkOptions::new(["zk"]).chroot("/app/").prefix("/50%/x").check().unwrap();
        assert_eq!((checked.ensemble.as_str(), checked.prefix.as_str()), ("zk/app", "/50%/x"));
    }
}
