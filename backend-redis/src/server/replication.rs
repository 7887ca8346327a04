//! Grants that count only once replicas have them.

use crate::{
    connection::{
        dial::Dial,
        errors::Failure,
        lane::{Answer, Lane},
    },
    requests::{arguments::millis, replies::unexpected, script::Script},
};
use redis::{Cmd, Value};
use std::time::Duration;
use tenure_core::{Moment, PerRuntime, StoreError};
use tokio::sync::Mutex;

/// A connection for attempts, on which `WAIT` is asked after those that were granted.
///
/// [`WAIT`](https://redis.io/docs/latest/commands/wait/) counts the replicas that have all that its own connection wrote,
/// and holds up whatever else is asked on it. So attempts have a connection to themselves, and releases and renewals
/// another. One answer counts for every attempt that was granted before it was asked for: however many wait, each waits
/// for two at most.
pub(crate) struct Replication {
    lane: Lane,
    wanted: u32,
    patience: Duration,
    last: PerRuntime<Mutex<Option<ReplicaCount>>>,
}

/// What was answered to a `WAIT`.
struct ReplicaCount {
    /// On which connection.
    connection: u64,
    /// The instant before it was sent.
    asked: Moment,
    had: u32,
}

impl Replication {
    pub(crate) fn new(dial: Dial, wanted: u32) -> Self {
        // The attempt may have to stand behind one, and then wait for two.
        let patience = (dial.response_timeout / 4).max(Duration::from_millis(1));
        Self { lane: Lane::new(dial), wanted, patience, last: PerRuntime::new() }
    }

    /// Makes an attempt.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.lane.run(script, call, about).await
    }

    /// How many replicas have what was written by a request that was answered on that connection before now. Waits for as many
    /// as are wanted, for a while.
    pub(crate) async fn count(&self, connection: u64) -> Result<u32, StoreError> {
        let answered = Moment::now();
        let last = self.last.get(Mutex::default);
        let mut last = last.lock().await;
        if let Some(count) = &*last
            && count.connection == connection
            && count.asked >= answered
        {
            return Ok(count.had);
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.wanted).arg(millis(self.patience));
        let Answer { value, sent, .. } = self.lane.ask_on(connection, &wait).await?;
        let had = acknowledged(&value)?;
        *last = Some(ReplicaCount { connection, asked: sent, had });
        Ok(had)
    }

    /// Whether so many are enough.
    pub(crate) fn judge(&self, had: u32, what: &str) -> Result<(), StoreError> {
        let Self { lane, wanted, patience, .. } = self;
        if had >= *wanted {
            return Ok(());
        }
        Err(StoreError::unavailable(format!(
            "{had} of {wanted} replicas had {what} within {patience:?}; see to the replicas of \
             {}, or ask for fewer (replicas=)",
            lane.dial().server_name().address
        )))
    }

    pub(crate) fn disconnect(&self) {
        self.lane.disconnect();
    }
}

/// How many replicas have acknowledged.
fn acknowledged(value: &Value) -> Result<u32, StoreError> {
    match value {
        Value::Int(count) => u32::try_from(*count).map_err(|_| unexpected(value)),
        value => Err(unexpected(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::replies::any;

    proptest::proptest! {
        #[test]
        fn only_a_number_counts_replicas(value in any::value()) {
            let is_count = matches!(value, Value::Int(count) if u32::try_from(count).is_ok());
            proptest::prop_assert_eq!(acknowledged(&value).is_ok(), is_count);
        }
    }
}
