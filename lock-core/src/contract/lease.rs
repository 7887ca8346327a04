//! Lease arithmetic: one place for every duration that exclusion depends on.

use crate::contract::{Error, Moment};
use std::time::Duration;

/// The default lease: 30 s.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The shortest lease: 100 ms. Network and scheduler delays would use up a shorter one.
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest lease, wait or hold: 365 days. Every store can represent it.
pub const MAX_LEASE: Duration = Duration::from_hours(365 * 24);

/// The least time for a request that is worth waiting for.
const A_SECOND: Duration = Duration::from_secs(1);

/// Checks that a duration is valid for an option, before any store is asked (clause B2).
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
/// assert_eq!(error.to_string(), "invalid lease: 0ns; expected 100ms to 31536000s (365 days)");
/// ```
pub fn check(option: &'static str, given: Duration, least: Duration) -> Result<Duration, Error> {
    if given >= least && given <= MAX_LEASE {
        return Ok(given);
    }
    Err(Error::invalid_option(option, format!("{given:?}"), format!("{least:?} to {MAX_LEASE:?} (365 days)")))
}

/// How much a holder deducts from its lease because its clock and the store's may run at different rates: 1 % plus 2
/// ms.
///
/// The figures come from the description of Redlock, [Distributed Locks with
/// Redis](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
#[must_use]
pub fn drift_allowance(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Returns until when a holder may rely on a grant that it asked for at `sent` (clause L3).
///
/// `sent` is the instant *before* the request was sent: the store's lease starts no earlier.
#[must_use]
pub fn deadline(sent: Moment, lease: Duration) -> Moment {
    sent + lease.saturating_sub(drift_allowance(lease))
}

/// Returns how long after a successful request the next renewal is due (clause L4).
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

/// How long one request may take that gives up a lease of which nothing is left at `end`, or that changes its mode: no
/// longer than that, but a second in any case. A distant server may need that long, however short the lease.
pub(crate) fn farewell_patience(lease: Duration, end: Moment) -> Duration {
    renewal_patience(lease).clamp(A_SECOND, end.left().max(A_SECOND))
}

/// Like [`farewell_patience`] in a session that lasts until `end` at least: there the lease says nothing. It is a part
/// of the time left, because a request may be lost with its connection, and another then learns how the grant ended.
pub(crate) fn session_patience(end: Moment) -> Duration {
    (end.left() / 6).max(A_SECOND)
}

/// How soon after a failed renewal the next one is sent: so soon that a connection that was found broken, and replaced,
/// is not idle for long.
pub(crate) fn renewal_retry(lease: Duration) -> Duration {
    (renewal_period(lease) / 8).min(Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn deadline_is_before_the_lease_ends_in_the_store(millis in 100_u64..=31_536_000_000) {
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
