//! What every lock of one `Locks` shares.

use super::{queue::Queues, renewal::Renewals};
use crate::{Ability, Backend, Capabilities, Error, HolderInfo, LossCause, Mode, Name};
use std::{sync::Arc, time::Duration};
use tokio::sync::OnceCell;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    /// The store in words.
    pub(crate) store: Arc<str>,
    pub(crate) default_lease: Duration,
    /// This process, for locks without a label.
    pub(crate) here: Arc<HolderInfo>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) renewal: Arc<Renewals>,
    /// Releases and withdrawals in the background, for which `close` waits.
    pub(crate) tasks: TaskTracker,
    /// Acquisitions under way, which end when these locks close.
    pub(crate) acquisitions: TaskTracker,
    pub(crate) closing: CancellationToken,
    /// Whether the backend was told to let go of its connections.
    pub(crate) closed: OnceCell<()>,
    /// Ends the renewal task when nobody can hold anything any more.
    _stop: DropGuard,
}

impl Shared {
    pub(crate) fn new(backend: Arc<dyn Backend>, default_lease: Duration) -> Self {
        let stop = CancellationToken::new();
        Self {
            store: backend.store().into(),
            default_lease,
            here: Arc::new(HolderInfo::here(None)),
            queues: Arc::default(),
            renewal: Arc::new(Renewals::new(Arc::clone(&backend), stop.clone())),
            tasks: TaskTracker::new(),
            acquisitions: TaskTracker::new(),
            closing: CancellationToken::new(),
            closed: OnceCell::new(),
            _stop: stop.drop_guard(),
            backend,
        }
    }

    /// Refuses a mode that the store does not serve.
    pub(crate) fn can_hold(&self, mode: Mode) -> Result<(), Error> {
        let Capabilities { shared, permits, .. } = self.backend.capabilities();
        let (served, ability) = match mode {
            Mode::Exclusive => return Ok(()),
            Mode::Shared => (shared, Ability::Readers),
            Mode::Permit { .. } => (permits, Ability::Permits),
        };
        let store = Arc::clone(&self.store);
        if served { Ok(()) } else { Err(Error::Unsupported { store, ability }) }
    }

    pub(crate) fn closed_error(&self) -> Error {
        Error::Closed { store: Arc::clone(&self.store) }
    }

    pub(crate) fn lost(&self, name: &Name, cause: LossCause) -> Error {
        Error::Lost { name: name.clone(), store: Arc::clone(&self.store), cause }
    }
}
