//! The rows that need more than columns, as this client last saw them, so that it need not read them again.

use super::record_rows::{Row, Seen};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::Moment;

/// How many rows are remembered.
const PLACES: u16 = 256;
/// How long rows are remembered. Their age is measured by this client's clock, which may be faster or slower than the
/// database's.
const LONGEST: Duration = Duration::from_secs(1);

/// The rows that this client read or wrote last. If one is unchanged since, the next request can write it without
/// reading it first, which saves a round trip. A row that another client has changed is not written, because its
/// version differs; that costs one more round trip. A row that is deleted and made anew begins with the clock's
/// microseconds. Only a row that another program gives an old version by hand, within that second, would be written
/// over.
///
/// A row is guessed only once after each read. A client that kept writing without reading would leave no gap for
/// others, which must read first and would always be too late. And a row that others have changed is not guessed again
/// until it was read unchanged.
///
/// Each place remembers the last row noted there.
pub(crate) struct KnownRows(Box<[Mutex<Option<Known>>]>);

struct Known {
    key: String,
    seen: Seen,
    /// The instant after it was read.
    received: Moment,
    guessed: bool,
    missed: bool,
}

impl Default for KnownRows {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

impl KnownRows {
    fn place(&self, key: &str) -> MutexGuard<'_, Option<Known>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % u64::from(PLACES)).unwrap_or(0);
        locked(&self.0[place])
    }

    /// The row's content, unless another client has changed it.
    pub(crate) fn guess(&self, key: &str, is_of_use: impl FnOnce(&Seen) -> bool) -> Option<Seen> {
        let mut place = self.place(key);
        let known = place.as_mut().filter(|known| known.key == key && !known.guessed && !known.missed)?;
        let now = Moment::now();
        // Counts from when it was sent, because a slow answer says little about the present.
        if now.since(known.seen.sent) > LONGEST || !is_of_use(&known.seen) {
            return None;
        }
        known.guessed = true;
        Some(known.seen.aged(now.since(known.received), LONGEST))
    }

    /// Notes that the row was just read.
    pub(crate) fn read(&self, key: &str, seen: &Seen) {
        let mut place = self.place(key);
        let version = |seen: &Seen| seen.row.as_ref().map(|row| row.version);
        let last = place.take().filter(|known| known.key == key);
        let missed = last.is_some_and(|known| known.missed && version(&known.seen) != version(seen));
        *place = columns_do_not_do(seen.row.as_ref()).then(|| Known {
            key: key.to_owned(),
            seen: seen.clone(),
            received: Moment::now(),
            guessed: false,
            missed,
        });
    }

    /// Notes that the row was written on the basis of `from`.
    pub(crate) fn wrote(&self, key: &str, from: &Seen, to: &Row) {
        let mut place = self.place(key);
        let Some(known) = place.as_mut().filter(|known| known.key == key) else { return };
        // The version of a new row is not known.
        let version = from.row.as_ref().and_then(|row| row.version.checked_add(1));
        match version {
            Some(version) if columns_do_not_do(Some(to)) => {
                known.seen.row = Some(Row { version, ..to.clone() });
            }
            _ => *place = None,
        }
    }

    /// Notes that the row was written and its version is unknown: it must be read before it is guessed again.
    pub(crate) fn wrote_anew(&self, key: &str) {
        if let Some(known) = self.place(key).as_mut().filter(|known| known.key == key) {
            known.guessed = true;
        }
    }

    /// Notes that a guess about the row was wrong.
    pub(crate) fn missed(&self, key: &str) {
        if let Some(known) = self.place(key).as_mut().filter(|known| known.key == key) {
            known.missed = true;
        }
    }

    /// Forgets all rows, after a connection has ended. The next one may lead to a server that has lost its last writes,
    /// and then a known version may be another client's.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| *locked(place) = None);
    }
}

