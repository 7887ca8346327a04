//! All the servers, asked at once.

use super::{
    options::CheckedRedlockOptions,
    pending::{LastEnding, PendingEnding},
    quorum::Quorum,
    voter::{End, Voter},
};
use crate::connection::errors::Failure;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Background, ClaimId, Name};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

/// The pauses between attempts to tell a server that a hold has ended: from the first, growing to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Independent servers, of which a majority decides.
pub(crate) struct Voters {
    pub(crate) all: Vec<Arc<Voter>>,
    pub(crate) quorum: Quorum,
    node_timeout: Duration,
    attempts: AtomicU64,
    /// Endings that servers have not confirmed yet.
    endings: TaskTracker,
    pub(crate) background: Background,
}

/// The servers' answers as they come, each with the server's index.
pub(crate) struct Answers<T> {
    receiver: mpsc::UnboundedReceiver<(usize, T)>,
    until: Instant,
}

impl<T> Answers<T> {
    /// Waits for the next answer; `None` when all have come, or time is up.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        timeout_at(self.until, self.receiver.recv()).await.ok().flatten()
    }
}

impl Voters {
    pub(crate) fn new(
        CheckedRedlockOptions { voters, node_timeout, background }: CheckedRedlockOptions,
    ) -> Self {
        let quorum = Quorum { servers: voters.len() };
        let all = voters.into_iter().map(Arc::new).collect();
        let (attempts, endings) = (AtomicU64::new(0), TaskTracker::new());
        Self { all, quorum, node_timeout, attempts, endings, background }
    }

    /// How long to wait for an answer about a claim with this lease.
    pub(crate) fn patience(&self, lease: Duration) -> Duration {
        self.node_timeout.min(lease)
    }

    /// A number greater than those of all earlier attempts.
    pub(crate) fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks every server at once, each in a separate task that ends with the server's own timeouts: the caller may have
    /// enough answers earlier.
    pub(crate) fn each<T, F>(&self, patience: Duration, request: impl Fn(Arc<Voter>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        for (place, voter) in self.all.iter().enumerate() {
            let (sender, answer) = (sender.clone(), request(Arc::clone(voter)));
            tokio::spawn(async move {
                // The caller may no longer be interested.
                let _ = sender.send((place, answer.await));
            });
        }
        Answers { receiver, until: Instant::now() + patience }
    }

    /// Tells these servers to end all that a claim's attempts up to this one have there, or may still get. A server
    /// that does not confirm is told again in the background, until the lease has expired there.
    pub(crate) fn end(&self, ending: &Ending, places: impl IntoIterator<Item = usize>) -> Answers<Ended> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for place in places {
            let (voter, sender, ending) = (Arc::clone(&self.all[place]), sender.clone(), ending.clone());
            let (endings, background) = (self.endings.clone(), self.background.clone());
            self.endings.spawn(async move {
                let answer = voter.end(&ending.name, ending.claim, ending.attempt).await;
                let again = answer.as_ref().is_err_and(|silence| silence.error.is_unavailable());
                let _ = sender.send((place, answer));
                if again && let Some(pending) = voter.pending.add(ending.claim, ending.attempt, ending.lease)
                {
                    let insisting = async move { ending.insist(&voter, pending).await };
                    endings.spawn_on(insisting, &background.handle());
                }
            });
        }
        Answers { receiver, until: Instant::now() + self.patience(ending.lease) }
    }

    /// Disconnects, once the servers have confirmed all endings or time is up.
    pub(crate) async fn close(&self) {
        self.endings.close();
        // Servers that have not heard by then keep their keys until the lease expires.
        let _ = tokio::time::timeout(self.node_timeout, self.endings.wait()).await;
        for voter in &self.all {
            voter.server.disconnect();
        }
    }
}

/// A server's answer to an ending.
pub(crate) type Ended = Result<End, Failure>;

/// A claim's attempts to end.
#[derive(Clone)]
pub(crate) struct Ending {
    pub(crate) name: Name,
    pub(crate) claim: ClaimId,
    /// The last attempt to end.
    pub(crate) attempt: u64,
    pub(crate) lease: Duration,
}

impl Ending {
    async fn insist(&self, voter: &Voter, mut pending: PendingEnding) {
        let mut pause = PAUSES.0;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
            let Some(LastEnding { attempt, until }) = pending.last() else { return };
            match voter.end(&self.name, self.claim, attempt).await {
                Err(Failure { error, .. }) if error.is_unavailable() && !until.has_passed() => continue,
                Err(Failure { error, .. }) => {
                    let (name, server) = (&self.name, voter.address());
                    tracing::warn!(lock.name = %name, %server, %error, "could not release a lock on one server; it stays held there until its lease expires");
                }
                Ok(_) => {}
            }
            if pending.settle(attempt) {
                return;
            }
        }
    }
}
