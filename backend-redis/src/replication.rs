//! Grants that count only once replicas have them.

use crate::{
    dial::Dial,
    errors::Failure,
    replies,
    script::Script,
    server::{Answer, Server},
};
use redis::Cmd;
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
    server: Server,
    wanted: u32,
    patience: Duration,
    last: PerRuntime<Mutex<Option<Count>>>,
}

/// What was answered to a `WAIT`.
struct Count {
    /// On which connection.
    line: u64,
    /// The instant before it was sent.
    asked: Moment,
    had: u32,
}

impl Replication {
    pub(crate) fn new(dial: Dial, wanted: u32) -> Self {
        // The attempt may have to stand behind one, and then wait for two.
        let patience = (dial.response_timeout / 4).max(Duration::from_millis(1));
        Self { server: Server::new(dial), wanted, patience, last: PerRuntime::new() }
    }

    /// Makes an attempt.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.server.run(script, call, about).await
    }

    /// How many replicas have what was written by a request that was answered on `line` before now. Waits for as many
    /// as are wanted, for a while.
    pub(crate) async fn count(&self, line: u64) -> Result<u32, StoreError> {
        let answered = Moment::now();
        let last = self.last.get(Mutex::default);
        let mut last = last.lock().await;
        if let Some(count) = &*last
            && count.line == line
            && count.asked >= answered
        {
            return Ok(count.had);
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.wanted).arg(millis(self.patience));
        let Answer { value, sent, .. } = self.server.ask_on(line, &wait).await?;
        let had = replies::acknowledged(&value)?;
        *last = Some(Count { line, asked: sent, had });
        Ok(had)
    }

    /// Whether so many are enough.
    pub(crate) fn judge(&self, had: u32, what: &str) -> Result<(), StoreError> {
        let Self { server, wanted, patience, .. } = self;
        if had >= *wanted {
            return Ok(());
        }
        Err(StoreError::unavailable(format!(
            "{had} of {wanted} replicas had {what} within {patience:?}; see to the replicas of \
             {}, or ask for fewer (replicas=)",
            server.dial().place().address
        )))
    }

    pub(crate) fn disconnect(&self) {
        self.server.disconnect();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
