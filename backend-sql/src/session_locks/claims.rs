//! A client's claims, and its idle connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tenure_core::{ClaimId, Grant, Mode, Moment, StoreError};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
};

/// How many idle connections are kept, however long they are idle.
const IDLE: usize = 4;
/// How long all others are kept: clients that hold many locks at once soon do so again.
const UNUSED: Duration = Duration::from_secs(10);

/// How far a claim has come.
#[derive(Clone)]
pub(crate) enum Stage {
    Asking,
    Held(Grant),
    Busy,
    Failed(Arc<StoreError>),
}

/// An order to a claim's keeper.
pub(crate) enum Order {
    /// To give up its hold or request. The answer is whether it was held until then.
    GiveUp(Reply),
    /// To change the mode of its hold. The answer is whether it did; there is none if nothing is held.
    Convert(Mode, Reply),
}

pub(crate) type Reply = oneshot::Sender<Result<bool, StoreError>>;

/// Waits for the order to give up a request. `None` if the backend is gone.
pub(crate) async fn given_up(orders: &mut mpsc::UnboundedReceiver<Order>) -> Option<Reply> {
    loop {
        match orders.recv().await? {
            Order::GiveUp(reply) => return Some(reply),
            // Nothing is held yet.
            Order::Convert(..) => {}
        }
    }
}

/// The order to give up a request, if it has come.
pub(crate) fn given_up_by_now(orders: &mut mpsc::UnboundedReceiver<Order>) -> Option<Reply> {
    loop {
        match orders.try_recv().ok()? {
            Order::GiveUp(reply) => return Some(reply),
            Order::Convert(..) => {}
        }
    }
}

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

/// Idle connections, none of them in a transaction.
pub(crate) struct Idle<C>(Mutex<Connections<C>>);

struct Connections<C> {
    /// Each with when it was used last; the latest at the end.
    all: Vec<(C, Moment)>,
    /// The task that closes those that are not needed, while it runs.
    trimming: Option<AbortHandle>,
}

impl<C: Send + 'static> Idle<C> {
    pub(crate) fn with(connection: C) -> Self {
        Self(Mutex::new(Connections { all: vec![(connection, Moment::now())], trimming: None }))
    }

    fn connections(&self) -> MutexGuard<'_, Connections<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the most recently used one.
    pub(crate) fn take(&self) -> Option<(C, Moment)> {
        self.connections().all.pop()
    }

    pub(crate) fn clear(&self) {
        self.connections().all.clear();
    }

    pub(crate) fn put(self: &Arc<Self>, connection: C) {
        let mut connections = self.connections();
        connections.all.push((connection, Moment::now()));
        // Its runtime may have ended it.
        let is_trimmed = connections.trimming.as_ref().is_some_and(|task| !task.is_finished());
        if connections.all.len() > IDLE && !is_trimmed {
            connections.trimming = Some(tokio::spawn(Self::trim(Arc::downgrade(self))).abort_handle());
        }
    }

    /// Closes connections beyond [`IDLE`] once they were idle for [`UNUSED`]. Ends with the backend.
    async fn trim(idle: Weak<Self>) {
        loop {
            tokio::time::sleep(UNUSED).await;
            let Some(idle) = idle.upgrade() else { return };
            let mut connections = idle.connections();
            let all = &mut connections.all;
            let unused = all.iter().take_while(|(_, used)| Moment::now().since(*used) >= UNUSED).count();
            let spare = all.len().saturating_sub(IDLE);
            all.drain(..unused.min(spare));
            if all.len() <= IDLE {
                connections.trimming = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_burst_are_closed_once_unused() {
        let idle = Arc::new(Idle::with(0));
        (1..10).for_each(|connection| idle.put(connection));
        tokio::time::sleep(UNUSED / 2).await;
        assert_eq!(idle.take().map(|(connection, _)| connection), Some(9));
        idle.put(9);
        assert_eq!(idle.connections().all.len(), 10);
        tokio::time::sleep(UNUSED).await;
        let kept: Vec<_> = idle.connections().all.iter().map(|(connection, _)| *connection).collect();
        assert_eq!(kept, [6, 7, 8, 9]);
        // And again.
        (1..10).for_each(|connection| idle.put(connection));
        tokio::time::sleep(UNUSED * 2).await;
        assert_eq!(idle.connections().all.len(), IDLE);
    }
}
