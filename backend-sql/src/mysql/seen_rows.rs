//! Which names have a row.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use tenure_core::Name;

/// How many names are remembered.
const PLACES: u16 = 1024;

/// A guess whether a name has a row, from what this client was granted lately. A wrong one costs a statement, and nothing else.
///
/// Each place remembers the name that was noted there last, so that names that are used once do not crowd out the guess.
pub(super) struct SeenRows(Box<[AtomicU64]>);

impl Default for SeenRows {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SeenRows {
    /// The name's place, and what stands there once it is noted; never what stands in an unused one.
    fn place(&self, name: &Name) -> (&AtomicU64, u64) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish() | 1;
        (&self.0[usize::try_from((hash >> 1) % u64::from(PLACES)).unwrap_or(0)], hash)
    }

    /// Whether the name is thought to have a row.
    pub(super) fn expect(&self, name: &Name) -> bool {
        let (place, hash) = self.place(name);
        place.load(Relaxed) == hash
    }

    /// It has one.
    pub(super) fn note(&self, name: &Name) {
        let (place, hash) = self.place(name);
        place.store(hash, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_lately_is_remembered_and_nothing_else() {
        let (rows, name) = (SeenRows::default(), |number| Name::new(format!("name {number}")).unwrap());
        let seen = |number| rows.expect(&name(number));
        assert!(!seen(0));
        rows.note(&name(0));
        assert!(seen(0) && !seen(1));
        let last = 100 * u32::from(PLACES);
        for number in 1..=last {
            rows.note(&name(number));
        }
        assert!(seen(last) && !seen(0) && !seen(last + 1));
    }
}
