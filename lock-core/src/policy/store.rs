//! A client's store: its backend, its name for messages, its background thread, and its measurements. Its requests are
//! in `requests`.

use crate::{
    contract::{Capabilities, Capability, Error, LossCause, Mode, Name, Operation, StoreError},
    metrics::{Meters, Requests},
    store::{Backend, Background, Use},
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Store {
    pub(super) backend: Arc<dyn Backend>,
    /// The store's name for messages.
    pub(crate) name: Arc<str>,
    /// Where renewal, releases and withdrawals go on, even if the callers' runtimes end.
    pub(crate) background: Background,
    pub(crate) meters: Meters,
    pub(super) requests: Requests,
    /// Until the client is closed.
    uses_background: Mutex<Option<Use>>,
}

impl Store {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let (background, name) = (backend.background(), Arc::<str>::from(backend.store()));
        Self {
            meters: Meters::new(&name),
            requests: Requests::new(&name),
            name,
            uses_background: Mutex::new(Some(background.used())),
            background,
            backend,
        }
    }

    /// Refuses a mode that the store does not support.
    pub(crate) fn can_hold(&self, mode: Mode) -> Result<(), Error> {
        let Capabilities { shared, permits, .. } = self.capabilities();
        let (served, capability) = match mode {
            Mode::Exclusive => return Ok(()),
            Mode::Shared => (shared, Capability::Shared),
            Mode::Permit { .. } => (permits, Capability::Permits),
        };
        if served { Ok(()) } else { Err(self.unsupported(capability)) }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// The part of the store that keeps `name`.
    pub(super) fn shard(&self, name: &Name) -> u64 {
        self.backend.shard(name)
    }

    /// Disconnects. Called when nothing is held or waited for.
    pub(crate) async fn close(&self) {
        self.backend.close().await;
        let used = self.uses_background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(used) = used {
            used.end().await;
        }
    }

    /// The error for a failure of the backend.
    pub(crate) fn failed(&self, during: Operation, error: StoreError) -> Error {
        Error::from_store(&self.name, during, error)
    }

    /// The error for a hold that was lost.
    pub(crate) fn lost(&self, name: &Name, cause: LossCause) -> Error {
        Error::Lost { name: name.clone(), store: Arc::clone(&self.name), cause, renewal: None }
    }

    /// The error for a call that a hold's state does not allow.
    pub(crate) fn conflict(&self, name: &Name, problem: impl Into<String>) -> Error {
        Error::Conflict { name: name.clone(), store: Arc::clone(&self.name), problem: problem.into() }
    }

    /// The error for a missing capability.
    pub(crate) fn unsupported(&self, capability: Capability) -> Error {
        Error::Unsupported { store: Arc::clone(&self.name), capability }
    }
}