fn locked(place: &Mutex<Option<Known>>) -> MutexGuard<'_, Option<Known>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the columns may not be enough: the name is shared, or there is a record.
fn columns_do_not_do(row: Option<&Row>) -> bool {
    row.is_some_and(|row| row.record.is_some() || row.mode.is_some() && row.claim.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(version: i64) -> Seen {
        let row = Row { version, record: Some(String::new()), ..Row::default() };
        Seen::new(Moment::now(), 1_000, 0, Some(row))
    }

    fn version(known: &KnownRows, key: &str) -> Option<i64> {
        known.guess(key, |_| true).and_then(|guess| guess.row).map(|row| row.version)
    }

    #[test]
    fn row_is_known_as_last_read_or_written() {
        let known = KnownRows::default();
        assert_eq!(version(&known, "a"), None);
        known.read("a", &seen(7));
        assert_eq!((version(&known, "b"), version(&known, "a")), (None, Some(7)));
        let shared = Row { mode: Some(String::new()), claim: Some(String::new()), ..Row::default() };
        known.read("a", &seen(7));
        known.wrote("a", &seen(7), &shared);
        assert_eq!(version(&known, "a"), Some(8));
        // One statement does without it.
        known.read("a", &seen(8));
        known.wrote("a", &seen(8), &Row::default());
        assert_eq!(version(&known, "a"), None);
        // A client that inserts a row does not learn its version.
        known.read("a", &seen(7));
        known.wrote("a", &Seen { row: None, ..seen(0) }, &shared);
        assert_eq!(version(&known, "a"), None);
        known.read("a", &seen(7));
        known.forget();
        assert_eq!(version(&known, "a"), None);
    }

    #[test]
    fn row_is_guessed_once_between_two_readings() {
        let known = KnownRows::default();
        known.read("a", &seen(7));
        assert!(known.guess("a", |_| false).is_none());
        assert_eq!((version(&known, "a"), version(&known, "a")), (Some(7), None));
        known.wrote("a", &seen(7), seen(7).row.as_ref().unwrap());
        assert_eq!(version(&known, "a"), None, "others had no moment to write it");
        known.read("a", &seen(8));
        known.wrote_anew("a");
        assert_eq!(version(&known, "a"), None, "it has another version now");
        known.read("a", &seen(8));
        assert_eq!(version(&known, "a"), Some(8));
    }

    #[test]
    fn contended_row_is_guessed_after_it_was_read_unchanged() {
        let known = KnownRows::default();
        known.read("a", &seen(7));
        known.missed("a");
        assert_eq!(version(&known, "a"), None);
        known.read("a", &seen(9));
        known.wrote("a", &seen(9), seen(9).row.as_ref().unwrap());
        assert_eq!(version(&known, "a"), None, "another may have changed it since");
        known.read("a", &seen(10));
        assert_eq!(version(&known, "a"), Some(10));
    }

    #[test]
    fn known_rows_are_limited() {
        let known = KnownRows::default();
        let keys = || (0..10 * u32::from(PLACES)).map(|number| number.to_string());
        keys().for_each(|key| known.read(&key, &seen(1)));
        let remembered = keys().filter(|key| known.guess(key, |_| true).is_some());
        assert!((1..=usize::from(PLACES)).contains(&remembered.count()));
    }

    /// A holder that counts from then gives up before the database lets others in, if its clock is faster by a hundredth.
    #[tokio::test(start_paused = true)]
    async fn known_row_ages() {
        let known = KnownRows::default();
        let first = seen(7);
        known.read("a", &first);
        tokio::time::advance(Duration::from_millis(500)).await;
        let guess = known.guess("a", |_| true).expect("it is known");
        assert!((1_500..1_510).contains(&guess.now), "{}", guess.now);
        let later = guess.sent.since(first.sent);
        assert!(later >= Duration::from_millis(495) && later < Duration::from_millis(500), "{later:?}");
        // Also if it is told only now.
        for told_late in [false, true] {
            let first = seen(8);
            if !told_late {
                known.read("a", &first);
            }
            tokio::time::advance(Duration::from_millis(1_001)).await;
            if told_late {
                known.read("a", &first);
            }
            assert!(known.guess("a", |_| true).is_none(), "it is too old");
        }
    }
}
