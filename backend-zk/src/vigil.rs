//! Looking after waiters, in case a watch is lost.
//!
//! Each heartbeat is a transaction. It also checks that the nodes that waiters rely on still exist unchanged. That
//! costs no extra request, however many wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// How many waiters one transaction looks after: it should stay small.
const AT_ONCE: usize = 100;
pub(crate) const ANY_VERSION: i32 = -1;

/// The waiters of one session.
#[derive(Default)]
pub(crate) struct Vigil(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// In order of arrival.
    waiting: BTreeMap<u64, Arc<Look>>,
    came: u64,
    /// The last one that was looked after.
    last: u64,
}

/// What one of them waits for.
pub(crate) struct Look {
    number: u64,
    awaited: Awaited,
    missing: Notify,
}

/// What is checked for a waiter.
#[derive(Clone)]
pub(crate) enum Awaited {
    /// The node before its own still exists in this version, and its own exists.
    Nodes { before: (String, i32), own: String },
    /// Something that no check of a node tells: it looks by itself at every turn.
    Anything,
}

/// A waiter, until this is dropped.
pub(crate) struct Waiting<'a> {
    vigil: &'a Vigil,
    look: Arc<Look>,
}

impl Vigil {
    pub(crate) fn wait(&self, awaited: Awaited) -> Waiting<'_> {
        let mut inner = self.inner();
        inner.came += 1;
        let look = Arc::new(Look { number: inner.came, awaited, missing: Notify::new() });
        inner.waiting.insert(look.number, Arc::clone(&look));
        Waiting { vigil: self, look }
    }

    /// The waiters whose turn it is, with each node that they rely on and the version that it should have.
    pub(crate) fn next(&self) -> Vec<(Arc<Look>, String, i32)> {
        let mut inner = self.inner();
        let turn = inner.waiting.range(inner.last + 1..).chain(inner.waiting.range(..=inner.last));
        let turn: Vec<_> = turn.take(AT_ONCE).map(|(_, look)| Arc::clone(look)).collect();
        inner.last = turn.last().map_or(inner.last, |look| look.number);
        let mut checks = Vec::with_capacity(turn.len() * 2);
        for look in turn {
            match &look.awaited {
                Awaited::Nodes { before: (before, version), own } => {
                    checks.push((Arc::clone(&look), before.clone(), *version));
                    checks.push((Arc::clone(&look), own.clone(), ANY_VERSION));
                }
                Awaited::Anything => look.missing.notify_one(),
            }
        }
        checks
    }

    /// Notes that a node is missing, changed or not readable. The waiters after it were not checked, and are next.
    pub(crate) fn missed(&self, look: &Look) {
        self.inner().last = look.number;
        look.missing.notify_one();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    /// Waits until one of the nodes was found missing or changed, or it is time to look.
    pub(crate) async fn missed(&self) {
        self.look.missing.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.vigil.inner().waiting.remove(&self.look.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn nodes(of: usize) -> [(String, i32); 2] {
        [(format!("{of}/before"), 7), (format!("{of}/own"), ANY_VERSION)]
    }

    fn wait(vigil: &Vigil, of: usize) -> Waiting<'_> {
        let [before, (own, _)] = nodes(of);
        vigil.wait(Awaited::Nodes { before, own })
    }

    fn looked_after(vigil: &Vigil) -> Vec<(String, i32)> {
        vigil.next().into_iter().map(|(_, node, version)| (node, version)).collect()
    }

    #[test]
    fn who_waits_for_anything_looks_each_time() {
        let vigil = Vigil::default();
        let waiting = vigil.wait(Awaited::Anything);
        for _ in 0..2 {
            assert!(waiting.missed().now_or_never().is_none());
            assert!(looked_after(&vigil).is_empty());
            assert!(waiting.missed().now_or_never().is_some());
        }
    }

    #[test]
    fn everybody_has_a_turn() {
        let vigil = Vigil::default();
        assert!(looked_after(&vigil).is_empty());
        let mut waiting: Vec<_> = (0..250).map(|number| wait(&vigil, number)).collect();
        for turn in [0..100, 100..200] {
            assert_eq!(looked_after(&vigil), turn.flat_map(nodes).collect::<Vec<_>>());
        }
        let around = (200..250).chain(0..50).flat_map(nodes);
        assert_eq!(looked_after(&vigil), around.collect::<Vec<_>>());
        waiting.drain(1..);
        assert_eq!(looked_after(&vigil), nodes(0));
        assert_eq!(looked_after(&vigil), nodes(0));
        drop(waiting);
        assert!(looked_after(&vigil).is_empty());
    }

    #[test]
    fn a_missing_node_wakes_who_waits_for_it_and_the_next_turn_begins_there() {
        let vigil = Vigil::default();
        let waiting: Vec<_> = (0..5).map(|number| wait(&vigil, number)).collect();
        let looks = vigil.next();
        vigil.missed(&looks[5].0);
        for (number, waiting) in waiting.iter().enumerate() {
            assert_eq!(waiting.missed().now_or_never().is_some(), number == 2);
        }
        let after: Vec<_> = [3, 4, 0, 1, 2].into_iter().flat_map(nodes).collect();
        assert_eq!(looked_after(&vigil), after);
    }
}
