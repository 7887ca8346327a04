//! `tenure-conformance faults STORE`: clients, processes and faults on a store that may be broken in the process.
//!
//! STORE is `memory`; `sqlite`, which is a new file; the name of a server (`redis`, `redis-sentinel`, …), which is
//! found or started, and then hurt; or a URL. A suffix `-fair`, `-row-lock` or `-advisory` says how it is used. A store
//! given by URL is not hurt itself, only the clients' way to it.

use std::{env, process::ExitCode, sync::Arc, time::Duration};
use tempfile::TempDir;
use tenure::{
    HolderInfo,
    backend::{self, Backend},
};
use tenure_conformance::{
    BoxError, Subject, async_trait, faults,
    saboteur::{Hurt, Saboteur},
};
use tenure_testbed::{Kind, Server};

/// Tells the client processes where the store is.
const URL: &str = "TENURE_CONFORMANCE_FAULTS_URL";
/// Tells them which namespace to use.
const NAMESPACE: &str = "TENURE_CONFORMANCE_FAULTS_NAMESPACE";

fn main() -> ExitCode {
    faults::main(|store| async move { Ok(Arc::new(Store::named(&store).await?) as Arc<dyn Subject>) })
}

/// The sessions of `ZooKeeper`: three servers that have just been hurt need some time to agree.
const SESSION: Duration = Duration::from_secs(4);

/// The store, and what must live as long as it does.
struct Store {
    name: String,
    url: String,
    namespace: String,
    use_: Use,
    /// The one shared backend, where each new connection would be a separate store.
    private: Option<Arc<dyn Backend>>,
    server: Option<Server>,
    _directory: Option<TempDir>,
}

/// How a store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    AsItIs,
    Fair,
    RowLock,
    Advisory,
}

impl Use {
    /// Splits a lane's name into its store and how it is used.
    fn of(lane: &str) -> (&str, Self) {
        let suffixes = [("-fair", Self::Fair), ("-row-lock", Self::RowLock), ("-advisory", Self::Advisory)];
        let used = |(suffix, used)| lane.strip_suffix(suffix).map(|store| (store, used));
        suffixes.into_iter().find_map(used).unwrap_or((lane, Self::AsItIs))
    }

    fn parameters(self, kind: Option<Kind>) -> String {
        match (self, kind) {
            (Self::Fair, _) => "fair=true".to_owned(),
            (Self::RowLock, _) => "strategy=row-lock".to_owned(),
            (Self::Advisory, _) => "strategy=advisory".to_owned(),
            (Self::AsItIs, Some(Kind::Pgbouncer)) => "pooler=true".to_owned(),
            // By default its waiters ask every 5 s.
            (Self::AsItIs, Some(Kind::S3)) => "poll=200ms".to_owned(),
            (Self::AsItIs, Some(kind)) if has_sessions(kind) => {
                format!("session_timeout={}s", SESSION.as_secs())
            }
            (Self::AsItIs, _) => String::new(),
        }
    }
}

/// Whether grants end with a session of the client, whose length the URL says.
fn has_sessions(kind: Kind) -> bool {
    matches!(kind, Kind::Zookeeper | Kind::ZookeeperEnsemble(_) | Kind::Etcd | Kind::EtcdCluster(_))
}

impl Store {
    async fn named(lane: &str) -> Result<Self, BoxError> {
        let namespace = format!("tenure-faults/{}/", HolderInfo::here(None).pid);
        let (store, use_) = Use::of(lane);
        let mut this = Self {
            name: lane.split(':').next().unwrap_or_default().to_owned(),
            url: lane.to_owned(),
            namespace,
            use_,
            private: None,
            server: None,
            _directory: None,
        };
        if let (Ok(url), Ok(namespace)) = (env::var(URL), env::var(NAMESPACE)) {
            return Ok(Self { url, namespace, ..this });
        }
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name().replace('_', "-") == store) {
            // As many servers as in the suite.
            let kind = if let Kind::Redlock(_) = kind { Kind::Redlock(5) } else { kind };
            let server = Server::find(kind).await?;
            eprintln!("{server}");
            this.url = with(&server.url(), &use_.parameters(Some(kind)));
            this.server = Some(server);
        } else if store == "sqlite" {
            let directory = tempfile::tempdir()?;
            let path = directory.path().join("locks.db");
            let path = path.to_str().ok_or("the temporary directory's name is not UTF-8")?;
            let url = with(&format!("sqlite:{path}"), &use_.parameters(None));
            return Ok(Self { url, _directory: Some(directory), ..this });
        } else if lane == "memory" {
            "memory:".clone_into(&mut this.url);
        }
        if this.url == "memory:" {
            this.private = Some(backend::open(&this.url).await?);
        }
        Ok(this)
    }

    fn kind(&self) -> Option<Kind> {
        self.server.as_ref().map(Server::kind)
    }
}

/// The URL with these parameters added.
fn with(url: &str, parameters: &str) -> String {
    match (parameters, url.contains('?')) {
        ("", _) => url.to_owned(),
        (parameters, false) => format!("{url}?{parameters}"),
        (parameters, true) => format!("{url}&{parameters}"),
    }
}

#[async_trait]
impl Subject for Store {
    fn name(&self) -> &str {
        &self.name
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        match &self.private {
            Some(backend) => Ok(Arc::clone(backend)),
            None => Ok(backend::open_in(&self.url, &self.namespace).await?),
        }
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        let of_processes =
            vec![(URL.to_owned(), self.url.clone()), (NAMESPACE.to_owned(), self.namespace.clone())];
        self.private.is_none().then_some(of_processes)
    }

    fn url(&self) -> Option<String> {
        self.private.is_none().then(|| self.url.clone())
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        self.server.as_ref().map(Server::saboteur)
    }

    fn writes_files(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    fn forgets(&self, hurt: Hurt) -> bool {
        // A store given by URL is not hurt.
        self.kind().is_some_and(|kind| kind.forgets(hurt, matches!(self.use_, Use::RowLock | Use::Advisory)))
    }

    fn session_timeout(&self) -> Option<Duration> {
        self.kind().is_some_and(has_sessions).then_some(SESSION)
    }
}
