//! What every lock of one `Locks` shares.

use super::{queue::Queues, renewal::Renewals};
use crate::{
    Ability, Backend, Background, Capabilities, Error, HolderInfo, LossCause, Mode, Name, background::Use,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
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
    /// Where renewal, releases and withdrawals go on whatever becomes of the callers' runtimes.
    pub(crate) background: Background,
    /// Until these locks are closed.
    pub(crate) uses_background: Mutex<Option<Use>>,
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
        let (stop, background) = (CancellationToken::new(), backend.background());
        Self {
            store: backend.store().into(),
            default_lease,
            here: Arc::new(HolderInfo::here(None)),
            queues: Arc::default(),
            uses_background: Mutex::new(Some(background.used())),
            background,
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

    /// Lets go of the store. Called when nothing is held or waited for any more.
    pub(crate) async fn let_go(&self) {
        self.backend.close().await;
        let used = self.uses_background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(used) = used {
            used.end().await;
        }
    }

    pub(crate) fn closed_error(&self) -> Error {
        Error::Closed { store: Arc::clone(&self.store) }
    }

    pub(crate) fn lost(&self, name: &Name, cause: LossCause) -> Error {
        Error::Lost { name: name.clone(), store: Arc::clone(&self.store), cause }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backend, Background, Locks, Memory, async_trait, forward_backend};
    use std::time::Duration;

    /// Has a background of its own, which all of its clients use.
    #[derive(Clone, Default)]
    struct Common {
        memory: Memory,
        background: Background,
    }

    #[async_trait]
    impl Backend for Common {
        forward_backend!(self => self.memory, except background);

        fn background(&self) -> Background {
            self.background.clone()
        }
    }

    #[tokio::test]
    async fn who_closes_does_not_stop_the_renewal_of_others() {
        let store = Common::default();
        let (one, other) = (Locks::new(store.clone()), Locks::new(store));
        let held = one.lock("a").lease(Duration::from_secs(10)).acquire().await.unwrap();
        other.lock("b").acquire().await.unwrap().release().await.unwrap();
        other.close().await;
        let first = held.deadline();
        let renewed = async {
            while held.deadline() == first {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("renewed, or lost");
        assert!(held.is_held(), "{:?}", held.loss());
    }
}
