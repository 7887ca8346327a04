//! A store behind a server, found as `tenure_testbed` finds it and opened as a user opens it: by its URL.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure::backend;
use tenure_conformance::{
    Absent, AnyRecordStore, BoxError, Subject, async_trait,
    saboteur::{Hurt, Saboteur},
};
use tenure_core::Backend;
use tenure_testbed::{Kind, Member, Server, Use, Way};
use tokio::sync::OnceCell;

/// Names the store for the processes that the suite starts.
const URL: &str = "TENURE_TEST_STORE_URL";

/// The cases that set a server's clock.
const OF_THE_CLOCK: &str = "faults_of_the_clock";

/// A server, once it was asked for, and how its URL is completed.
pub(crate) struct OnServer {
    name: &'static str,
    kind: Kind,
    /// How to start its server. `None`: as `TENURE_TEST_USE` says.
    way: Option<Use>,
    parameters: &'static str,
    /// The groups of cases that it is for; none means all.
    groups: &'static [&'static str],
    server: OnceCell<Server>,
    /// How many URLs were given out.
    given: AtomicUsize,
}

impl OnServer {
    /// The store of this name, with these parameters behind its server's URL.
    pub(crate) fn new(name: &'static str, kind: Kind, parameters: &'static str) -> Self {
        let (server, given) = (OnceCell::new(), AtomicUsize::new(0));
        Self { name, kind, way: None, parameters, groups: &[], server, given }
    }

    /// This store, for these groups of cases alone.
    pub(crate) fn showing(self, groups: &'static [&'static str]) -> Self {
        Self { groups, ..self }
    }

    /// This store on a server whose clock is set, for the cases that do that.
    pub(crate) fn with_clock(self) -> Self {
        Self { way: Some(Use::LocalWithClock), groups: crate::groups(&[OF_THE_CLOCK]), ..self }
    }

    /// Whether its grants end with their connections.
    fn is_on_connections(&self) -> bool {
        self.parameters.contains("strategy=")
    }

    /// The next node of a cluster whose nodes all accept writes: clients of different nodes exclude each other.
    fn node(&self, server: &Server) -> String {
        let (nodes, given) = (server.members(), self.given.fetch_add(1, Ordering::Relaxed));
        nodes.get(given % nodes.len().max(1)).map_or_else(|| server.url(), Member::url)
    }

    fn url(&self) -> Result<String, BoxError> {
        let Some(server) = self.server.get() else { return Ok(env::var(URL)?) };
        let url = if self.kind == Kind::Galera { self.node(server) } else { server.url() };
        Ok(match (self.parameters, url.contains('?')) {
            ("", _) => url,
            (parameters, false) => format!("{url}?{parameters}"),
            (parameters, true) => format!("{url}&{parameters}"),
        })
    }
}

#[async_trait]
impl Subject for OnServer {
    fn name(&self) -> &str {
        self.name
    }

    fn shows(&self, group: &str) -> bool {
        self.groups.contains(&group) || self.groups.is_empty() && group != OF_THE_CLOCK
    }

    /// A server that the environment names may be that of several subjects.
    fn disturbs(&self) -> String {
        let (name, url) = (self.name, self.kind.variable("URL"));
        env::var(url).ok().filter(|url| !url.is_empty()).unwrap_or_else(|| name.to_owned())
    }

    async fn start(&self) -> Result<(), Absent> {
        let find = || async {
            let found = match self.way {
                Some(way) => Server::start(self.kind, way).await,
                None => Server::find(self.kind).await,
            };
            found.inspect(|server| eprintln!("{}: {}", self.name, server.way()))
        };
        let found = self.server.get_or_try_init(find).await;
        let server = found.map_err(|unavailable| Absent::because(unavailable.to_string()))?;
        // A cluster of this machine's own program may be too old for the store, which then says so.
        let may_be_old =
            matches!(self.kind, Kind::NatsCluster(_)) && matches!(server.way(), Way::Local { .. });
        match self.backend().await {
            Err(error) if may_be_old => Err(Absent::because(error.to_string())),
            _ => Ok(()),
        }
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(backend::open(self.url()?).await?)
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(backend::open_in(self.url()?, namespace).await?))
    }

    async fn records(&self) -> Result<Option<AnyRecordStore>, BoxError> {
        Ok(match self.kind {
            #[cfg(feature = "nats")]
            Kind::Nats | Kind::NatsCluster(_) => {
                let options = tenure_nats::NatsOptions::from_url(&self.url()?)?;
                Some(AnyRecordStore::new(tenure_nats::NatsBackend::records(options).await?))
            }
            #[cfg(feature = "s3")]
            Kind::S3 => {
                let options = tenure_object::ObjectOptions::from_url(&self.url()?)?;
                Some(AnyRecordStore::new(tenure_object::ObjectBackend::records(options).await?))
            }
            _ => None,
        })
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![(URL.to_owned(), self.url().ok()?)])
    }

    fn forgets(&self, hurt: Hurt) -> bool {
        self.kind.forgets(hurt, self.is_on_connections())
    }

    fn attempts_collide(&self) -> bool {
        matches!(self.kind, Kind::Redlock(_) | Kind::Zookeeper | Kind::ZookeeperEnsemble(_))
            || self.is_on_connections()
    }

    fn session_timeout(&self) -> Option<Duration> {
        let parameters = self.parameters.split('&').filter_map(|parameter| parameter.split_once('='));
        let seconds = parameters.filter(|(name, _)| *name == "session_timeout").map(|(_, value)| value);
        seconds.filter_map(|value| value.strip_suffix('s')?.parse().ok()).map(Duration::from_secs).next()
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        let saboteur = self.saboteur().ok_or("no server was started")?;
        if saboteur.can(Hurt::Wipe) {
            saboteur.hurt(Hurt::Wipe).await?;
            return Ok(true);
        }
        #[cfg(feature = "zookeeper")]
        if matches!(self.kind, Kind::Zookeeper | Kind::ZookeeperEnsemble(_)) {
            delete_below("/tenure", &self.url()?).await?;
            return Ok(true);
        }
        Ok(false)
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(self.server.get()?.saboteur())
    }
}

/// Deletes a node of `ZooKeeper`, and all below it.
#[cfg(feature = "zookeeper")]
async fn delete_below(path: &str, url: &str) -> Result<(), BoxError> {
    use zookeeper_client::{Client, Error};

    let address = url.trim_start_matches("zookeeper://").split(['/', '?']).next().unwrap_or_default();
    let client = Client::connect(address).await?;
    let mut paths = vec![path.to_owned()];
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        let children = client.list_children(&path).await.unwrap_or_default();
        paths.extend(children.into_iter().map(|child| format!("{path}/{child}")));
        at += 1;
    }
    for path in paths.iter().rev() {
        match client.delete(path, None).await {
            // An ephemeral node may go by itself.
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
