//! Those who wait for a name in fair mode, as its row has them.

use crate::{
    rows::span,
    shares::{ALONE, mode_of, take_of},
};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};
use tenure_core::{Mode, StoreError};

/// How long a waiter keeps its place without being heard of: how long dead ones can keep the others waiting, however many
/// they are. Less would cost a waiter its place whose process or whose server's disk stalls for a moment (half a
/// second was seen).
pub(crate) const LIVES: Duration = Duration::from_secs(3);
/// The longest time that a waiter lets pass without being heard of.
pub(crate) const SHOW_UP: Duration = Duration::from_secs(1);

/// The permits that a waiter wants, and those that there are, as its place in the queue has them.
pub(crate) fn place_of(mode: Mode) -> (i64, i64) {
    take_of(mode).unwrap_or((0, ALONE))
}

/// One of those who wait for a name: the value of its claim in the JSON object of the column `queue`.
///
/// Its members are named as those of a share, because who may come in is asked of holders and of waiters at once. Times are
/// microseconds since 1970 by the database's clock; `came` is only there to be greater than that of all who came before.
#[derive(Deserialize)]
struct Waiter {
    take: u32,
    of: i64,
    came: i64,
    until: i64,
}

/// The waiters of a name. One that is dead counts for nothing, and has its place back when it is heard of again before
/// anybody was served: whoever is granted the name removes the dead.
#[derive(Default)]
pub(crate) struct Queue(BTreeMap<String, Waiter>);

impl Queue {
    /// Reads the text of the column.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, StoreError> {
        match text {
            Some(text) => serde_json::from_str(text).map(Self).map_err(StoreError::failed),
            None => Ok(Self::default()),
        }
    }

    /// What those want who came before this claim, or all if it does not stand here, and for how long each keeps its place.
    /// `now` is the database's time in microseconds.
    pub(crate) fn before(&self, claim: &str, now: i64) -> Result<Vec<(Mode, Duration)>, StoreError> {
        let came = self.0.get(claim).map_or(i64::MAX, |waiter| waiter.came);
        let before = self.0.values().filter(|waiter| waiter.came < came && waiter.until >= now);
        before.map(|waiter| Ok((mode_of(waiter.take, waiter.of)?, waiter.rest(now)))).collect()
    }

    /// Whether this claim has to be heard of before it loses its place, or to be given one.
    pub(crate) fn wants_place(&self, claim: &str, now: i64) -> bool {
        let rest = self.0.get(claim).map_or(Duration::ZERO, |waiter| waiter.rest(now));
        rest + SHOW_UP <= LIVES
    }
}

impl Waiter {
    fn rest(&self, now: i64) -> Duration {
        // Rounded down, as the rests of leases are.
        span(self.until.saturating_sub(now).div_euclid(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    const NOW: i64 = 1_700_000_000_000_000;

    fn queue() -> Queue {
        let waiter = |take: i64, of: i64, came: i64, rest: i64| serde_json::json!({ "take": take, "of": of, "came": came, "until": NOW + rest });
        let text = serde_json::json!({
            "a": waiter(0, ALONE, 3, 2_500),
            "b": waiter(0, 0, 1, 2_900_000),
            "c": waiter(2, 5, 2, -1),
            "d": waiter(2, 5, 4, 0),
        });
        Queue::read(Some(&text.to_string())).unwrap()
    }

    #[test]
    fn who_came_before_is_known_and_the_dead_are_not_counted() {
        let before = |claim| queue().before(claim, NOW).unwrap();
        let (reader, writer) =
            ((Mode::Shared, Duration::from_millis(2900)), (Mode::Exclusive, Duration::from_millis(2)));
        assert_eq!(before("b"), []);
        assert_eq!(before("a"), [reader]);
        let mut those = before("d");
        those.sort_by_key(|(_, rest)| *rest);
        assert_eq!(those, [writer, reader]);
        assert_eq!(before("c"), [reader], "the dead one would have its place back");
        assert_eq!(before("e").len(), 3, "who has never come stands behind all");
        for (claim, wants) in [("a", true), ("b", false), ("c", true), ("e", true)] {
            assert_eq!(queue().wants_place(claim, NOW), wants, "{claim}");
        }
        assert!(Queue::read(None).unwrap().before("a", NOW).unwrap().is_empty());
        assert!(Queue::read(Some("{broken")).is_err());
    }

    #[test]
    fn what_is_wanted_is_what_is_read() {
        let two = Mode::Permit { take: NonZeroU32::new(2).unwrap(), of: NonZeroU32::new(5).unwrap() };
        for mode in [Mode::Exclusive, Mode::Shared, two] {
            let (take, of) = place_of(mode);
            assert_eq!(mode_of(u32::try_from(take).unwrap(), of).unwrap(), mode);
        }
    }
}
