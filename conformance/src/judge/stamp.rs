//! Instants that processes of one machine agree on.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    ops::{Add, Sub},
    sync::LazyLock,
    time::{Duration, Instant},
};
use tenure_core::Moment;

/// An instant, in nanoseconds since the machine was booted: the same clock for all its processes, which is what lets
/// their notes be merged. It never goes back, and on Linux it goes on while the machine is asleep
/// (`CLOCK_BOOTTIME`; elsewhere `CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// When the machine was booted.
    pub const ZERO: Self = Self(0);
    /// Later than every instant.
    pub const NEVER: Self = Self(u64::MAX);

    /// Now. In virtual time, an instant of this process plus the time that tokio's clock has counted since.
    #[must_use]
    pub fn now() -> Self {
        static ANCHOR: LazyLock<(Stamp, Instant)> =
            LazyLock::new(|| (Stamp::of_the_machine(), Instant::now()));
        if !Moment::are_virtual() {
            return Self::of_the_machine();
        }
        let (stamp, instant) = *ANCHOR;
        let now = tokio::time::Instant::now().into_std();
        stamp + now.saturating_duration_since(instant) - instant.saturating_duration_since(now)
    }

    fn of_the_machine() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        Self::ZERO + Duration::try_from(clock_gettime(clock)).unwrap_or_default()
    }

    /// When `moment` is, to within the time between two readings of the clock, and never later than it is.
    #[must_use]
    pub fn of(moment: Moment) -> Self {
        let (now, here) = (Self::now(), Moment::now());
        now + moment.since(here) - here.since(moment)
    }

    /// The nanoseconds since the machine was booted.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero when `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Stamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Stamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A time relative to `zero`, for people: `+12.3 ms`, `-1.204 s`.
pub(super) struct Relative {
    pub(super) at: Stamp,
    pub(super) zero: Stamp,
}

impl fmt::Display for Relative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.at < self.zero { '-' } else { '+' };
        let span = self.at.since(self.zero).max(self.zero.since(self.at));
        f.pad(&format!("{sign}{}", Span(span)))
    }
}

/// A duration for people: `12.3 ms`, `1.204 s`.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            short if short < Duration::from_secs(1) => {
                format!("{}.{} ms", short.as_millis(), short.as_micros() / 100 % 10)
            }
            long => format!("{}.{:03} s", long.as_secs(), long.subsec_millis()),
        };
        f.pad(&text)
    }
}
