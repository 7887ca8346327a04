//! A client's claims on row locks, and its idle connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::{ClaimId, Grant, Moment, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

/// How many idle connections are kept.
const IDLE: usize = 4;

/// How far a claim has come.
#[derive(Clone)]
pub(crate) enum Stage {
    Asking,
    Held(Grant),
    Busy,
    Failed(Arc<StoreError>),
}

/// An order to give up a claim's hold or request. The answer is whether it was held until then.
pub(crate) struct Order(pub(crate) oneshot::Sender<Result<bool, StoreError>>);

/// This client's claims that are requested or held.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<ClaimId, Kept>>);

/// How to reach a claim's keeper.
pub(crate) struct Kept {
    pub(crate) stage: watch::Receiver<Stage>,
    pub(crate) orders: mpsc::UnboundedSender<Order>,
}

impl Claims {
    pub(crate) fn all(&self) -> MutexGuard<'_, HashMap<ClaimId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remove(&self, claim: ClaimId) {
        self.all().remove(&claim);
    }
}

/// Idle connections, none of them in a transaction, each with when it was used last.
pub(crate) struct Idle<C>(Mutex<Vec<(C, Moment)>>);

impl<C> Idle<C> {
    pub(crate) fn with(connection: C) -> Self {
        Self(Mutex::new(vec![(connection, Moment::now())]))
    }

    fn all(&self) -> MutexGuard<'_, Vec<(C, Moment)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the most recently used one.
    pub(crate) fn take(&self) -> Option<(C, Moment)> {
        self.all().pop()
    }

    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    pub(crate) fn put(&self, connection: C) {
        let mut all = self.all();
        if all.len() < IDLE {
            all.push((connection, Moment::now()));
        }
    }
}
