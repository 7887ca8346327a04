//! The store's clock.

use serde::{Deserialize, Serialize};
use std::{
    ops::Add,
    time::{Duration, SystemTime},
};

/// An instant of a store's own clock, in microseconds since 1970 as that store counts them.
///
/// Leases expire by it (clause L2). It is never compared with a client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreTime(u64);

impl StoreTime {
    /// The instant this many microseconds after the beginning of 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The microseconds since the beginning of 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Rounded up to whole microseconds, so that no lease ends early.
impl Add<Duration> for StoreTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl From<SystemTime> for StoreTime {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// At most the end of the year 9999, because calendars show nothing later.
impl From<StoreTime> for SystemTime {
    fn from(time: StoreTime) -> Self {
        const LAST: u64 = 253_402_300_799_999_999;
        Self::UNIX_EPOCH + Duration::from_micros(time.0.min(LAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_time_rounds_up_and_never_overflows() {
        let start = StoreTime::from_micros(5);
        assert_eq!(start + Duration::from_nanos(1), StoreTime::from_micros(6));
        assert_eq!(start + Duration::MAX, StoreTime::from_micros(u64::MAX));
        assert_eq!(start.since(start + Duration::from_secs(1)), Duration::ZERO);
        let last: SystemTime = StoreTime::from_micros(u64::MAX).into();
        assert_eq!(StoreTime::from(last).as_micros(), 253_402_300_799_999_999);
    }
}
