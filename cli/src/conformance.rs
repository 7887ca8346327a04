//! `tenure conformance`: runs the suite against the user's own store.

use crate::{
    args,
    exit::{self, Failure},
    stderr, store,
};
use std::{env, process::ExitCode, sync::Arc};
use tenure::{
    HolderInfo,
    backend::{self, Backend},
};
use tenure_conformance::{BoxError, Outcome, Subject, Subjects, async_trait};
use tokio::runtime::Runtime;

/// Tells the suite's child processes which store to use.
const URL: &str = "TENURE_CONFORMANCE_URL";
/// Tells them which namespace to use.
const NAMESPACE: &str = "TENURE_CONFORMANCE_NAMESPACE";

/// Plays a victim if the suite started this process as one.
pub(crate) fn main() -> Option<ExitCode> {
    if !tenure_conformance::is_victim() {
        return None;
    }
    let subjects = || async {
        let var = |name| env::var(name).unwrap_or_default();
        Subjects::new().with(Store { url: var(URL), namespace: var(NAMESPACE), private: None })
    };
    Runtime::new().ok()?.block_on(tenure_conformance::play_victim_if_asked(subjects));
    None
}

pub(crate) async fn conformance(store: &args::Store, args: &args::Conformance) -> Result<ExitCode, Failure> {
    let url = store::url(store)?;
    // Locks of the suite and locks in use never meet.
    let namespace = format!("tenure-conformance/{}/", HolderInfo::here(None).pid);
    let backend = backend::open_in(&url.text, &namespace).await.map_err(|error| url.failed(error))?;
    let private = (backend.store() == "memory").then(|| Arc::clone(&backend));
    stderr::mention(&format!("testing {}; this may take minutes", backend.store()));
    exit::print(&format!("{}\n\n", backend.store()))?;
    let subject = Store { url: url.text, namespace, private };
    let (mut cases, mut failures) = (0, 0);
    let report = tenure_conformance::run(Subjects::new().with(subject), &args.filter, |entry| {
        failures += usize::from(matches!(entry.outcome, Outcome::Failed(_)));
        cases += 1;
        stderr::show(Some(format!("{cases} cases, {failures} failed; {entry}")));
    });
    let report = report.await;
    stderr::show(None);
    stderr::written().await;
    backend.close().await;
    if report.entries.is_empty() {
        return Err(Failure::Usage(format!("no case of the suite has {:?} in its name", args.filter)));
    }
    exit::print(&report.to_string())?;
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The store that a URL names, in this run's namespace.
struct Store {
    url: String,
    namespace: String,
    /// The one shared backend, where each new connection would be a separate store.
    private: Option<Arc<dyn Backend>>,
}

#[async_trait]
impl Subject for Store {
    fn name(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        match &self.private {
            Some(backend) => Ok(Arc::clone(backend)),
            None => Ok(backend::open_in(&self.url, &self.namespace).await?),
        }
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        let namespace = format!("{}{namespace}", self.namespace);
        match &self.private {
            Some(_) => Ok(None),
            None => Ok(Some(backend::open_in(&self.url, &namespace).await?)),
        }
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        let here = [(URL, &self.url), (NAMESPACE, &self.namespace)];
        let here = here.map(|(name, value)| (name.to_owned(), value.clone()));
        self.private.is_none().then(|| here.to_vec())
    }
}
