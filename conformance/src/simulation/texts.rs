//! A store of texts on the server, which tells no time but dates what is written.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::record::{DatedClock, StoreTime};

/// The longest time that a client takes to write a text and read its date.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A client may count on from a date for so long, and so notice late that the clock was set.
pub(super) const NOTICED: Duration = Duration::from_secs(16);

/// How exact the dates are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dates {
    /// They are cut to multiples of this.
    pub(super) resolution: Duration,
    /// How far the clocks of the server's two front ends differ.
    pub(super) skew: Duration,
}

impl Dates {
    /// Those of an object store, or those of a store that dates in microseconds by one clock.
    pub(super) fn of(seed: Option<u64>) -> Self {
        match seed {
            Some(seed) if seed % 8 < 4 => {
                Self { resolution: Duration::from_secs(1), skew: Duration::from_millis(300) }
            }
            _ => Self { resolution: Duration::from_micros(1), skew: Duration::ZERO },
        }
    }

    /// The clock of a client that allows for so much more skew than there is.
    pub(super) fn clock(self, more: Duration) -> DatedClock<u64> {
        DatedClock::new(self.resolution, self.skew + more, ROUND_TRIP)
    }
}

/// The texts on the server.
#[derive(Debug, Default)]
pub(super) struct Texts(Mutex<Table>);

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Not forgotten with the texts.
    last_version: u64,
    pub(super) texts: BTreeMap<String, Dated>,
}

/// A text, its version, and that version's date.
#[derive(Clone, Debug)]
pub(super) struct Dated {
    pub(super) text: String,
    pub(super) version: u64,
    pub(super) date: StoreTime,
}

impl Texts {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wipe(&self) {
        self.table().texts.clear();
    }
}

impl Table {
    /// Writes a text, and dates it by the clock of one front end or the other. Returns its version.
    pub(super) fn write(&mut self, key: String, text: String, now: StoreTime, dates: Dates) -> u64 {
        self.last_version += 1;
        let ahead = if self.last_version.is_multiple_of(2) { dates.skew } else { Duration::ZERO };
        let (now, unit) = ((now + ahead).as_micros(), StoreTime::from_micros(0) + dates.resolution);
        let date = StoreTime::from_micros(now - now % unit.as_micros());
        self.texts.insert(key, Dated { text, version: self.last_version, date });
        self.last_version
    }

    pub(super) fn swap(
        &mut self,
        key: String,
        from: u64,
        to: Option<String>,
        now: StoreTime,
        dates: Dates,
    ) -> Option<u64> {
        if self.texts.get(&key).map_or(0, |dated| dated.version) != from {
            return None;
        }
        let Some(text) = to else {
            self.texts.remove(&key);
            return Some(0);
        };
        Some(self.write(key, text, now, dates))
    }
}
