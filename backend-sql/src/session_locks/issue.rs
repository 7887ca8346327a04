//! The token of a grant in a session, and when it may be handed out.

use std::time::Duration;
use tenure_core::{Moment, StoreError, Token, lease};

/// The server's answer once it has locked the row, in the same round trip. Until the transaction ends, no other claim
/// gets a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    /// The last noted token, if any.
    pub(crate) last: Option<i64>,
    /// The server's time, in microseconds since 1970.
    pub(crate) now: i64,
    /// How long before that the transaction began, by the same clock, in microseconds.
    pub(crate) after: i64,
    /// Whether the server would accept a note. A read-only one, for instance after a failover, does not.
    pub(crate) writable: bool,
}

impl Issue {
    /// A token that the server has already recorded as the last one.
    #[cfg(feature = "postgres")]
    pub(crate) fn drawn(token: i64, after: i64) -> Self {
        Self { last: Some(token - 1), now: token, after, writable: true }
    }

    /// The token: one more than the last, or the server's time if that is greater.
    pub(crate) fn token(&self) -> Result<Token, StoreError> {
        let next = self.last.map_or(0, |last| last.saturating_add(1));
        Token::try_from(self.now.max(next)).map_err(StoreError::failed)
    }

    /// Whether the next token will be greater even if this one is never noted, because it is the server's time. Then it
    /// may be handed out while its note is on its way.
    ///
    /// The first token of a name is noted first, so that the caller learns of anything that keeps this client from
    /// writing notes.
    pub(crate) fn goes_ahead(&self) -> bool {
        self.writable && self.last.is_some_and(|last| last < self.now)
    }

    /// The earliest moment at which the row was locked. A waiter sent its request long before, and the answer may have
    /// been on its way for long, so this goes by the time since the beginning on the server's clock. `sent` is the
    /// instant before the request was sent, and the answer if the clock was set meanwhile.
    pub(crate) fn locked_at(&self, sent: Moment) -> Moment {
        // Negative if the clock was set back.
        let after = Duration::from_micros(u64::try_from(self.after).unwrap_or(0));
        let passed = Moment::now().since(sent);
        if after > passed + lease::drift_allowance(passed) { sent } else { sent + after.min(passed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(last: impl Into<Option<i64>>, now: i64) -> Issue {
        Issue { last: last.into(), now, after: 0, writable: true }
    }

    #[test]
    fn token_follows_the_clock_and_the_last_token() {
        for (last, now, token) in [(None, 7, 7), (Some(3), 7, 7), (Some(7), 7, 8), (Some(9), 7, 10)] {
            assert_eq!(issue(last, now).token().unwrap().as_i64(), token, "{last:?} {now}");
        }
    }

    #[test]
    fn grant_goes_ahead_of_its_note_only_with_a_clock_token() {
        assert!(issue(6, 7).goes_ahead());
        for held_back in [issue(None, 7), issue(7, 7), issue(8, 7), Issue { writable: false, ..issue(6, 7) }]
        {
            assert!(!held_back.goes_ahead(), "{held_back:?}");
        }
    }

    #[test]
    fn lock_time_follows_the_servers_clock() {
        let sent = Moment::now();
        let locked = |after| Issue { after, ..issue(1, 1_000_000) }.locked_at(sent);
        assert_eq!(locked(0).since(sent), Duration::ZERO);
        // The clock was set back.
        assert_eq!(locked(-1_000_000).since(sent), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(locked(700).since(sent), Duration::from_micros(700));
        // It was set ahead.
        assert_eq!(locked(8_999_000_000).since(sent), Duration::ZERO);
    }
}
