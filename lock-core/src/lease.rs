//! Lease arithmetic: one place for every duration that exclusion depends on.

use crate::{Error, Moment};
use std::time::Duration;

/// The lease that a lock has when nobody chose one: 30 s.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The shortest lease: 100 ms. A shorter one would be eaten by the network and the scheduler.
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest lease, wait or hold: 365 days. Every store can count that far.
pub const MAX_LEASE: Duration = Duration::from_hours(365 * 24);

/// Refuses a duration that an option cannot have, before any store is asked (clause B2).
///
/// # Errors
///
/// [`Error::InvalidOption`] unless `given` is from `least` to [`MAX_LEASE`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_core::lease;
///
/// let error = lease::check("lease", Duration::ZERO, lease::MIN_LEASE).unwrap_err();
/// assert_eq!(error.to_string(), "0ns is no value for lease: 100ms to 31536000s (365 days)");
/// ```
pub fn check(option: &'static str, given: Duration, least: Duration) -> Result<Duration, Error> {
    if given >= least && given <= MAX_LEASE {
        return Ok(given);
    }
    Err(Error::invalid_option(option, format!("{given:?}"), format!("{least:?} to {MAX_LEASE:?} (365 days)")))
}

/// What a holder takes off its lease because its clock and the store's may run at different rates: 1 % and 2 ms.
///
/// The figure is the one of the Redlock description, [Distributed Locks with Redis](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
#[must_use]
pub fn drift_allowance(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when a holder may believe in a grant that it asked for at `sent` (clause L3).
///
/// `sent` is the instant *before* the request left: the store's lease starts at the earliest then.
#[must_use]
pub fn deadline(sent: Moment, lease: Duration) -> Moment {
    sent + lease.saturating_sub(drift_allowance(lease))
}

/// How long after a successful request the next renewal is due (clause L4).
#[must_use]
pub fn renewal_period(lease: Duration) -> Duration {
    lease / 3
}

/// How much earlier than due a renewal may go, to share a batch with others.
pub(crate) fn renewal_slack(lease: Duration) -> Duration {
    renewal_period(lease) / 10
}

/// How long one renewal request may take before another one is sent.
pub(crate) fn renewal_patience(lease: Duration) -> Duration {
    renewal_period(lease) / 2
}

/// How soon after a failed renewal the next one is sent.
pub(crate) fn renewal_retry(lease: Duration) -> Duration {
    renewal_period(lease) / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_holder_gives_up_before_the_store(millis in 100_u64..=31_536_000_000) {
            let lease = Duration::from_millis(millis);
            let sent = Moment::now();
            prop_assert!(deadline(sent, lease) < sent + lease);
            prop_assert!(deadline(sent, lease) > sent);
        }

        #[test]
        fn several_renewals_fit_before_the_deadline(millis in 100_u64..=31_536_000_000) {
            let lease = Duration::from_millis(millis);
            let worst = renewal_period(lease) + renewal_patience(lease) * 2;
            prop_assert!(Moment::now() + worst < deadline(Moment::now(), lease));
        }
    }
}
