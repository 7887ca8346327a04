//! Clients that take turns while faults happen, and a resource that would notice a violation.

use crate::{
    Check, Client, FencedRegister, Refused, Stage,
    check::{Stop, chain, ensure, eventually, rises},
    pause,
    saboteur::Hurt,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Guard, Token};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many clients take turns.
const WORKERS: usize = 3;
const LEASE: Duration = Duration::from_secs(2);
/// How long a worker waits for its turn: a server that starts was seen to take a minute.
const PATIENCE: Duration = Duration::from_mins(3);
/// How soon each worker has another turn after the faults.
const RECOVERY: Duration = Duration::from_secs(40);

/// Clients that take turns to increment a [`FencedRegister`] as fast as the lock lets them, also during faults.
pub(super) struct Contention {
    shared: Arc<Shared>,
    workers: TaskTracker,
    over: CancellationToken,
}

#[derive(Default)]
struct Shared {
    register: FencedRegister,
    /// All tokens so far.
    tokens: Mutex<BTreeSet<Token>>,
    /// Whether the store forgets grants under this fault. Then two clients may believe at once that they hold the lock,
    /// until the older grant's deadline (clause F4).
    forgets: bool,
    /// How many turns each worker has had.
    turns: [AtomicU64; WORKERS],
    /// A violation that no fault excuses.
    broken: Mutex<Option<String>>,
}

impl Contention {
    /// Begins before these faults are injected.
    pub(super) async fn begin(stage: &Stage, hurts: &[Hurt]) -> Check<Self> {
        let forgets = hurts.iter().any(|hurt| stage.subject().forgets(*hurt));
        let shared = Arc::new(Shared { forgets, ..Shared::default() });
        let this = Self { shared, workers: TaskTracker::new(), over: CancellationToken::new() };
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

    /// Checks that every worker still gets another turn, tokens rose, no client was refused without an excuse, and no
    /// update was lost.
    pub(super) async fn goes_on(self) -> Check {
        let turns = || self.shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed));
        let before: Vec<u64> = turns().collect();
        eventually!(
            RECOVERY,
            self.shared.broken().is_some() || turns().zip(&before).all(|(now, before)| now > *before),
            "every client has another turn (turns of each client before: {before:?}, now: {:?})",
            turns().collect::<Vec<_>>()
        );
        self.over.cancel();
        self.workers.wait().await;
        let (broken, lost) = (self.shared.broken().take(), self.shared.register.lost_updates());
        ensure!(broken.is_none(), "one of {WORKERS} clients that take turns: {}", broken.unwrap_or_default());
        ensure!(
            lost == 0,
            "{lost} updates were lost although the resource checks tokens: a token must identify one grant"
        );
        Ok(())
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Shared {
    fn broken(&self) -> MutexGuard<'_, Option<String>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<Token>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_turns(&self, index: usize, client: &Client, name: &str) -> Check {
        loop {
            let before = self.tokens().last().copied();
            // An outage is no reason to give up while there is patience left.
            let guard = client.rival(name).lease(LEASE).wait(PATIENCE).acquire().await?;
            let token = guard.token();
            // The others were granted before this one was asked for, which no fault undoes.
            rises(before, token)?;
            let is_new = self.tokens().insert(token);
            ensure!(is_new, "token {token} was granted twice: each grant needs a token of its own");
            if let Err(refused) = self.increment(token).await {
                self.excuse(refused, &guard)?;
            }
            match guard.release().await {
                Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
                Err(error) => return Err(Stop::failed(chain(&error))),
            }
            self.turns[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn increment(&self, token: Token) -> Result<(), Refused> {
        let value = self.register.read(token)?;
        pause::settle(Duration::from_millis(2)).await;
        self.register.write(token, value + 1)
    }

    /// A holder with a greater token came in between. That is right if this holder knows that it lost the lock, or if
    /// the fault made the store forget it.
    fn excuse(&self, refused: Refused, guard: &Guard) -> Check {
        let times = self.register.refused();
        ensure!(
            self.forgets || !guard.is_held(),
            "{refused}. The older holder still holds the lock, so it was granted twice: {guard:?} (refusals so far: {times})"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxError, Form, Subject, async_trait};
    use tenure_core::{
        Attempt, Backend, Capabilities, Claim, ClaimId, Grant, Moment, Release, Renewal, StoreError,
    };

    /// A store of one name.
    #[derive(Clone, Default)]
    struct OneName {
        excludes: bool,
        rises: bool,
        /// Whether it says that it forgets when it is killed.
        forgets: bool,
        state: Arc<Mutex<State>>,
    }

    #[derive(Default)]
    struct State {
        holder: Option<ClaimId>,
        granted: u64,
    }

    impl OneName {
        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[async_trait]
    impl Subject for OneName {
        fn name(&self) -> &'static str {
            "one name"
        }

        async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
            Ok(Arc::new(self.clone()))
        }

        fn forgets(&self, hurt: Hurt) -> bool {
            self.forgets && hurt == Hurt::Kill
        }
    }

    #[async_trait]
    impl Backend for OneName {
        fn store(&self) -> &'static str {
            "one name"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::POLLED
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
            let mut state = self.state();
            if self.excludes && state.holder.is_some_and(|holder| holder != claim.id) {
                return Ok(Attempt::Busy { expires_in: None });
            }
            state.holder = Some(claim.id);
            state.granted += 1;
            let token = if self.rises { state.granted } else { 1_000_000 - state.granted };
            let token = Token::new(token).expect("a small number");
            Ok(Attempt::Granted(Grant::leased(claim, token, Moment::now())))
        }

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            {
                let mut state = self.state();
                state.holder = state.holder.filter(|holder| *holder != grant.claim);
            }
            // The other clients ask meanwhile, so none starves.
            pause::settle(Capabilities::POLLED.ask_again).await;
            Ok(Release::Released { awaited: false })
        }

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            Ok(vec![Renewal::Renewed; grants.len()])
        }
    }

    async fn turns(store: OneName) -> Check<Contention> {
        let stage = Stage::new(Arc::new(store), "turns", Form::Lock).await?;
        Contention::begin(&stage, &[Hurt::Kill]).await
    }

    /// The failure that a broken store causes.
    async fn said_of(store: OneName) -> Check<String> {
        let contention = turns(store).await?;
        eventually!(PATIENCE, contention.shared.broken().is_some());
        match contention.goes_on().await {
            Err(Stop::Failed(what)) => Ok(what),
            other => Err(Stop::failed(format_args!("the broken store passed: {other:?}"))),
        }
    }

    /// The fence prevents lost updates, and each grant has its own token: only the refusal shows two holders.
    #[tokio::test(flavor = "multi_thread")]
    async fn two_holders_are_caught_behind_a_fence() {
        let what = said_of(OneName { rises: true, ..OneName::default() }).await.expect("a failure");
        assert!(what.contains("still holds the lock"), "{what}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn falling_tokens_are_caught_although_store_forgets() {
        let store = OneName { excludes: true, forgets: true, ..OneName::default() };
        let what = said_of(store).await.expect("a failure");
        assert!(what.contains("each grant needs a greater token"), "{what}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn excluding_or_forgetful_store_passes() {
        for excludes in [true, false] {
            let store = OneName { excludes, rises: true, forgets: !excludes, ..OneName::default() };
            let contention = turns(store).await.expect("clients");
            contention.goes_on().await.expect("a pass");
        }
    }
}
