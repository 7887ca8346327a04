//! How long a server may take over one statement.

use std::time::Duration;

/// The time limits that a server gets: a little less than the client waits for an answer. So the server gives up first,
/// the connection stays usable, and no abandoned statement waits in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// For each lock that a statement waits for. Less than for the whole statement, so that the server's error names
    /// the cause.
    pub(crate) lock: Duration,
    /// For the whole statement.
    pub(crate) statement: Duration,
}

impl Patience {
    /// For a client that waits this long.
    pub(crate) fn of(response_timeout: Duration) -> Self {
        Self { lock: response_timeout * 4 / 5, statement: response_timeout * 9 / 10 }
    }
}

/// In whole milliseconds. Never 0, which means for ever.
#[cfg(feature = "postgres")]
pub(crate) fn in_millis(span: Duration) -> i64 {
    crate::values::millis(span).max(1)
}

/// In whole seconds, rounded down. Never 0.
#[cfg(feature = "mysql")]
pub(crate) fn in_seconds(span: Duration) -> u64 {
    span.as_secs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_gives_up_first() {
        for response in [Duration::from_millis(10), Duration::from_secs(5), Duration::from_mins(10)] {
            let Patience { lock, statement } = Patience::of(response);
            assert!(lock < statement && statement < response, "{response:?}");
        }
    }

    #[cfg(all(feature = "postgres", feature = "mysql"))]
    #[test]
    fn timeout_is_never_rounded_to_zero() {
        let Patience { lock, .. } = Patience::of(Duration::from_millis(1));
        assert_eq!((in_millis(lock), in_seconds(lock)), (1, 1));
        assert_eq!((in_millis(Duration::ZERO), in_seconds(Duration::from_millis(4800))), (1, 4));
    }
}
