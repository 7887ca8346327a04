//! Which names have had several holders lately.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use tenure_core::Name;

/// Every so many requests about crowded names the simple statement has another chance.
const ANOTHER_CHANCE: u64 = 16;

/// A guess for each name whether the simple statement for a lone holder is of use. A wrong one costs a statement, and nothing
/// else; so does a name that shares its bit with another.
#[derive(Default)]
pub(super) struct Crowds {
    names: AtomicU64,
    asked: AtomicU64,
}

impl Crowds {
    fn bit(name: &Name) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        1 << (hasher.finish() % u64::from(u64::BITS))
    }

    /// Whether one who asks for the name should expect others there.
    pub(super) fn expect(&self, name: &Name) -> bool {
        self.were_seen(name) && !(self.asked.fetch_add(1, Relaxed) + 1).is_multiple_of(ANOTHER_CHANCE)
    }

    /// Whether others were there when the name was last asked for.
    pub(super) fn were_seen(&self, name: &Name) -> bool {
        self.names.load(Relaxed) & Self::bit(name) != 0
    }

    /// Others were there, or not.
    pub(super) fn note(&self, name: &Name, others: bool) {
        if others {
            self.names.fetch_or(Self::bit(name), Relaxed);
        } else {
            self.names.fetch_and(!Self::bit(name), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_forgotten_when_it_has_gone() {
        let (crowds, name) = (Crowds::default(), Name::new("a").unwrap());
        assert!(!crowds.expect(&name));
        crowds.note(&name, true);
        let expected = (0..ANOTHER_CHANCE).filter(|_| crowds.expect(&name)).count();
        assert_eq!(expected, 15);
        assert!(crowds.were_seen(&name));
        crowds.note(&name, false);
        assert!(!crowds.were_seen(&name) && !crowds.expect(&name));
    }
}
