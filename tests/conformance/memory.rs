//! The store in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tenure_conformance::{BoxError, Simulation, Subject, async_trait};
use tenure_core::{Backend, Memory};

/// One store for each namespace.
#[derive(Default)]
pub(crate) struct InMemory(Mutex<HashMap<String, Memory>>);

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

    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        Some(Arc::new(Simulation::new()))
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
