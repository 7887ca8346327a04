//! Where a server is, or how it is found.

use super::tls::Certificates;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use std::{fmt, path::PathBuf, time::Duration};

/// How long a connection may be silent. Firewalls and load balancers drop one that was idle for minutes, without a word:
/// so the system sends a packet after this long, and requests do not trust such a connection.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Network { host: String, port: u16, tls: bool },
    Socket(PathBuf),
}

/// Which server, or how it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Address),
    /// `tls` is how the sentinels and the master are spoken to.
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
        tls: bool,
    },
    /// Some of the nodes; `tls` is how all are spoken to.
    Cluster {
        seeds: Vec<Address>,
        tls: bool,
    },
}

impl Address {
    fn connect_to(&self) -> ConnectionAddr {
        match self.clone() {
            Self::Network { host, port, tls: false } => ConnectionAddr::Tcp(host, port),
            Self::Network { host, port, tls: true } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            Self::Socket(path) => ConnectionAddr::Unix(path),
        }
    }

    /// How to connect here with `login`.
    pub(crate) fn info(&self, login: RedisConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        let info = self.connect_to().into_connection_info()?;
        let keepalive = TcpKeepalive::new().with_time(SILENCE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        Ok(info.set_redis_settings(login).set_tcp_settings(tcp))
    }

    /// A client that connects here.
    pub(crate) fn client(
        &self,
        info: ConnectionInfo,
        certificates: &Certificates,
    ) -> Result<Client, RedisError> {
        #[cfg(feature = "tls")]
        if self.is_encrypted() {
            return certificates.client(info);
        }
        let _ = certificates;
        Client::open(info)
    }

    fn is_encrypted(&self) -> bool {
        matches!(self, Self::Network { tls: true, .. })
    }
}

impl Target {
    /// Whether its servers are spoken to over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        match self {
            Self::Server(address) => address.is_encrypted(),
            Self::Sentinel { tls, .. } | Self::Cluster { tls, .. } => *tls,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Network { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}
