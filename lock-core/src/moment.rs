//! A monotonic clock that goes on while the machine sleeps.

use std::{ops::Add, time::Duration};
use tokio::time::Instant;

/// An instant on a clock that never goes back and, where the system tells, also counts the time a machine was asleep.
///
/// A lease runs out on the server while a laptop is shut or a host is suspended; `Instant` stands still meanwhile on
/// Linux (`CLOCK_MONOTONIC`). So a moment is tokio's instant plus the time spent suspended since boot
/// (`CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`, see `clock_gettime(2)`), and it still follows tokio's paused time in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Instant);

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now() + suspended())
    }

    /// The time from `earlier` to this moment; zero when `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The time from now to this moment; zero when it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.since(Self::now())
    }

    /// Whether this moment has come.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }

    /// Waits until this moment has come.
    ///
    /// Timers stand still while the machine is suspended, so it looks again at least once a second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it has no effect but the passing of time.
    pub async fn reached(self) {
        const LONGEST_NAP: Duration = Duration::from_secs(1);
        loop {
            match self.left() {
                Duration::ZERO => return,
                left => tokio::time::sleep(left.min(LONGEST_NAP)).await,
            }
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0 + span)
    }
}

/// How long the machine was asleep since it booted.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // The two clocks cannot be read at once. Reading boot time first errs towards less sleep by the time between the
    // two readings, and a reading that was interrupted is repeated: an error here would move a lease's deadline.
    for _ in 0..8 {
        let before = read(ClockId::Monotonic);
        let boot = read(ClockId::Boottime);
        let after = read(ClockId::Monotonic);
        if after.saturating_sub(before) < Duration::from_micros(50) {
            return boot.saturating_sub(after);
        }
    }
    read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
}

#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_paused_time() {
        let start = Moment::now();
        (start + Duration::from_secs(90)).reached().await;
        let passed = Moment::now().since(start);
        assert!(passed >= Duration::from_secs(90) && passed < Duration::from_secs(91), "{passed:?}");
    }

    #[test]
    fn never_goes_back() {
        let mut last = Moment::now();
        for _ in 0..100_000 {
            let now = Moment::now();
            assert!(now.since(last) < Duration::from_secs(1) && last.since(now) < Duration::from_micros(50));
            last = now;
        }
    }
}
