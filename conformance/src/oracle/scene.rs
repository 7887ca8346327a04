//! The clients' store, names and history.

use super::history::{History, Request};
use crate::{Check, Stage};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{Backend, Capabilities, ClaimId, Mode, Name};
use tokio::sync::Mutex as Turn;

/// The length of a lease that is cut short to let it expire.
const BRIEF: Duration = Duration::from_millis(200);
/// Its length on a slow store, which has a great margin. The client gives up a renewal after a twelfth of the lease.
const BRIEF_IF_SLOW: Duration = Duration::from_secs(2);

/// The state that both clients share.
pub(super) struct Scene {
    pub(super) modes: &'static [Mode],
    pub(super) seed: u64,
    pub(super) capabilities: Capabilities,
    pub(super) names: [Name; 2],
    history: Mutex<History>,
    pub(super) stores: [Arc<dyn Backend>; 2],
    /// One lease at a time runs out.
    pub(super) lapse: Turn<()>,
    /// A lease that is cut short, and how long it may be kept.
    pub(super) brief: Duration,
    pub(super) kept: Duration,
}

impl Scene {
    pub(super) fn set(
        stage: &Stage,
        stores: &[Arc<dyn Backend>; 2],
        modes: &'static [Mode],
        seed: u64,
    ) -> Check<Arc<Self>> {
        let is_slow = BRIEF_IF_SLOW <= stage.capabilities().margin;
        let brief = if is_slow { BRIEF_IF_SLOW } else { BRIEF };
        let name = |last: &str| Name::new(stage.name(&format!("{seed}.{last}")));
        Ok(Arc::new(Self {
            brief,
            kept: brief + stage.overtime(),
            modes,
            seed,
            capabilities: stage.capabilities(),
            names: [name("a")?, name("b")?],
            history: Mutex::default(),
            stores: stores.clone(),
            lapse: Turn::new(()),
        }))
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this claim waits, or has waited.
    pub(super) fn waits(&self, claim: ClaimId) -> bool {
        let history = self.history();
        history.calls.iter().any(|call| matches!(&call.request, Request::Wait(waits) if waits.id == claim))
    }
}
