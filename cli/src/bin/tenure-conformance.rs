//! `tenure-conformance faults STORE`: clients, processes and faults on a store that may be broken for it.
//!
//! STORE is `memory`; `sqlite`, which is a new file; the name of a server (`redis`, …), which is then found or started,
//! and hurt; or a URL. What a URL names is not hurt itself, only the clients' way to it.

use std::{env, process::ExitCode, sync::Arc};
use tempfile::TempDir;
use tenure::{
    HolderInfo,
    backend::{self, Backend},
};
use tenure_conformance::{
    BoxError, Subject, async_trait, faults,
    saboteur::Saboteur,
    servers::{Kind, Server},
};

/// Tells the client processes where the store is.
const URL: &str = "TENURE_CONFORMANCE_FAULTS_URL";
/// Tells them in which namespace.
const NAMESPACE: &str = "TENURE_CONFORMANCE_FAULTS_NAMESPACE";

fn main() -> ExitCode {
    faults::main(|store| async move { Ok(Arc::new(Store::named(&store).await?) as Arc<dyn Subject>) })
}

/// The store, and what has to live as long as it is used.
struct Store {
    name: String,
    url: String,
    namespace: String,
    /// The one store of this process, where each connection would be a store of its own.
    private: Option<Arc<dyn Backend>>,
    server: Option<Server>,
    _directory: Option<TempDir>,
}

impl Store {
    async fn named(store: &str) -> Result<Self, BoxError> {
        let namespace = format!("tenure-faults/{}/", HolderInfo::here(None).pid);
        let mut this = Self {
            name: store.split(':').next().unwrap_or_default().to_owned(),
            url: store.to_owned(),
            namespace,
            private: None,
            server: None,
            _directory: None,
        };
        if let (Ok(url), Ok(namespace)) = (env::var(URL), env::var(NAMESPACE)) {
            return Ok(Self { url, namespace, ..this });
        }
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == store) {
            let server = Server::find(kind).await?;
            eprintln!("{server}");
            this.url = server.url();
            this.server = Some(server);
        } else if store == "sqlite" {
            let directory = tempfile::tempdir()?;
            let path = directory.path().join("locks.db");
            let path = path.to_str().ok_or("the temporary directory's name is not UTF-8")?;
            let url = format!("sqlite:{path}");
            return Ok(Self { url, _directory: Some(directory), ..this });
        } else if store == "memory" {
            "memory:".clone_into(&mut this.url);
        }
        if this.url == "memory:" {
            this.private = Some(backend::open(&this.url).await?);
        }
        Ok(this)
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

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        self.server.as_ref().map(Server::saboteur)
    }
}
