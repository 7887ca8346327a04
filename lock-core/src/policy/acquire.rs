//! How a lock is acquired: re-entry, the queue in this client, then the store.

use super::{
    client::Client,
    guard::Guard,
    hold::Hold,
    holding::{Barred, HoldOptions, Holding},
    look::Look,
    pauses::Pauses,
    queue::{Occupant, Seat},
    succession::Estate,
    withdraw::OpenClaim,
};
use crate::{
    contract::{Claim, ClaimId, Error, Grant, Holder, HolderInfo, Mode, Moment, Name, Operation, StoreError},
    metrics::{Ending, Waiting},
    store::Attempt,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tracing::instrument;

/// How long a failure of the store counts if it is not known whether the store has answered since: longer than a request
/// to a store that hangs takes to fail, by default.
const TROUBLE_LASTS: Duration = Duration::from_secs(12);

/// A lock's options, checked: what to acquire, for whom and how.
pub(crate) struct Acquisition {
    pub(crate) client: Arc<Client>,
    pub(crate) name: Name,
    pub(crate) lease: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) options: HoldOptions,
    pub(crate) holder: Arc<HolderInfo>,
}

/// Why a wait ends without the lock, as far as known.
struct Findings {
    /// The store's last failure.
    trouble: Option<(Moment, StoreError)>,
    look: Look,
}

impl Acquisition {
    /// Makes at most one attempt.
    #[instrument(level = "debug", name = "lock.try_acquire", skip_all, fields(lock.name = %self.name, lock.store = %self.client.store.name))]
    pub(crate) async fn once(&self) -> Result<Option<Guard>, Error> {
        let waiting = self.waiting();
        let outcome = self.attempt().await;
        waiting.ended(match &outcome {
            Ok(Some(_)) => Ending::Acquired,
            Ok(None) => Ending::Busy,
            Err(error) => Ending::of(error),
        });
        outcome.map(|guard| guard.map(Guard::delivered))
    }

    async fn attempt(&self) -> Result<Option<Guard>, Error> {
        self.client.check_open()?;
        let _under_way = self.client.acquisitions.token();
        if let Some(entered) = self.reenter() {
            return self.entered(entered).map(Some);
        }
        let Some(seat) = self.seat() else { return Ok(None) };
        let mut open = OpenClaim::new(&self.client, self.claim(false));
        let answer = tokio::select! {
            biased;
            () = self.client.closing.cancelled() => return Err(self.client.closed_error()),
            answer = tokio::time::timeout(self.lease, self.client.store.try_acquire(open.claim())) => answer,
        };
        match answer {
            Ok(Ok(Attempt::Granted(grant))) => {
                let guard = self.hold(grant, seat).map_err(|_| self.too_late())?;
                open.settle();
                if guard.fresh().await { Ok(Some(guard)) } else { Err(self.too_late()) }
            }
            Ok(Ok(Attempt::Busy { .. })) => {
                open.settle();
                Ok(None)
            }
            Ok(Err(error)) => {
                open.failed(&error);
                Err(self.failed(error))
            }
            Err(_) => Err(self.no_answer()),
        }
    }

    /// Waits until the lock is acquired, the wait is over, or the client is closed.
    #[instrument(level = "debug", name = "lock.acquire", skip_all, fields(lock.name = %self.name, lock.store = %self.client.store.name))]
    pub(crate) async fn wait(&self) -> Result<Guard, Error> {
        let waiting = self.waiting();
        let outcome = if self.wait == Some(Duration::ZERO) {
            self.attempt()
                .await
                .and_then(|guard| guard.ok_or_else(|| self.timeout(Duration::ZERO, Vec::new())))
        } else {
            self.wait_in_turn().await
        };
        waiting.ended(outcome.as_ref().map_or_else(Ending::of, |_| Ending::Acquired));
        outcome.map(Guard::delivered)
    }

