//! The state that all locks of one client share: the store, waiters, holders and background tasks.

use super::{owned::Owned, queue::Queues, renewal::Renewals, store::Store, withdrawals::Withdrawals};
use crate::{
    contract::{Error, HolderInfo},
    store::Backend,
};
use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};
use tokio::sync::OnceCell;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub(crate) struct Client {
    pub(crate) store: Arc<Store>,
    pub(crate) default_lease: Duration,
    /// How many holds of this client may follow each other in memory with one grant of the store.
    pub(crate) successors: AtomicU32,
    /// This process, for locks without a label.
    pub(crate) here: Arc<HolderInfo>,
    pub(crate) queues: Arc<Queues>,
    pub(super) owned: Owned,
    pub(crate) renewals: Arc<Renewals>,
    pub(super) withdrawals: Arc<Withdrawals>,
    /// Releases and withdrawals in the background, for which `close` waits.
    pub(crate) tasks: TaskTracker,
    /// Acquisitions under way, which end when the client closes.
    pub(crate) acquisitions: TaskTracker,
    pub(crate) closing: CancellationToken,
    /// Whether the store was closed.
    pub(crate) closed: OnceCell<()>,
    /// Ends renewal when nothing can be held any more.
    _stop: DropGuard,
}

impl Client {
    pub(crate) fn new(backend: Arc<dyn Backend>, default_lease: Duration) -> Self {
        let (store, stop) = (Arc::new(Store::new(backend)), CancellationToken::new());
        Self {
            default_lease,
            successors: AtomicU32::new(0),
            here: Arc::new(HolderInfo::here(None)),
            queues: Arc::default(),
            owned: Owned::default(),
            renewals: Arc::new(Renewals::new(Arc::clone(&store), stop.clone())),
            withdrawals: Arc::new(Withdrawals::new(Arc::clone(&store))),
            tasks: TaskTracker::new(),
            acquisitions: TaskTracker::new(),
            closing: CancellationToken::new(),
            closed: OnceCell::new(),
            _stop: stop.drop_guard(),
            store,
        }
    }

    /// Refuses calls after the client was closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing.is_cancelled() { Err(self.closed_error()) } else { Ok(()) }
    }

    pub(crate) fn closed_error(&self) -> Error {
        Error::Closed { store: Arc::clone(&self.store.name) }
    }
}
