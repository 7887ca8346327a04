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

/// A node that a waiter relies on, and the version that it should have.
pub(crate) struct Check {
    pub(crate) node: String,
    pub(crate) version: i32,
    look: Arc<Look>,
}

/// One waiter's check.
struct Look {
    number: u64,
    awaited: Awaited,
    missing: Notify,
}

/// The nodes that are checked for a waiter.
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

    /// Looks after the waiters whose turn it is, by transactions that check nodes. Such a transaction tells only the
    /// first node that is missing, changed or not readable. So the others are checked again until none is: each waiter
    /// that lost its watch is woken in this turn.
    ///
    /// `check` gives the nodes back with the position of that one, if any. It is called at least once.
    pub(crate) async fn look_after<E, C: Future<Output = Result<Option<(Vec<Check>, usize)>, E>>>(
        &self,
        check: impl Fn(Vec<Check>) -> C,
    ) -> Result<(), E> {
        let mut checks = self.next();
        while let Some((mut others, missing)) = check(checks).await? {
            let Some(Check { look, node, .. }) = others.get(missing) else { break };
            tracing::debug!(node, "waking the waiter for this node");
            look.missing.notify_one();
            let number = look.number;
            others.retain(|check| check.look.number != number);
            if others.is_empty() {
                break;
            }
            checks = others;
        }
        Ok(())
    }

    /// The checks for the waiters whose turn it is.
    fn next(&self) -> Vec<Check> {
        let mut inner = self.inner();
        let turn = inner.waiting.range(inner.last + 1..).chain(inner.waiting.range(..=inner.last));
        let turn: Vec<_> = turn.take(AT_ONCE).map(|(_, look)| Arc::clone(look)).collect();
        inner.last = turn.last().map_or(inner.last, |look| look.number);
        let mut checks = Vec::with_capacity(turn.len() * 2);
        for look in turn {
            match &look.awaited {
                Awaited::Nodes { before: (before, version), own } => {
                    let check = |node: &String, version| Check {
                        look: Arc::clone(&look),
                        node: node.clone(),
                        version,
                    };
                    checks.extend([check(before, *version), check(own, ANY_VERSION)]);
                }
                Awaited::Anything => look.missing.notify_one(),
            }
        }
        checks
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
    use std::cell::Cell;

    fn nodes(of: usize) -> [(String, i32); 2] {
        [(format!("{of}/before"), 7), (format!("{of}/own"), ANY_VERSION)]
    }

    fn wait(vigil: &Vigil, of: usize) -> Waiting<'_> {
        let [before, (own, _)] = nodes(of);
        vigil.wait(Awaited::Nodes { before, own })
    }

    fn looked_after(vigil: &Vigil) -> Vec<(String, i32)> {
        vigil.next().into_iter().map(|check| (check.node, check.version)).collect()
    }

    #[test]
    fn waiter_for_anything_looks_each_time() {
        let vigil = Vigil::default();
        let waiting = vigil.wait(Awaited::Anything);
        for _ in 0..2 {
            assert!(waiting.missed().now_or_never().is_none());
            assert!(looked_after(&vigil).is_empty());
            assert!(waiting.missed().now_or_never().is_some());
        }
    }

    #[test]
    fn every_waiter_has_a_turn() {
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

    #[tokio::test]
    async fn all_waiters_whose_nodes_are_missing_are_woken_in_one_turn() {
        let vigil = Vigil::default();
        let waiting: Vec<_> = (0..5).map(|number| wait(&vigil, number)).collect();
        let transactions = Cell::new(0);
        let missing = ["1/own", "2/before", "2/own", "4/before"];
        let check = async |checks: Vec<Check>| {
            transactions.set(transactions.get() + 1);
            let found = checks.iter().position(|check| missing.contains(&&*check.node));
            Ok::<_, ()>(found.map(|found| (checks, found)))
        };
        vigil.look_after(check).await.unwrap();
        for (number, waiting) in waiting.iter().enumerate() {
            assert_eq!(waiting.missed().now_or_never().is_some(), [1, 2, 4].contains(&number), "{number}");
        }
        assert_eq!(transactions.get(), 4);
        assert_eq!(vigil.look_after(async |_| Err("no answer")).await, Err("no answer"));
    }

    #[tokio::test]
    async fn transaction_is_sent_without_waiters_too() {
        let transactions = Cell::new(0);
        let check = async |checks: Vec<Check>| {
            transactions.set(transactions.get() + 1);
            Ok::<_, ()>((!checks.is_empty()).then_some((checks, 0)))
        };
        Vigil::default().look_after(check).await.unwrap();
        assert_eq!(transactions.get(), 1);
    }
}
