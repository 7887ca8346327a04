//! The servers, as `tenure_testbed` has them: in containers, or from this machine's programs.

use std::{io, net::SocketAddr};
use tenure_conformance::{
    saboteur::{Hurt, Saboteur},
    skip,
};
use tenure_testbed::{Kind, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// One server.
pub(crate) static ONE: Shared = Shared::new(Kind::Zookeeper);
/// Three that are one to their clients.
pub(crate) static ENSEMBLE: Shared = Shared::new(Kind::ZookeeperEnsemble(3));

/// A server that all tests of this program share. A test that hurts it, or counts what it does, has it alone.
pub(crate) struct Shared {
    kind: Kind,
    found: OnceCell<Option<Server>>,
    quiet: RwLock<()>,
}

/// A server for a test, together with others or alone.
pub(crate) struct Place {
    pub(crate) server: &'static Server,
    _together: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Shared {
    const fn new(kind: Kind) -> Self {
        Self { kind, found: OnceCell::const_new(), quiet: RwLock::const_new(()) }
    }

    /// The server for a test that leaves it as it was. `None` where there is none; where it is required, that is a failure.
    pub(crate) async fn share(&'static self) -> Option<Place> {
        let server = self.found().await?;
        let place = Place { server, _together: Some(self.quiet.read().await), _alone: None };
        place.heal().await;
        Some(place)
    }

    /// The server for one test alone, which may hurt it so. `None` also where it cannot be hurt so.
    pub(crate) async fn alone(&'static self, hurts: &[Hurt]) -> Option<Place> {
        let server = self.found().await?;
        let saboteur = server.saboteur();
        if let Some(hurt) = hurts.iter().find(|hurt| !saboteur.can(**hurt)) {
            skip("faults", &format!("{} cannot be hurt by: {hurt}", saboteur.server())).unwrap();
            return None;
        }
        let place = Place { server, _together: None, _alone: Some(self.quiet.write().await) };
        place.heal().await;
        Some(place)
    }

    async fn found(&'static self) -> Option<&'static Server> {
        let find = || async {
            match Server::find(self.kind).await {
                Ok(server) => {
                    eprintln!("{server}");
                    Some(server)
                }
                Err(unavailable) => {
                    skip(self.kind.name(), &unavailable.to_string()).unwrap();
                    None
                }
            }
        };
        self.found.get_or_init(find).await.as_ref()
    }
}

impl Place {
    /// However the test before ended.
    async fn heal(&self) {
        self.server.saboteur().heal().await.unwrap();
    }

    pub(crate) fn saboteur(&self) -> std::sync::Arc<dyn Saboteur> {
        self.server.saboteur()
    }

    /// `host:port` of each server.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let url = self.server.url();
        let hosts = url.trim_start_matches("zookeeper://").split(['/', '?']).next().unwrap_or_default();
        hosts.split(',').map(str::to_owned).collect()
    }

    /// The address of the first of them.
    pub(crate) async fn address(&self) -> SocketAddr {
        tokio::net::lookup_host(&self.hosts()[0]).await.unwrap().next().unwrap()
    }
}

/// A server's status, by one of the
/// [four letter words](https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_4lw).
pub(crate) async fn srvr(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// One line of that.
pub(crate) async fn said(address: SocketAddr, what: &str) -> Option<String> {
    let answer = srvr(address).await.ok()?;
    answer.lines().find_map(|line| Some(line.strip_prefix(what)?.strip_prefix(": ")?.to_owned()))
}
