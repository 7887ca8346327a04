//! One of something for each runtime.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::runtime::{Handle, Id};
use tokio_util::sync::{CancellationToken, DropGuard};

/// One `T` for each runtime that asks: a connection, or anything else that is bound to the runtime that made it.
///
/// A socket is driven by the runtime in which it was opened. It dies with that runtime, and is silent while that
/// runtime is busy. So a store that is used from several runtimes, and from the [`Background`](crate::Background),
/// opens a connection in each; a request never crosses threads.
///
/// When a runtime ends, its `T` is dropped.
pub struct PerRuntime<T> {
    each: Arc<Each<T>>,
    /// Ends the tasks that wait for the ends of runtimes.
    _watches: DropGuard,
    over: CancellationToken,
}

/// A program has few runtimes, so a linear search is enough.
type Each<T> = Mutex<Vec<(Id, Arc<T>)>>;

impl<T: Send + Sync + 'static> PerRuntime<T> {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        let over = CancellationToken::new();
        Self { each: Arc::default(), _watches: over.clone().drop_guard(), over }
    }

    /// Returns the `T` of the current runtime, made by `make` if there is none yet.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let runtime = Handle::current();
        let id = runtime.id();
        let made = {
            let mut each = lock(&self.each);
            if let Some((_, present)) = each.iter().find(|(of, _)| *of == id) {
                return Arc::clone(present);
            }
            let made = Arc::new(make());
            each.push((id, Arc::clone(&made)));
            made
        };
        // Dropped with the task when the runtime ends, even if the task has never run.
        let watch = Watch { each: Arc::downgrade(&self.each), id };
        let over = self.over.clone();
        runtime.spawn(async move {
            let _watch = watch;
            over.cancelled().await;
        });
        made
    }

    /// Returns the `T`s of all runtimes that have not ended.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.each).iter().map(|(_, one)| Arc::clone(one)).collect()
    }
}

impl<T: Send + Sync + 'static> Default for PerRuntime<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRuntime").field("runtimes", &lock(&self.each).len()).finish_non_exhaustive()
    }
}

struct Watch<T> {
    each: Weak<Each<T>>,
    id: Id,
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        if let Some(each) = self.each.upgrade() {
            let mut each = lock(&each);
            let gone = each.iter().position(|(of, _)| *of == self.id).map(|at| each.swap_remove(at));
            // Dropped after unlocking: its `Drop` may do anything.
            drop(each);
            drop(gone);
        }
    }
}

fn lock<T>(each: &Each<T>) -> std::sync::MutexGuard<'_, Vec<(Id, Arc<T>)>> {
    each.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Builder, Runtime};

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn per_runtime_value_ends_with_its_runtime() {
        let numbers = PerRuntime::new();
        let (one, other) = (runtime(), runtime());
        assert_eq!(*one.block_on(async { numbers.get(|| 1) }), 1);
        assert_eq!(*other.block_on(async { numbers.get(|| 2) }), 2);
        assert_eq!(*one.block_on(async { numbers.get(|| unreachable!("it is there")) }), 1);
        assert_eq!(numbers.all().len(), 2);
        drop(one);
        assert_eq!(numbers.all().iter().map(|number| **number).collect::<Vec<_>>(), [2]);
        assert_eq!(*runtime().block_on(async { numbers.get(|| 3) }), 3);
        assert_eq!(numbers.all().len(), 1, "the value outlived its runtime");
    }

    #[test]
    fn per_runtime_value_is_dropped_with_its_owner() {
        let runtime = runtime();
        let kept = runtime.block_on(async { Arc::downgrade(&PerRuntime::new().get(|| ())) });
        assert!(kept.upgrade().is_none());
    }
}
