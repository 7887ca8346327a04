//! The times that waiters, scripts and marks must agree on, and the pauses that follow from them.
//!
//! A time that only one file knows, like the pause before it connects again, is named there.

use std::time::Duration;

/// The shortest and the longest time that a waiter lets pass without asking again, unless it is told to.
pub(crate) const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(1200), Duration::from_millis(1800));
/// How often a waiter in a queue shows up there.
pub(crate) const SHOW_UP: Duration = Duration::from_secs(1);
/// How long a waiter in a queue that was not heard of counts as alive. It shows up every [`SHOW_UP`].
pub(crate) const LIVES: Duration = Duration::from_millis(2500);
/// How long a lock stands that was handed over, until its new holder has renewed it for the first time: how long a dead
/// waiter can keep the others waiting.
pub(crate) const STANDS: Duration = Duration::from_millis(900);
/// How long one who waits to have a lock alone stops newcomers without being heard of: it asks again before, at the latest
/// after [`ASK_AGAIN`].
pub(crate) const STOPS: Duration = Duration::from_millis(2500);
/// How long a straggler may be on its way: then its mark in the store goes, and what is known of it here.
pub(crate) const LONGEST_STRAGGLER: Duration = Duration::from_mins(2);

/// How long a waiter lets pass without being told anything: until the lease is over, or for a while.
pub(crate) fn pause(expires_in: Option<Duration>) -> Duration {
    let (least, most) = ASK_AGAIN;
    let pause = least + most.saturating_sub(least).mul_f64(fastrand::f64());
    expires_in.map_or(pause, |left| pause.min(soon_after(left)))
}

/// How long a waiter in a queue lets pass before it shows up again.
pub(crate) fn show_up(expires_in: Option<Duration>) -> Duration {
    expires_in.map_or(SHOW_UP, |left| SHOW_UP.min(soon_after(left)))
}

/// One millisecond more, because leases are counted in milliseconds.
pub(crate) fn soon_after(end: Duration) -> Duration {
    end + Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_asks_at_the_latest_when_the_lease_is_over() {
        for left in [None, Some(Duration::from_secs(30))] {
            let pause = pause(left);
            assert!(pause >= ASK_AGAIN.0 && pause <= ASK_AGAIN.1, "{pause:?}");
            assert_eq!(show_up(left), SHOW_UP);
        }
        assert_eq!(pause(Some(Duration::from_millis(20))), Duration::from_millis(21));
        assert_eq!(show_up(Some(Duration::from_millis(20))), Duration::from_millis(21));
    }
}
