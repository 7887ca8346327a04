//! Guesses about what kinds of rows names have.

use crate::record_rows::Row;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use tenure_core::Name;

/// How many names are remembered.
const PLACES: u16 = 1024;

/// A guess about a name's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// Nothing is known.
    Nothing,
    /// There is a row, whose columns say everything.
    Columns,
    /// There is a row with a record.
    Record,
}

/// A guess for each name, from what this client saw last. A wrong guess costs one statement, and nothing else.
///
/// Each place remembers the last name noted there, so names that are used once do not crowd out the others.
pub(super) struct Guesses(Box<[AtomicU64]>);

impl Default for Guesses {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Guesses {
    /// The key's place, and its values for a plain row and for a row with a record; never the value of an unused place.
    fn place(&self, key: &str) -> (&AtomicU64, u64, u64) {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let place = &self.0[usize::try_from((hash >> 2) % u64::from(PLACES)).unwrap_or(0)];
        (place, hash & !3 | 1, hash & !3 | 2)
    }

    /// The guess for the name's row.
    pub(super) fn of(&self, name: &Name) -> Guess {
        let (place, columns, record) = self.place(name.as_str());
        match place.load(Relaxed) {
            known if known == columns => Guess::Columns,
            known if known == record => Guess::Record,
            _ => Guess::Nothing,
        }
    }

    /// Notes that it was granted by one statement.
    pub(super) fn granted(&self, name: &Name) {
        let (place, columns, _) = self.place(name.as_str());
        place.store(columns, Relaxed);
    }

    /// Notes that it was read or written.
    pub(super) fn seen(&self, key: &str, row: &Row) {
        let (place, columns, record) = self.place(key);
        place.store(if row.record.is_some() { record } else { columns }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_lately_is_remembered_and_nothing_else() {
        let (guesses, name) = (Guesses::default(), |number| Name::new(format!("name {number}")).unwrap());
        let of = |number| guesses.of(&name(number));
        assert_eq!(of(0), Guess::Nothing);
        guesses.granted(&name(0));
        assert_eq!((of(0), of(1)), (Guess::Columns, Guess::Nothing));
        guesses.seen("name 0", &Row { record: Some(String::new()), ..Row::default() });
        assert_eq!(of(0), Guess::Record);
        guesses.seen("name 0", &Row::default());
        assert_eq!(of(0), Guess::Columns);
        let last = 100 * u32::from(PLACES);
        for number in 1..=last {
            guesses.granted(&name(number));
        }
        assert_eq!((of(last), of(0), of(last + 1)), (Guess::Columns, Guess::Nothing, Guess::Nothing));
    }
}