    async fn wait_in_turn(&self) -> Result<Guard, Error> {
        self.client.check_open()?;
        let _under_way = self.client.acquisitions.token();
        let mut findings = Findings { trouble: None, look: Look::new(self.wait) };
        let end = findings.look.end;
        let outcome = tokio::select! {
            biased;
            () = self.client.closing.cancelled() => Some(Err(self.client.closed_error())),
            outcome = self.acquire(&mut findings) => Some(outcome),
            () = at(end) => None,
        };
        let Findings { trouble, look } = findings;
        match (outcome, trouble) {
            (Some(outcome), _) => outcome,
            (None, Some((when, error))) if look.is_explained_by(when, TROUBLE_LASTS) => {
                Err(self.failed(error))
            }
            (None, _) => Err(self.timeout(self.wait.unwrap_or_default(), look.holders)),
        }
    }

    async fn acquire(&self, findings: &mut Findings) -> Result<Guard, Error> {
        loop {
            let guard = self.contend(findings).await?;
            if guard.fresh().await {
                return Ok(guard);
            }
        }
    }

    /// Waits for its turn in this client, then contends until the store grants the claim.
    async fn contend(&self, findings: &mut Findings) -> Result<Guard, Error> {
        let mut seat = self.client.queues.join(&self.name);
        let terms = self.options.terms.as_ref();
        if self.options.owner.is_none() {
            seat.wait(terms).await;
        } else if let Some(entered) = seat.wait_or(terms, || self.reenter()).await {
            return self.entered(entered);
        }
        if let Some(estate) = seat.inherit() {
            match self.succeed(estate, seat) {
                Ok(guard) => return Ok(guard),
                Err(kept) => seat = kept,
            }
        }
        loop {
            let mut open = OpenClaim::new(&self.client, self.claim(true));
            let grant = match self.ask(open.claim(), findings).await {
                Ok(Some(grant)) => grant,
                // The rest of the claim is withdrawn in the background.
                Ok(None) => continue,
                Err(error) => {
                    open.failed(&error);
                    return Err(self.failed(error));
                }
            };
            match self.hold(grant, seat) {
                Ok(guard) => {
                    open.settle();
                    return Ok(guard);
                }
                // The answer took longer than the lease. Withdraws the claim and tries another.
                Err(kept) => {
                    seat = kept;
                    open.withdraw().await;
                }
            }
        }
    }

    /// Begins to hold a grant that another task of this client has handed on. If that took too long, it is released in
    /// the background.
    fn succeed(&self, estate: Estate, seat: Seat) -> Result<Guard, Seat> {
        let Some(grant) = estate.grant().cloned() else { return Err(seat) };
        let guard = self.hold(grant, seat)?;
        estate.inherited();
        Ok(guard)
    }

