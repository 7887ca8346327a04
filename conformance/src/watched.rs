//! A value that tasks wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A value whose changes wake those that wait for it, in the order in which they began to wait.
///
/// A channel of `tokio::sync::watch` wakes them in an order of its own, which chance decides: no seed would have one
/// history.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn read(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.read());
        self.changed.notify_waiters();
    }

    /// Waits until the value gives an answer.
    pub(crate) async fn wait_for<Answer>(&self, mut look: impl FnMut(&T) -> Option<Answer>) -> Answer {
        loop {
            let changed = self.changed.notified();
            if let Some(answer) = look(&self.read()) {
                return answer;
            }
            changed.await;
        }
    }
}
