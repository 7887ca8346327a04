//! The times that waiters, scripts and marks must agree on, and the pauses that follow from them.
//!
//! A time that only one file uses, such as the pause before it reconnects, is defined there.

use std::time::Duration;

/// The shortest and the longest pause of a waiter before it asks again without a hint.
pub(crate) const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(1200), Duration::from_millis(1800));
/// How often a waiter shows up in its queue.
pub(crate) const SHOW_UP: Duration = Duration::from_secs(1);
/// How long a waiter in a queue counts as alive without showing up, which it does every [`SHOW_UP`].
pub(crate) const LIVES: Duration = Duration::from_millis(2500);
/// How long a lock that was handed over lasts until its new holder's first renewal: a dead waiter can keep others
/// waiting for this long.
pub(crate) const STANDS: Duration = Duration::from_millis(900);
/// How long a waiter for exclusive mode stops newcomers after it was last heard of. It asks again earlier, at the
/// latest after [`ASK_AGAIN`].
pub(crate) const STOPS: Duration = Duration::from_millis(2500);
/// How long a straggler may be on its way. After that, its mark in the store and the client's knowledge of it are
/// dropped.
pub(crate) const LONGEST_STRAGGLER: Duration = Duration::from_mins(2);

/// How long a waiter pauses without a hint: until the lease expires, or for a while.
pub(crate) fn pause(expires_in: Option<Duration>) -> Duration {
    let (least, most) = ASK_AGAIN;
    let pause = least + most.saturating_sub(least).mul_f64(fastrand::f64());
    expires_in.map_or(pause, |left| pause.min(soon_after(left)))
}

/// How long a waiter in a queue pauses before it shows up again.
pub(crate) fn show_up(expires_in: Option<Duration>) -> Duration {
    expires_in.map_or(SHOW_UP, |left| SHOW_UP.min(soon_after(left)))
}

/// Adds one millisecond, because leases are counted in milliseconds.
pub(crate) fn soon_after(end: Duration) -> Duration {
    end + Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_asks_at_the_latest_when_the_lease_ends() {
        for left in [None, Some(Duration::from_secs(30))] {
            let pause = pause(left);
            assert!(pause >= ASK_AGAIN.0 && pause <= ASK_AGAIN.1, "{pause:?}");
            assert_eq!(show_up(left), SHOW_UP);
        }
        assert_eq!(pause(Some(Duration::from_millis(20))), Duration::from_millis(21));
        assert_eq!(show_up(Some(Duration::from_millis(20))), Duration::from_millis(21));
    }
}
