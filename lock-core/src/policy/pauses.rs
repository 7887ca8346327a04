//! Pauses between attempts after the store failed.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// Growing, jittered pauses from 50 ms to 2 s, without end: the caller sets the limit.
pub(crate) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(crate) fn new() -> Self {
        let growing = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(25))
            .with_max_delay(Duration::from_secs(1))
            .with_jitter()
            .without_max_times();
        Self(growing.build())
    }

    pub(crate) async fn pause(&mut self) {
        let longest = Duration::from_secs(1);
        tokio::time::sleep(self.0.next().unwrap_or(longest)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_between_clients() {
        let pauses = || Pauses::new().0.take(20).collect::<Vec<_>>();
        assert_ne!(pauses(), pauses());
    }
}
