//! Looking after those who wait, in case a watch should be lost.
//!
//! Each proof of the session's life is a transaction, and it checks on the way that the nodes still stand unchanged of which
//! somebody waits to hear. That costs no request, however many wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// How many are looked after at once: a transaction should stay small.
const AT_ONCE: usize = 100;
pub(crate) const ANY_VERSION: i32 = -1;

/// Those who wait in one session.
#[derive(Default)]
pub(crate) struct Vigil(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By the order in which they came.
    waiting: BTreeMap<u64, Arc<Look>>,
    came: u64,
    /// Who was looked after last.
    last: u64,
}

/// What one of them waits to hear of.
pub(crate) struct Look {
    number: u64,
    awaited: Awaited,
    missing: Notify,
}

/// What is looked after for somebody.
#[derive(Clone)]
pub(crate) enum Awaited {
    /// That the node before its own still stands and has this version, and its own stands.
    Nodes { before: (String, i32), own: String },
    /// What no check of a node tells: it looks by itself whenever it has its turn.
    Anything,
}

/// One who waits, until this is dropped.
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

    /// Those whose turn it is, with each node that they wait to hear of, and the version that it should have.
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

    /// A node does not stand as it should, or cannot be seen. Those after it were not looked after, and are the next.
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
