//! How a lock is acquired: the local queue, then the store.

use super::{
    holding::{Holding, Terms},
    pauses::Pauses,
    queue::{Barred, Place, Seat},
    release::OpenClaim,
    shared::Shared,
};
use crate::{
    Attempt, Claim, ClaimId, Doing, Error, Grant, Guard, HolderInfo, Lock, Mode, Moment, Name, StoreError,
};
use std::{sync::Arc, time::Duration};

/// How long a failure of the store is remembered: a wait that ends meanwhile ends with it.
const TROUBLE_LASTS: Duration = Duration::from_secs(5);

/// A lock's options, checked.
pub(crate) struct Acquisition {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Name,
    pub(super) lease: Duration,
    wait: Option<Duration>,
    pub(super) mode: Mode,
    pub(super) terms: Terms,
    holder: Arc<HolderInfo>,
}

/// The last failure of the store while an acquisition went on.
type Trouble = Option<(Moment, StoreError)>;

impl Acquisition {
    pub(crate) fn new(lock: &Lock) -> Result<Self, Error> {
        let (shared, options) = lock.checked()?;
        let holder = match &options.label {
            None => Arc::clone(&shared.here),
            Some(label) => Arc::new(HolderInfo { label: Some(label.clone()), ..(*shared.here).clone() }),
        };
        Ok(Self {
            shared: Arc::clone(shared),
            name: options.name,
            lease: options.lease.unwrap_or(shared.default_lease),
            wait: options.wait,
            mode: options.mode,
            terms: Terms { owner: options.owner, renews: options.renews, max_hold: options.max_hold },
            holder,
        })
    }

    /// At most one attempt.
    pub(crate) async fn once(self) -> Result<Option<Guard>, Error> {
        if self.shared.closing.is_cancelled() {
            return Err(self.shared.closed_error());
        }
        let _under_way = self.shared.acquisitions.token();
        let seat = self.shared.queues.join(&self.name);
        if let Some(guard) = self.reenter(&seat) {
            return guard.map(Some);
        }
        let Some(place) = self.place(seat) else { return Ok(None) };
        let mut open = OpenClaim::new(&self.shared, self.claim(false));
        let answer = tokio::select! {
            biased;
            () = self.shared.closing.cancelled() => return Err(self.shared.closed_error()),
            answer = tokio::time::timeout(self.lease, self.shared.backend.try_acquire(open.claim())) => answer,
        };
        match answer {
            Ok(Ok(Attempt::Granted(grant))) => match Holding::begin(&self.shared, grant, self.terms, place) {
                Ok(hold) => {
                    open.settle();
                    let guard = granted(hold);
                    if guard.fresh().await {
                        Ok(Some(guard))
                    } else {
                        Err(too_late(&self.shared, &self.name))
                    }
                }
                Err(_) => Err(too_late(&self.shared, &self.name)),
            },
            Ok(Ok(Attempt::Busy { .. })) => {
                open.settle();
                Ok(None)
            }
            Ok(Err(error)) => {
                open.failed(&error);
                Err(acquiring(&self.shared, &self.name, error))
            }
            Err(_) => Err(unavailable(&self.shared, &self.name, "no answer within the lease")),
        }
    }

