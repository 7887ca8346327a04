//! Guesses about the kinds of rows that names have.

use crate::lease_rows::record_rows::Row;
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
    /// There is a row, whose columns say everything and last named a holder.
    Held,
    /// There is a row with a record.
    Record,
}

/// A guess for each name, from the row that this client saw last. A wrong guess costs one statement, and nothing else.
///
/// Each place remembers the last name noted there, so names that are used once do not crowd out the others.
pub(super) struct Guesses(Box<[AtomicU64]>);

impl Default for Guesses {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Guesses {
    /// The key's place, and the value there for each guess; never the value of an unused place.
    fn place(&self, key: &str) -> (&AtomicU64, impl Fn(Guess) -> u64 + use<>) {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let place = &self.0[usize::try_from((hash >> 2) % u64::from(PLACES)).unwrap_or(0)];
        let value = move |guess| {
            let kind = match guess {
                Guess::Nothing => 0,
                Guess::Columns => 1,
                Guess::Held => 2,
                Guess::Record => 3,
            };
            hash & !3 | kind
        };
        (place, value)
    }

    /// The guess for the name's row.
    pub(super) fn of(&self, name: &Name) -> Guess {
        let (place, value) = self.place(name.as_str());
        let known = place.load(Relaxed);
        let guesses = [Guess::Columns, Guess::Held, Guess::Record];
        guesses.into_iter().find(|guess| value(*guess) == known).unwrap_or(Guess::Nothing)
    }

    fn note(&self, key: &str, guess: Guess) {
        let (place, value) = self.place(key);
        place.store(value(guess), Relaxed);
    }

    /// Notes that one statement granted or released it. Until another client is granted it, the next request needs no
    /// look first.
    pub(super) fn changed(&self, name: &Name) {
        self.note(name.as_str(), Guess::Columns);
    }

    /// Notes that it was read or written.
    pub(super) fn seen(&self, key: &str, row: &Row) {
        let guess = match row {
            Row { record: Some(_), .. } => Guess::Record,
            Row { claim: Some(_), .. } => Guess::Held,
            _ => Guess::Columns,
        };
        self.note(key, guess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guess_remembers_only_rows_seen_lately() {
        let (guesses, name) = (Guesses::default(), |number| Name::new(format!("name {number}")).unwrap());
        let of = |number| guesses.of(&name(number));
        assert_eq!(of(0), Guess::Nothing);
        guesses.changed(&name(0));
        assert_eq!((of(0), of(1)), (Guess::Columns, Guess::Nothing));
        guesses.seen("name 0", &Row { record: Some(String::new()), ..Row::default() });
        assert_eq!(of(0), Guess::Record);
        guesses.seen("name 0", &Row { claim: Some(String::new()), ..Row::default() });
        assert_eq!(of(0), Guess::Held);
        guesses.seen("name 0", &Row::default());
        assert_eq!(of(0), Guess::Columns);
        let last = 100 * u32::from(PLACES);
        for number in 1..=last {
            guesses.changed(&name(number));
        }
        assert_eq!((of(last), of(0), of(last + 1)), (Guess::Columns, Guess::Nothing, Guess::Nothing));
    }
}
