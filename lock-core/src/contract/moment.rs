//! A monotonic clock that also counts while the machine sleeps.

#[cfg(target_vendor = "apple")]
use nix::libc;
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
use nix::time::ClockId;
use std::{ops::Add, time::Duration};
use tokio::time::Instant;

/// An instant on a clock that never goes back and, where the system allows, also counts the time that the machine was
/// asleep.
///
/// A lease expires on the server even while a laptop is closed or a host is suspended, but on many systems `Instant`
/// stops meanwhile. So a moment is tokio's instant plus the time spent asleep since boot. It still follows tokio's
/// paused time in tests. How clause L3 holds through a sleep:
///
/// | system | `Instant` | counts sleep | a moment |
/// |---|---|---|---|
/// | Linux, Android | `CLOCK_MONOTONIC` | `CLOCK_BOOTTIME` | adds the difference |
/// | macOS, iOS and their like | `CLOCK_UPTIME_RAW` | `CLOCK_MONOTONIC_RAW` | adds the difference |
/// | Windows | `QueryPerformanceCounter` | the same | is the instant |
/// | OpenBSD | `CLOCK_MONOTONIC` | the same | is the instant |
/// | FreeBSD, NetBSD and others | `CLOCK_MONOTONIC` | none known | **misses sleep** |
///
/// Only Linux is tested; the other rows follow the systems' manuals. Where sleep is missed, a guard may count as held
/// after its lease has expired, for as long as the machine was asleep: keep such machines awake, or check the fencing
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Instant);

impl Moment {
    /// Returns the current moment.
    #[must_use]
    pub fn now() -> Self {
        let (instant, asleep) = (Instant::now(), suspended());
        // The readings differ by some nanoseconds each time, which paused time must not.
        if asleep.is_zero() || Self::are_virtual() { Self(instant) } else { Self(instant + asleep) }
    }

    /// Returns whether moments are virtual here: tokio's time is paused, as in some tests.
    #[must_use]
    pub fn are_virtual() -> bool {
        let (instant, clock) = (Instant::now(), std::time::Instant::now());
        while std::time::Instant::now() == clock {
            std::hint::spin_loop();
        }
        Instant::now() == instant
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Returns the time from now to this moment; zero if it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.since(Self::now())
    }

    /// Returns whether this moment has come.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }

    /// Waits until this moment has come.
    ///
    /// Timers stop while the machine is suspended, so this checks the clock at least once a second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
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

/// A clock that counts the time asleep, and the clock of `Instant`.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCKS: (ClockId, ClockId) = (ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_MONOTONIC);
/// Not `CLOCK_MONOTONIC`: it counts sleep too, but its rate is adjusted, so the difference would drift.
#[cfg(target_vendor = "apple")]
const CLOCKS: (ClockId, ClockId) =
    (ClockId::from_raw(libc::CLOCK_MONOTONIC_RAW), ClockId::from_raw(libc::CLOCK_UPTIME_RAW));

/// How long the machine was asleep since it booted.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn suspended() -> Duration {
    // Systems that lack these clocks are older than any that Rust runs on.
    let read = |clock: ClockId| clock.now().map_or(Duration::ZERO, Duration::from);
    let (counting, awake) = CLOCKS;
    // The two clocks cannot be read at once. Reading the one that counts sleep first errs towards less sleep, by the
    // time between the two readings. An interrupted reading is repeated, because an error here would move a lease's
    // deadline.
    for _ in 0..8 {
        let before = read(awake);
        let all = read(counting);
        let after = read(awake);
        if after.saturating_sub(before) < Duration::from_micros(50) {
            return all.saturating_sub(after);
        }
    }
    read(counting).saturating_sub(read(awake))
}

/// Zero: `Instant` counts the time asleep, or no clock does.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn moment_detects_paused_time() {
        assert!(!Moment::are_virtual());
        tokio::time::pause();
        assert!(Moment::are_virtual());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(Moment::are_virtual());
        tokio::time::resume();
        assert!(!Moment::are_virtual());
    }

    /// Where the machine seems to have booted a day earlier, while `Instant` is the same: as after a day asleep.
    #[cfg(target_os = "linux")]
    #[test]
    fn moment_counts_time_asleep() {
        const BEFORE: &str = "TENURE_TEST_ASLEEP_BEFORE";
        const DAY: Duration = Duration::from_hours(24);
        let asleep = || Moment::now().0.saturating_duration_since(Instant::now()).as_secs_f64();
        if let Ok(before) = std::env::var(BEFORE) {
            let more = asleep() - before.parse::<f64>().unwrap();
            assert!((more - DAY.as_secs_f64()).abs() < 0.1, "{more} s");
            return;
        }
        let elsewhere = |program: &std::ffi::OsStr| {
            let mut command = std::process::Command::new("unshare");
            command
                .args(["--map-root-user", "--time", "--boottime", &DAY.as_secs().to_string()])
                .arg(program);
            command
        };
        let possible = elsewhere("true".as_ref()).output();
        if !possible.is_ok_and(|done| done.status.success()) {
            return skip("a test cannot have a clock of its own here (unshare --map-root-user --time)");
        }
        let mut there = elsewhere(std::env::current_exe().unwrap().as_os_str());
        there
            .args(["--exact", "contract::moment::tests::moment_counts_time_asleep"])
            .env(BEFORE, asleep().to_string());
        let there = there.output().unwrap();
        let said = String::from_utf8_lossy(&there.stdout);
        assert!(there.status.success() && said.contains("1 passed"), "{said}");
    }

    /// Does what `tenure_conformance::skip("namespaces", why)` does: that crate depends on this one.
    #[cfg(target_os = "linux")]
    fn skip(why: &str) {
        use std::{env::var, fs::File, io::Write};
        let excused = var("TENURE_TEST_WITHOUT").unwrap_or_default();
        let excused = excused.split(',').any(|name| name.trim() == "namespaces");
        assert!(
            excused || var("TENURE_TEST_REQUIRE").as_deref() != Ok("1"),
            "{why}, and TENURE_TEST_REQUIRE=1"
        );
        if let Ok(file) = var("TENURE_TEST_SKIPPED") {
            let mut list = File::options().append(true).create(true).open(file).unwrap();
            list.write_all(format!("namespaces: {why}\n").as_bytes()).unwrap();
        }
    }

    #[test]
    fn moment_never_goes_back() {
        let mut last = Moment::now();
        for _ in 0..100_000 {
            let now = Moment::now();
            // A machine may stand still for a while.
            assert!(now.since(last) < Duration::from_mins(5) && last.since(now) < Duration::from_micros(50));
            last = now;
        }
    }
}
