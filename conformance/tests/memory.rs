//! The whole suite on the store in memory, which is the reference for all others.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};
use tenure_conformance::{BoxError, Subject, Subjects, async_trait};
use tenure_core::{Backend, Memory};

/// The store in memory: one for each namespace.
#[derive(Default)]
struct InMemory(Mutex<HashMap<String, Memory>>);

impl InMemory {
    fn store(&self, namespace: &str) -> Memory {
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stores.entry(namespace.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Subject for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.store("")))
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(Arc::new(self.store(namespace))))
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(true)
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { Subjects::new().with(InMemory::default()) })
}
