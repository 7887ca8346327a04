//! Looks at every guard, and knows what must never be seen.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tenure_core::{ClaimId, Guard, Hold, Name, Token};

pub(crate) struct Judge {
    seed: u64,
    /// Whether a grant may have several holds, one after the other.
    succession: bool,
    seen: Mutex<Seen>,
    grants: AtomicUsize,
    handed_on: AtomicUsize,
}

#[derive(Default)]
struct Seen {
    believers: HashMap<usize, Hold>,
    last: HashMap<Name, (Token, ClaimId)>,
    lost: Vec<Hold>,
    next: usize,
}

impl Judge {
    pub(crate) fn new(seed: u64, succession: bool) -> Self {
        let (grants, handed_on) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { seed, succession, seen: Mutex::default(), grants, handed_on }
    }

    /// A new guard: alone, and with a greater token, unless it shares its grant with another of the same owner.
    pub(crate) fn granted(&self, guard: &Guard) -> usize {
        let mut seen = self.seen.lock().unwrap();
        let (token, claim) = (guard.token(), guard.claim());
        match seen.last.get(guard.name()) {
            Some((last, same)) if *same == claim && *last == token => {}
            Some((last, same)) if *same == claim => {
                assert!(self.succession && token > *last, "seed {}: {guard:?} after {last}", self.seed);
                self.handed_on.fetch_add(1, Ordering::Relaxed);
            }
            Some((last, _)) => assert!(token > *last, "seed {}: {guard:?} after token {last}", self.seed),
            None => {}
        }
        seen.last.insert(guard.name().clone(), (token, claim));
        seen.next += 1;
        let entry = seen.next;
        seen.believers.insert(entry, guard.hold());
        self.alone(&seen, guard);
        self.grants.fetch_add(1, Ordering::Relaxed);
        entry
    }

    /// A later look at a guard.
    pub(crate) fn look(&self, guard: &Guard) {
        let mut seen = self.seen.lock().unwrap();
        self.alone(&seen, guard);
        for hold in &seen.lost {
            assert!(!hold.is_held(), "seed {}: revived: {hold:?}", self.seed);
        }
        if guard.loss().is_some() {
            seen.lost.push(guard.hold());
        }
    }

    /// Whether another was granted the lock after this guard.
    pub(crate) fn overtaken(&self, guard: &Guard) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.last.get(guard.name()).is_some_and(|(last, _)| *last > guard.token())
    }

    pub(crate) fn leaving(&self, entry: usize) {
        self.seen.lock().unwrap().believers.remove(&entry);
    }

    fn alone(&self, seen: &Seen, guard: &Guard) {
        if !guard.is_held() {
            return;
        }
        for other in seen.believers.values().filter(|other| other.name() == guard.name() && other.is_held()) {
            let [theirs, ours] = [(other.claim(), other.token()), (guard.claim(), guard.token())];
            assert_eq!(theirs, ours, "seed {}: {guard:?} and {other:?} both hold", self.seed);
        }
    }

    /// A run in which hardly anything was granted proves nothing. Returns how often a grant was handed on.
    pub(crate) fn summary(&self) -> usize {
        let grants = self.grants.load(Ordering::Relaxed);
        assert!(grants > 10, "seed {}: only {grants} grants", self.seed);
        self.handed_on.load(Ordering::Relaxed)
    }
}
