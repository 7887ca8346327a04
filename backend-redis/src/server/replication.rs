//! Grants that count only once replicas have them.

use crate::{
    connection::{
        dial::Dial,
        errors::Failure,
        link::{Answer, Connection, Link},
    },
    requests::{arguments::millis, replies::unexpected, script::Script},
};
use redis::{Cmd, Value};
use std::{sync::Arc, time::Duration};
use tenure_core::{Moment, PerRuntime, StoreError};
use tokio::sync::Mutex;

/// A connection for attempts, with a `WAIT` after those that were granted.
///
/// [`WAIT`](https://redis.io/docs/latest/commands/wait/) counts the replicas that have everything written on its own
/// connection, and blocks other requests on it. So attempts have their own connection, and releases and renewals
/// another. One answer counts for every attempt that was granted before the `WAIT` was sent: however many wait, each
/// waits for at most two.
pub(crate) struct Replication {
    link: Arc<Link>,
    wanted: u32,
    patience: Duration,
    last: PerRuntime<Mutex<Option<ReplicaCount>>>,
}

/// The answer to a `WAIT`.
struct ReplicaCount {
    /// On which connection, by its number.
    connection: u64,
    /// The instant before it was sent.
    asked: Moment,
    had: u32,
}

impl Replication {
    pub(crate) fn new(dial: Dial, wanted: u32) -> Self {
        // An attempt may have to wait behind one `WAIT`, and then for two more.
        let patience = (dial.response_timeout / 4).max(Duration::from_millis(1));
        Self { link: Arc::new(Link::new(dial)), wanted, patience, last: PerRuntime::new() }
    }

    /// Makes an attempt.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.link.run(script, call, about).await
    }

    /// Returns how many replicas have the writes of requests already answered on that connection. Waits a while for as
    /// many as are wanted.
    pub(crate) async fn count(&self, connection: Connection) -> Result<u32, StoreError> {
        let answered = Moment::now();
        let (link, last) = (Arc::clone(&self.link), self.last.get(Mutex::default));
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.wanted).arg(millis(self.patience));
        // In a task, so that a caller that is not polled does not hold up the others.
        let counting = tokio::spawn(async move {
            let mut last = last.lock().await;
            if let Some(count) = &*last
                && count.connection == connection.number
                && count.asked >= answered
            {
                return Ok(count.had);
            }
            let Answer { value, sent, .. } = link.ask_on(&connection, &wait).await?;
            let had = acknowledged(&value)?;
            *last = Some(ReplicaCount { connection: connection.number, asked: sent, had });
            Ok::<_, StoreError>(had)
        });
        let ended = |_| StoreError::unavailable("the runtime ended while replicas were counted");
        counting.await.map_err(ended)?
    }

    /// An error unless this many are enough.
    pub(crate) fn judge(&self, had: u32, what: &str, then: &str) -> Result<(), StoreError> {
        let Self { link, wanted, patience, .. } = self;
        if had >= *wanted {
            return Ok(());
        }
        Err(StoreError::unavailable(format!(
            "{had} of {wanted} replicas confirmed {what} within {patience:?}, so {then}; check the replicas of {}, or \
             require fewer (replicas=)",
            link.dial().server_name().address
        )))
    }

    pub(crate) fn disconnect(&self) {
        self.link.disconnect();
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