    /// Waits until the lock is had, the wait is over, or these locks are closed.
    pub(crate) async fn wait(self) -> Result<Guard, Error> {
        let (shared, name, wait) = (Arc::clone(&self.shared), self.name.clone(), self.wait);
        if wait == Some(Duration::ZERO) {
            return self.once().await?.ok_or_else(|| timeout(&shared, name, Duration::ZERO));
        }
        if shared.closing.is_cancelled() {
            return Err(shared.closed_error());
        }
        let _under_way = shared.acquisitions.token();
        let mut trouble = None;
        let outcome = {
            let entering = self.enter(&mut trouble);
            tokio::pin!(entering);
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => Some(Err(shared.closed_error())),
                outcome = &mut entering => Some(outcome),
                () = elapsed(wait) => None,
            }
        };
        match (outcome, trouble) {
            (Some(outcome), _) => outcome,
            (None, Some((when, error))) if Moment::now().since(when) < TROUBLE_LASTS => {
                Err(acquiring(&shared, &name, error))
            }
            (None, _) => Err(timeout(&shared, name, wait.unwrap_or_default())),
        }
    }

    async fn enter(self, trouble: &mut Trouble) -> Result<Guard, Error> {
        loop {
            let guard = self.contend(trouble).await?;
            if guard.fresh().await {
                return Ok(guard);
            }
        }
    }

    /// Waits for its turn in this process, and contends until the store grants it.
    async fn contend(&self, trouble: &mut Trouble) -> Result<Guard, Error> {
        let seat = self.shared.queues.join(&self.name);
        let mut place = match &self.terms.owner {
            None => Place::Turn(seat.turn().await),
            Some(owner) => match seat.turn_or_reentry(owner, self.mode).await {
                Ok(turn) => Place::Turn(turn),
                Err(entered) => return self.reentered(entered),
            },
        };
        let mut terms = self.terms.clone();
        loop {
            let mut open = OpenClaim::new(&self.shared, self.claim(true));
            let grant = match self.ask(open.claim(), trouble).await {
                Ok(Some(grant)) => grant,
                // What is left of the claim is withdrawn in the background.
                Ok(None) => continue,
                Err(error) => {
                    open.failed(&error);
                    return Err(acquiring(&self.shared, &self.name, error));
                }
            };
            match Holding::begin(&self.shared, grant, terms, place) {
                Ok(hold) => {
                    open.settle();
                    return Ok(granted(hold));
                }
                // The answer took longer than the lease. It is taken back, and asked for anew.
                Err(refused) => {
                    place = refused;
                    terms = self.terms.clone();
                    open.withdraw().await;
                }
            }
        }
    }

    /// Asks the store until it grants the claim; pauses and asks again, with the same claim, while it is unavailable.
    /// `None` when another claim is to be asked for.
    async fn ask(&self, claim: &Claim, trouble: &mut Trouble) -> Result<Option<Grant>, StoreError> {
        let mut pauses = Pauses::new();
        loop {
            match self.shared.backend.acquire(claim).await {
                Ok(grant) => return Ok(Some(grant)),
                Err(error) if error.is_unavailable() => {
                    let (name, store, spent) = (&self.name, &self.shared.store, error.spends_claim());
                    tracing::warn!(lock.name = %name, lock.store = %store, %error, "the store is unavailable; the lock is asked for again");
                    *trouble = Some((Moment::now(), error));
                    pauses.pause().await;
                    if spent {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The right to ask the store at once, unless others of this process come first.
    pub(super) fn place(&self, seat: Seat) -> Option<Place> {
        match self.mode {
            Mode::Exclusive => seat.try_turn().map(Place::Turn),
            // Beside holders of this process others may hold the name, so only the store knows.
            Mode::Shared | Mode::Permit { .. } => Some(Place::Seat(seat)),
        }
    }

    pub(super) fn claim(&self, waits: bool) -> Claim {
        Claim {
            id: ClaimId::new(),
            name: self.name.clone(),
            mode: self.mode,
            lease: self.lease,
            waits,
            holder: Arc::clone(&self.holder),
        }
    }

    fn reenter(&self, seat: &Seat) -> Option<Result<Guard, Error>> {
        let entered = seat.reenter(self.terms.owner.as_ref()?, self.mode)?;
        Some(self.reentered(entered))
    }

    fn reentered(&self, entered: Result<Arc<Holding>, Barred>) -> Result<Guard, Error> {
        match entered {
            Ok(hold) => Ok(Guard::new(hold)),
            Err(Barred::Lost(cause)) => Err(self.shared.lost(&self.name, cause)),
            Err(Barred::Holds(held)) => {
                let (name, store) = (self.name.clone(), Arc::clone(&self.shared.store));
                Err(Error::WouldDeadlock { name, store, held, wanted: self.mode })
            }
        }
    }
}

async fn elapsed(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

pub(super) fn granted(hold: Arc<Holding>) -> Guard {
    let (name, token, claim) = (&hold.grant.name, hold.grant.token, hold.grant.claim);
    tracing::debug!(lock.name = %name, %token, %claim, lock.store = %hold.shared.store, "lock acquired");
    Guard::new(hold)
}

pub(super) fn acquiring(shared: &Shared, name: &Name, error: StoreError) -> Error {
    Error::from_store(&shared.store, Doing::Acquiring(name.clone()), error)
}

pub(super) fn unavailable(shared: &Shared, name: &Name, why: &'static str) -> Error {
    acquiring(shared, name, StoreError::unavailable(why))
}

pub(super) fn too_late(shared: &Shared, name: &Name) -> Error {
    unavailable(shared, name, "the store answered after the lease had run out")
}

pub(crate) fn timeout(shared: &Shared, name: Name, waited: Duration) -> Error {
    Error::Timeout { name, store: Arc::clone(&shared.store), waited }
}

#[cfg(test)]
mod tests {
    use crate::{
        Attempt, Backend, Capabilities, Claim, ClaimId, Error, Grant, Locks, Memory, Release, Renewal,
        StoreError, async_trait, forward_backend,
    };
    use std::{
        future::pending,
        sync::{Arc, Mutex},
        time::Duration,
    };
    use tokio::time::Instant;

    /// A store that answers nothing.
    struct Hung;

    #[async_trait]
    impl Backend for Hung {
        fn store(&self) -> &'static str {
            "hung"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::POLLED
        }

        async fn try_acquire(&self, _: &Claim) -> Result<Attempt, StoreError> {
            pending().await
        }

        async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
            pending().await
        }

        async fn renew(&self, _: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            pending().await
        }
    }

    /// Found by a fault run: zookeeper-ensemble, seed 219.
    #[tokio::test(start_paused = true)]
    async fn closing_ends_an_attempt_that_the_store_does_not_answer() {
        let (locks, began) = (Locks::new(Hung), Instant::now());
        let lock = locks.lock("a").lease(Duration::from_mins(1));
        let attempt = tokio::spawn(async move { lock.try_acquire().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let closing = tokio::spawn(async move { locks.close().await });
        let outcome = attempt.await.unwrap();
        assert!(matches!(outcome, Err(Error::Closed { .. })), "{outcome:?}");
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        closing.abort();
    }

    /// Grants, and says that the grant does not count and the claim is spent, so many times.
    #[derive(Clone)]
    struct Spends {
        memory: Memory,
        left: Arc<Mutex<u32>>,
        claims: Arc<Mutex<Vec<ClaimId>>>,
    }

    #[async_trait]
    impl Backend for Spends {
        forward_backend!(self => self.memory, except try_acquire, acquire);

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
            self.claims.lock().unwrap().push(claim.id);
            let attempt = self.memory.try_acquire(claim).await?;
            let mut left = self.left.lock().unwrap();
            if matches!(attempt, Attempt::Granted(_)) && *left > 0 {
                *left -= 1;
                return Err(StoreError::claim_spent("it may be taken back at any time"));
            }
            Ok(attempt)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_spent_is_withdrawn_and_not_used_again() {
        let claims = Arc::<Mutex<Vec<ClaimId>>>::default();
        let store =
            Spends { memory: Memory::new(), left: Arc::new(Mutex::new(2)), claims: Arc::clone(&claims) };
        let guard = Locks::new(store).lock("a").acquire().await.unwrap();
        let claims = claims.lock().unwrap().clone();
        let mut granted = claims.clone();
        granted.dedup();
        assert_eq!(granted.len(), 3, "{claims:?}");
        assert_eq!(granted.last(), Some(&guard.claim()));
        assert!(!granted[..2].contains(&guard.claim()));
    }
}
