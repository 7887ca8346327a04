//! A client's store: its backend, its name for messages, and its background thread.

use crate::{
    Ability, Backend, Background, Capabilities, Error, Holder, LossCause, Mode, Name, Operation, StoreError,
    background::Use,
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    /// The store's name for messages.
    pub(crate) name: Arc<str>,
    /// Where renewal, releases and withdrawals go on, whatever happens to the callers' runtimes.
    pub(crate) background: Background,
    /// Until the client is closed.
    uses_background: Mutex<Option<Use>>,
}

impl Store {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let background = backend.background();
        Self {
            name: backend.store().into(),
            uses_background: Mutex::new(Some(background.used())),
            background,
            backend,
        }
    }

    /// Refuses a mode that the store does not support.
    pub(crate) fn can_hold(&self, mode: Mode) -> Result<(), Error> {
        let Capabilities { shared, permits, .. } = self.backend.capabilities();
        let (served, ability) = match mode {
            Mode::Exclusive => return Ok(()),
            Mode::Shared => (shared, Ability::Readers),
            Mode::Permit { .. } => (permits, Ability::Permits),
        };
        if served { Ok(()) } else { Err(self.unsupported(ability)) }
    }

    /// Returns the current holders of `name`.
    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<Holder>, Error> {
        self.backend.holders(name).await.map_err(|error| self.failed(Operation::Looking, error))
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
        Error::Lost { name: name.clone(), store: Arc::clone(&self.name), cause }
    }

    /// The error for what a hold cannot do in its current state.
    pub(crate) fn conflict(&self, name: &Name, problem: impl Into<String>) -> Error {
        Error::Conflict { name: name.clone(), store: Arc::clone(&self.name), problem: problem.into() }
    }

    /// The error for what the store does not support.
    pub(crate) fn unsupported(&self, ability: Ability) -> Error {
        Error::Unsupported { store: Arc::clone(&self.name), ability }
    }
}
