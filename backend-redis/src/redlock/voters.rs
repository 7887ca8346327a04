//! All the servers, asked at once.

use super::{
    options::CheckedRedlockOptions,
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
use tenure_core::{Background, ClaimId, Moment, Name};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

/// The pauses before a server is told again that a hold has ended grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// To how many servers something may be left to be said. Beyond that leases run out by themselves.
const MOST_ENDINGS: usize = 2000;

/// Servers that know nothing of each other, of which a majority decides.
pub(crate) struct Voters {
    pub(crate) all: Vec<Arc<Voter>>,
    pub(crate) quorum: Quorum,
    node_timeout: Duration,
    attempts: AtomicU64,
    /// What servers are still to be told.
    endings: TaskTracker,
    pub(crate) background: Background,
}

/// The answers of servers, each with the server's place, as they come.
pub(crate) struct Answers<T> {
    receiver: mpsc::UnboundedReceiver<(usize, T)>,
    until: Instant,
}

impl<T> Answers<T> {
    /// The next answer; `None` when all have come, or when the time for them is over.
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

    /// How long an answer is worth waiting for, of a claim with this lease.
    pub(crate) fn patience(&self, lease: Duration) -> Duration {
        self.node_timeout.min(lease)
    }

    /// A number greater than those of all attempts before.
    pub(crate) fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks every server at once. Each in a task of its own, which ends with the server's own timeouts: whoever waits for
    /// the answers may have enough of them before.
    pub(crate) fn each<T, F>(&self, patience: Duration, request: impl Fn(Arc<Voter>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        for (place, voter) in self.all.iter().enumerate() {
            let (sender, answer) = (sender.clone(), request(Arc::clone(voter)));
            tokio::spawn(async move {
                // Nobody may be interested any more.
                let _ = sender.send((place, answer.await));
            });
        }
        Answers { receiver, until: Instant::now() + patience }
    }

    /// Has these servers end whatever the attempts of a claim up to this one have there, or may yet get. A server that does
    /// not confirm it is told again in the background, until the lease has run out there by itself.
    pub(crate) fn end(&self, ending: &Ending, places: impl IntoIterator<Item = usize>) -> Answers<Ended> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for place in places {
            let (voter, sender, ending) = (Arc::clone(&self.all[place]), sender.clone(), ending.clone());
            let (endings, background) = (self.endings.clone(), self.background.clone());
            let insists = endings.len() < MOST_ENDINGS;
            self.endings.spawn(async move {
                let answer = voter.undo(&ending.name, ending.claim, ending.attempt).await;
                let again = answer.as_ref().is_err_and(|silence| silence.error.is_unavailable());
                let _ = sender.send((place, answer));
                if again && insists {
                    let insisting = async move { ending.insist(&voter).await };
                    endings.spawn_on(insisting, &background.handle());
                }
            });
        }
        Answers { receiver, until: Instant::now() + self.patience(ending.lease) }
    }

    /// Lets go of the connections, when the servers know what they are to know, or have had their time.
    pub(crate) async fn close(&self) {
        self.endings.close();
        // Those that have not heard by then keep what they have until its lease runs out.
        let _ = tokio::time::timeout(self.node_timeout, self.endings.wait()).await;
        for voter in &self.all {
            voter.server.disconnect();
        }
    }
}

/// What a server says when a hold is to end.
pub(crate) type Ended = Result<End, Failure>;

/// What is to end.
#[derive(Clone)]
pub(crate) struct Ending {
    pub(crate) name: Name,
    pub(crate) claim: ClaimId,
    /// The last attempt that it is about.
    pub(crate) attempt: u64,
    pub(crate) lease: Duration,
}

impl Ending {
    async fn insist(&self, voter: &Voter) {
        let (give_up, mut pause) = (Moment::now() + self.lease, PAUSES.0);
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
            match voter.undo(&self.name, self.claim, self.attempt).await {
                Err(Failure { error, .. }) if error.is_unavailable() && !give_up.has_passed() => {}
                Err(Failure { error, .. }) => {
                    let (name, server) = (&self.name, voter.address());
                    tracing::warn!(lock.name = %name, %server, %error, "one server was not told of the end of a hold; its lease runs out there by itself");
                    return;
                }
                Ok(_) => return,
            }
        }
    }
}
