//! Hints that a name may have become free.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// This process's waiters, by name.
#[derive(Default)]
pub(crate) struct Hints(Mutex<HashMap<String, watch::Sender<()>>>);

/// A waiter for a name.
pub(crate) struct Hint {
    told: watch::Receiver<()>,
    key: String,
    hints: Arc<Hints>,
}

impl Hints {
    /// Listens for hints about `key` from now on.
    pub(crate) fn listen(self: &Arc<Self>, key: String) -> Hint {
        let told = self.waiting().entry(key.clone()).or_insert_with(|| watch::channel(()).0).subscribe();
        Hint { told, key, hints: Arc::clone(self) }
    }

    /// Tells the waiters for `key`.
    #[cfg(any(test, feature = "_server"))]
    pub(crate) fn tell(&self, key: &str) {
        if let Some(waiting) = self.waiting().get(key) {
            waiting.send_replace(());
        }
    }

    /// Tells all waiters, because a hint may have been missed.
    #[cfg(any(test, feature = "_server"))]
    pub(crate) fn tell_all(&self) {
        for waiting in self.waiting().values() {
            waiting.send_replace(());
        }
    }

    /// The awaited keys.
    #[cfg(feature = "mysql")]
    pub(crate) fn keys(&self) -> Vec<String> {
        self.waiting().keys().cloned().collect()
    }

    /// Whether there are no waiters.
    #[cfg(feature = "_server")]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hint {
    /// Waits for a hint, including one that came since the last call. Returns whether there was one within `at_most`.
    pub(crate) async fn told(&mut self, at_most: Duration) -> bool {
        // The sender is dropped only with its last receiver, so this cannot fail.
        matches!(tokio::time::timeout(at_most, self.told.changed()).await, Ok(Ok(())))
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        let mut waiting = self.hints.waiting();
        // This receiver is still counted.
        if waiting.get(&self.key).is_some_and(|waiting| waiting.receiver_count() == 1) {
            waiting.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn hint_reaches_only_waiters_for_its_name() {
        let hints = Arc::new(Hints::default());
        let (mut one, mut other) = (hints.listen("a".into()), hints.listen("b".into()));
        hints.tell("a");
        assert!(one.told(SOON).await);
        assert!(!other.told(SOON).await && !one.told(SOON).await);
        hints.tell_all();
        assert!(one.told(SOON).await && other.told(SOON).await);
    }

    #[test]
    fn hints_keep_nothing_of_past_waiters() {
        let hints = Arc::new(Hints::default());
        let (one, other) = (hints.listen("a".into()), hints.listen("a".into()));
        drop(one);
        assert_eq!(hints.waiting().len(), 1);
        drop(other);
        assert!(hints.waiting().is_empty());
    }
}
