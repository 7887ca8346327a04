//! A flawed store's handling of each request.

use super::{Client, Flaw, HOP};
use std::{
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tenure_conformance::async_trait;
use tenure_core::{
    Attempt, AttemptAll, Backend, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, LatchState,
    LatchStep, LossCause, Mode, Moment, Name, Release, Renewal, StoreError, Waiter,
};

/// As many parties as the cases count.
const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// How often a waiter without wake-ups asks: longer than the cases allow, by more than a busy machine takes.
const SELDOM: Duration = Duration::from_secs(1);

impl Client {
    /// Asks again and again, without the store's own queue.
    async fn poll(&self, claim: &Claim, pause: Duration) -> Result<Grant, StoreError> {
        loop {
            if let Attempt::Granted(grant) = self.try_acquire(claim).await? {
                return Ok(grant);
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// The claim of this grant.
fn claim_of(grant: &Grant) -> Claim {
    let Grant { claim: id, name, mode, lease, .. } = grant.clone();
    Claim { id, name, mode, lease, waits: false, reserve: 0, holder: Arc::default() }
}

/// A place among the waiters, which goes with its waiter.
struct Place<'a>(&'a Client, ClaimId);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.notes().waiters.retain(|claim| *claim != self.1);
    }
}

#[async_trait]
impl Backend for Client {
    fn store(&self) -> &'static str {
        "flawed"
    }

    fn capabilities(&self) -> Capabilities {
        self.world.memory.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let busy = Ok(Attempt::Busy { expires_in: None });
        let inner = self.claim(claim);
        let holders = self.world.memory.holders(&inner.name).await?;
        let holds_it = holders.iter().any(|holder| holder.claim == Some(claim.id));
        let another_was_here = self.notes().last_here.is_some_and(|(client, when)| {
            client != self.number && !(when + Duration::from_secs(15)).has_passed()
        });
        match self.flaw {
            Flaw::KnowsNoClaim if holds_it => return busy,
            Flaw::PrefersWhoWasHere if another_was_here => return busy,
            Flaw::LooksThenTakes if holders.is_empty() => {
                tokio::time::sleep(HOP).await;
                return match self.attempt(claim, &inner).await? {
                    // It was free when it was looked at.
                    Attempt::Busy { .. } => self.let_in(claim).await,
                    granted @ Attempt::Granted(_) => Ok(granted),
                };
            }
            _ => {}
        }
        match self.attempt(claim, &inner).await? {
            Attempt::Busy { .. } if self.flaw == Flaw::LetsInOneOfHundreds => {
                match self.world.refused.fetch_add(1, Ordering::Relaxed) % 200 {
                    199 => self.let_in(claim).await,
                    _ => busy,
                }
            }
            attempt => Ok(attempt),
        }
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        if self.flaw == Flaw::GrantsWhatIsFree {
            let mut grants = Vec::new();
            for claim in claims {
                match self.try_acquire(claim).await? {
                    Attempt::Granted(grant) => grants.push(grant),
                    Attempt::Busy { .. } => return Ok(AttemptAll::Busy),
                }
            }
            return Ok(AttemptAll::Granted(grants));
        }
        let inner: Vec<Claim> = claims.iter().map(|claim| self.claim(claim)).collect();
        let AttemptAll::Granted(inner) = self.world.memory.try_acquire_all(&inner).await? else {
            return Ok(AttemptAll::Busy);
        };
        let mut grants = Vec::with_capacity(inner.len());
        for (claim, grant) in claims.iter().zip(inner) {
            grants.push(self.granted(claim, grant).await?);
        }
        Ok(AttemptAll::Granted(grants))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        match self.flaw {
            Flaw::LosesWakeups => self.poll(claim, SELDOM).await,
            Flaw::SleepsThroughLeases => loop {
                let inner = self.claim(claim);
                match self.world.memory.try_acquire(&inner).await? {
                    Attempt::Granted(grant) => return self.granted(claim, grant).await,
                    Attempt::Busy { expires_in } => tokio::time::sleep(expires_in.unwrap_or(HOP)).await,
                }
            },
            Flaw::ClosesForOthers => {
                let inner = self.claim(claim);
                tokio::select! {
                    told = self.world.memory.acquire(&inner) => self.granted(claim, told?).await,
                    () = self.closed.notified() => self.poll(claim, SELDOM).await,
                }
            }
            Flaw::KnowsNoClaim | Flaw::PrefersWhoWasHere | Flaw::LooksThenTakes => {
                self.poll(claim, Duration::from_millis(2)).await
            }
            Flaw::ServesLastFirst => {
                self.notes().waiters.push(claim.id);
                let _place = Place(self, claim.id);
                loop {
                    let is_last = self.notes().waiters.last() == Some(&claim.id);
                    if is_last && let Attempt::Granted(grant) = self.try_acquire(claim).await? {
                        return Ok(grant);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Flaw::WithdrawsNothing => {
                // In a task: its place in the queue outlasts the caller, as on a server.
                let (memory, inner) = (self.world.memory.clone(), self.claim(claim));
                let standing = tokio::spawn(async move { memory.acquire(&inner).await });
                let grant = standing.await.map_err(StoreError::unavailable)??;
                self.granted(claim, grant).await
            }
            _ => {
                let grant = self.world.memory.acquire(&self.claim(claim)).await?;
                self.granted(claim, grant).await
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let inner = self.grant(grant);
        let answer = self.world.memory.release(&inner).await?;
        let released = Ok(Release::Released { awaited: false });
        self.notes().last_here = Some((self.number, Moment::now()));
        match (self.flaw, answer) {
            (Flaw::ReleasesSilently, _) => released,
            (Flaw::ReleasesAnyClaim, Release::Lost(_)) => {
                let put_out = self.world.memory.force_release(&inner.name).await?;
                if put_out.is_empty() { Ok(answer) } else { released }
            }
            (_, Release::Released { .. }) => {
                self.notes().told.remove(&inner.name);
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut inner: Vec<Grant> = grants.iter().map(|grant| self.grant(grant)).collect();
        if self.flaw == Flaw::RenewsAnyMode {
            let writers = inner.iter_mut().filter(|grant| grant.mode == Mode::Exclusive);
            writers.for_each(|grant| grant.mode = Mode::Shared);
        }
        if self.flaw == Flaw::ForgetsRenewals {
            return Ok(vec![Renewal::Renewed; grants.len()]);
        }
        let stood = match self.flaw {
            // Grants that stand now are renewed, even if they end meanwhile.
            Flaw::LooksThenRenews => {
                let stood = self.world.memory.renew(&inner).await?;
                tokio::time::sleep(HOP).await;
                stood
            }
            Flaw::RenewsExpired => vec![Renewal::Renewed; inner.len()],
            _ => Vec::new(),
        };
        let mut answers = self.world.memory.renew(&inner).await?;
        for ((answer, stood), grant) in answers.iter_mut().zip(stood).zip(&inner) {
            if stood != Renewal::Renewed || *answer == Renewal::Renewed {
                continue;
            }
            if self.flaw == Flaw::LooksThenRenews {
                self.world.memory.force_release(&grant.name).await?;
            }
            if let Attempt::Granted(_) = self.world.memory.try_acquire(&claim_of(grant)).await? {
                *answer = Renewal::Renewed;
            }
        }
        match self.flaw {
            Flaw::RenewsAnything => answers.fill(Renewal::Renewed),
            Flaw::AnswersBackwards => answers.reverse(),
            _ => {}
        }
        Ok(answers)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let inner = self.claim(claim);
        match self.flaw {
            Flaw::WithdrawsNothing => return Ok(()),
            Flaw::WithdrawsAnyClaim => drop(self.world.memory.force_release(&inner.name).await?),
            _ => {}
        }
        self.world.memory.withdraw(&inner).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let inner = self.grant(grant);
        match self.flaw {
            Flaw::UpgradesAnybody => return Ok(Conversion::Converted),
            Flaw::DowngradesByReleasing => {
                self.world.memory.release(&inner).await?;
                // Waiters come first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let again = Claim { mode: to, ..claim_of(&inner) };
                return Ok(match self.world.memory.try_acquire(&again).await? {
                    Attempt::Granted(_) => Conversion::Converted,
                    Attempt::Busy { .. } => Conversion::Lost(LossCause::TakenOver),
                });
            }
            _ => {}
        }
        self.world.memory.convert(&inner, to).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let step = match (self.flaw, step) {
            (Flaw::CountsPartiesTwice, LatchStep::CountDown { of, .. }) => {
                let party = Name::new(ClaimId::new().to_string()).expect("a claim as a name");
                LatchStep::CountDown { party, of: *of }
            }
            (Flaw::CountsAnyNumber, LatchStep::CountDown { party, .. }) => {
                let before = self.world.memory.latch(name, &LatchStep::Look).await?;
                let of = NonZeroU32::new(before.of).unwrap_or(THREE);
                LatchStep::CountDown { party: party.clone(), of }
            }
            (Flaw::OpensForGood, LatchStep::Remove) => LatchStep::Look,
            (_, step) => step.clone(),
        };
        self.world.memory.latch(name, &step).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        if self.flaw == Flaw::TellsOfTheDead {
            return Ok(self.notes().told.get(name).cloned().unwrap_or_default());
        }
        self.world.memory.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        if self.flaw != Flaw::ListsByPattern {
            return self.world.memory.list(prefix).await;
        }
        let mut all = self.world.memory.list("").await?;
        all.retain(|holder| {
            let mut name = holder.name.chars();
            prefix.chars().all(|meant| name.next().is_some_and(|found| meant == '_' || found == meant))
        });
        Ok(all)
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let mut waiters = self.world.memory.waiting(name).await?;
        match self.flaw {
            Flaw::ShowsWaitersBackwards => waiters.reverse(),
            Flaw::ShowsHoldersAsWaiters => {
                let holders = self.world.memory.holders(name).await?;
                waiters.extend(holders.into_iter().map(|holder| Waiter::of(holder.name).mode(holder.mode)));
            }
            _ => {}
        }
        Ok(waiters)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        match self.flaw {
            Flaw::ForcesNothing => self.world.memory.holders(name).await,
            Flaw::ForgetsForcedClaims => {
                let holders = self.world.memory.holders(name).await?;
                for id in holders.iter().filter_map(|holder| holder.claim) {
                    let (name, mode, holder) = (name.clone(), Mode::Exclusive, Arc::default());
                    let gone = Claim { id, name, mode, lease: HOP, waits: false, reserve: 0, holder };
                    self.world.memory.withdraw(&gone).await?;
                }
                Ok(holders)
            }
            _ => self.world.memory.force_release(name).await,
        }
    }

    /// Waiters of this client get no more wake-ups, if that is the flaw.
    async fn close(&self) {
        self.closed.notify_waiters();
    }
}
