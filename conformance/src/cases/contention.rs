//! Clients that take turns while faults happen, and a resource that would notice a violation.

use crate::{
    Check, Client, FencedRegister, Stage,
    check::{Stop, chain, ensure, eventually},
};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Token};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many clients take turns.
const WORKERS: usize = 3;
const LEASE: Duration = Duration::from_secs(2);
/// How long a worker waits for its turn, whatever happens.
const PATIENCE: Duration = Duration::from_secs(40);

/// Clients that take turns to increment a [`FencedRegister`], as fast as the lock lets them, whatever happens to the
/// store meanwhile.
pub(super) struct Contention {
    shared: Arc<Shared>,
    workers: TaskTracker,
    over: CancellationToken,
}

#[derive(Default)]
struct Shared {
    register: FencedRegister,
    /// Every token that was seen.
    tokens: Mutex<HashSet<Token>>,
    /// How many turns each worker has had.
    turns: [AtomicU64; WORKERS],
    /// A violation that no fault excuses.
    broken: Mutex<Option<String>>,
}

impl Contention {
    pub(super) async fn begin(stage: &Stage) -> Check<Self> {
        let this =
            Self { shared: Arc::default(), workers: TaskTracker::new(), over: CancellationToken::new() };
        for (index, client) in stage.clients::<WORKERS>().await?.into_iter().enumerate() {
            let (shared, name) = (Arc::clone(&this.shared), stage.name("turns"));
            let work = this.over.clone().run_until_cancelled_owned(async move {
                if let Err(Stop::Failed(what)) = shared.take_turns(index, &client, &name).await {
                    *shared.broken() = Some(what);
                }
            });
            this.workers.spawn(work);
        }
        this.workers.close();
        Ok(this)
    }

    /// Checks that every worker still gets another turn, that no token was given twice, and that no update was lost.
    pub(super) async fn goes_on(self) -> Check {
        let turns = || self.shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed));
        let before: Vec<u64> = turns().collect();
        eventually!(
            PATIENCE,
            self.shared.broken().is_some() || turns().zip(&before).all(|(now, before)| now > *before),
            "everybody has another turn; the turns were {before:?} and are {:?}",
            turns().collect::<Vec<_>>()
        );
        self.over.cancel();
        self.workers.wait().await;
        let (broken, lost) = (self.shared.broken().take(), self.shared.register.lost_updates());
        ensure!(broken.is_none(), "a client that takes turns: {}", broken.unwrap_or_default());
        ensure!(lost == 0, "{lost} updates were lost, though the resource checks tokens");
        Ok(())
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Shared {
    fn broken(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_turns(&self, index: usize, client: &Client, name: &str) -> Check {
        loop {
            // An outage is no reason to give up while there is patience left.
            let guard = client.rival(name).lease(LEASE).wait(PATIENCE).acquire().await?;
            let token = guard.token();
            let is_new = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(token);
            ensure!(is_new, "token {token} was given twice");
            // The fence may refuse: somebody came in between.
            if let Ok(value) = self.register.read(token) {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let _refused = self.register.write(token, value + 1);
            }
            match guard.release().await {
                Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
                Err(error) => return Err(Stop::failed(chain(&error))),
            }
            self.turns[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}