    /// Asks the store until it grants the claim. While it is unavailable, pauses and asks again with the same claim.
    /// Returns `None` if a new claim is needed.
    async fn ask(
        &self,
        claim: &Claim,
        Findings { trouble, look }: &mut Findings,
    ) -> Result<Option<Grant>, StoreError> {
        let mut pauses = Pauses::new();
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.client.store.acquire(claim) => answer,
                never = look.go_on(&self.client.store, claim) => match never {},
            };
            match answer {
                Ok(grant) => return Ok(Some(grant)),
                Err(error) if error.is_unavailable() => {
                    let (name, store, spent) = (&self.name, &self.client.store.name, error.spends_claim());
                    if spent {
                        tracing::warn!(lock.name = %name, lock.store = %store, %error, "the claim cannot be used again; trying another");
                    } else {
                        tracing::warn!(lock.name = %name, lock.store = %store, %error, "the store is unavailable; trying again");
                    }
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

    /// Measures this acquisition from now on.
    pub(super) fn waiting(&self) -> Waiting {
        self.client.store.meters.waiting(&self.name, self.mode)
    }

    /// Measures a wait that began at `since`, and was over before this lock was asked for.
    pub(crate) fn timed_out_since(&self, since: Instant) {
        self.waiting().timed_out_since(since);
    }

    /// Takes a seat from which the store may be asked at once; `None` if others of this client come first.
    pub(super) fn seat(&self) -> Option<Seat> {
        let mut seat = self.client.queues.join(&self.name);
        // In the other modes, several may hold the name at once, so only the store can tell.
        (self.mode != Mode::Exclusive || seat.try_turn()).then_some(seat)
    }

    pub(super) fn claim(&self, waits: bool) -> Claim {
        Claim {
            id: ClaimId::new(),
            name: self.name.clone(),
            mode: self.mode,
            lease: self.lease,
            waits,
            reserve: self.options.terms.as_ref().map_or(0, |terms| terms.successors),
            holder: Arc::clone(&self.holder),
        }
    }

    /// Begins to hold the grant, unless it has already expired.
    pub(super) fn hold(&self, grant: Grant, seat: Seat) -> Result<Guard, Seat> {
        let (claim, token, info) = (grant.claim, grant.token_now(), Arc::clone(&self.holder));
        seat.occupied_by(Some(Occupant { claim, token, info, since: Moment::now() }));
        let hold = Hold::begin(&self.client, grant, self.options.clone(), seat)
            .inspect_err(|seat| seat.occupied_by(None))?;
        let (name, token, claim) = (hold.name(), hold.token(), hold.claim());
        tracing::debug!(lock.name = %name, %token, %claim, lock.store = %self.client.store.name, "lock acquired");
        Ok(Guard::new(hold))
    }

    fn reenter(&self) -> Option<Result<Arc<Holding>, Barred>> {
        self.client.owned.enter(&self.name, self.options.owner.as_ref()?, self.mode)
    }

    fn entered(&self, entered: Result<Arc<Holding>, Barred>) -> Result<Guard, Error> {
        let client = Arc::clone(&self.client);
        match entered {
            Ok(holding) => Ok(Guard::new(Hold { client, holding })),
            Err(Barred::Lost(cause)) => Err(client.store.lost(&self.name, cause)),
            Err(Barred::Holds(held)) => {
                let (name, store) = (self.name.clone(), Arc::clone(&client.store.name));
                Err(Error::WouldDeadlock { name, store, held, wanted: self.mode })
            }
        }
    }

    pub(super) fn failed(&self, error: StoreError) -> Error {
        self.client.store.failed(Operation::Acquiring(self.name.clone()), error)
    }

    pub(super) fn no_answer(&self) -> Error {
        self.failed(StoreError::unavailable("no answer within the lease"))
    }

    pub(super) fn too_late(&self) -> Error {
        self.failed(StoreError::unavailable("the store answered after the lease had expired"))
    }

    /// If the store named no holders, names the one in this client: tasks behind it do not ask the store.
    pub(crate) fn timeout(&self, waited: Duration, mut holders: Vec<Holder>) -> Error {
        if holders.is_empty() {
            holders.extend(self.client.queues.occupant(&self.name));
        }
        Error::Timeout {
            name: self.name.clone(),
            store: Arc::clone(&self.client.store.name),
            waited,
            holders,
        }
    }
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Claim, ClaimId, Error, Owner, StoreError},
        forward_backend,
        memory::Memory,
        store::{Attempt, Backend, hung::Hung},
    };
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };
    use tokio::{
        task::yield_now,
        time::{Instant, timeout},
    };

    /// Found by a fault run: zookeeper-ensemble, seed 219.
    #[tokio::test(start_paused = true)]
    async fn closing_ends_an_unanswered_attempt() {
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

    /// When the reader holds the lock, the writer behind it gets the turn and the news at once.
    #[tokio::test(start_paused = true)]
    async fn writer_fails_at_once_behind_its_owners_reader() {
        let (memory, me) = (Memory::new(), Owner::new());
        let foreign = Locks::new(memory.clone()).rw("a").write().acquire().await.unwrap();
        let rw = Locks::new(memory).rw("a");
        let (read, write) = (rw.read().owner(&me), rw.write().owner(&me));
        let reader = tokio::spawn(async move { read.acquire().await });
        yield_now().await;
        let writer = tokio::spawn(async move { write.acquire().await });
        yield_now().await;
        foreign.release().await.unwrap();
        let refused =
            timeout(Duration::from_secs(1), writer).await.expect("it waits beside its reader").unwrap();
        assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "{refused:?}");
        assert!(reader.await.unwrap().unwrap().is_held());
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
    async fn spent_claim_is_replaced_by_a_new_one() {
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
