//! One of the clients, and the requests that it makes.

use super::{
    history::{Answer, MOST, Request},
    scene::Scene,
};
use crate::{Check, check::Stop, pause};
use fastrand::Rng;
use std::{future::Future, num::NonZeroU32, pin::pin, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, HolderInfo,
    LatchStep, LossCause, Mode, Name, Renewal, Standing, StandingKind, StoreError, Token,
};
use tokio::task::{JoinHandle, yield_now};
use tokio_util::sync::CancellationToken;

/// Of every grant, so that none runs out in a history, however long the machine stands still.
const LEASE: Duration = Duration::from_mins(10);
/// How long a lease that was cut short may take to end: a limit for a store that hangs.
const HANG: Duration = Duration::from_mins(2);

/// One client: what it knows of its claims.
pub(super) struct Player {
    scene: Arc<Scene>,
    client: usize,
    rng: Rng,
    held: Vec<Grant>,
    /// Of claims that were released, withdrawn or lost.
    past: Vec<Grant>,
    waits: Vec<Wait>,
}

/// A claim that waits, in a task of its own.
struct Wait {
    claim: Claim,
    ends: CancellationToken,
    task: JoinHandle<Check<Option<Grant>>>,
}

impl Player {
    pub(super) fn new(scene: Arc<Scene>, client: usize) -> Self {
        let rng = Rng::with_seed(scene.seed * 2 + u64::try_from(client).unwrap_or(0));
        Self { scene, client, rng, held: Vec::new(), past: Vec::new(), waits: Vec::new() }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.scene.stores[self.client])
    }

    fn begin(&self, request: Request) -> usize {
        self.scene.history().begin(self.client, request)
    }

    fn end(&self, call: usize, answer: Answer) {
        self.scene.history().end(call, answer);
    }

    fn claim(&mut self, waits: bool) -> Claim {
        let name = self.name();
        let Some(mode) = self.rng.choice(self.scene.modes) else { unreachable!("a play has modes") };
        let reserve = if self.rng.u8(..4) == 0 { self.scene.capabilities.succession.min(2) } else { 0 };
        let holder = Arc::new(HolderInfo::here(None));
        Claim { id: ClaimId::new(), name, mode: *mode, lease: LEASE, waits, reserve, holder }
    }

    fn name(&mut self) -> Name {
        // Most requests meet at one name.
        self.scene.names[usize::from(self.rng.u8(..4) == 0)].clone()
    }

    fn one_of(&mut self, past: bool) -> Option<Grant> {
        let grants = if past { &self.past } else { &self.held };
        let index = self.rng.usize(..grants.len().max(1));
        grants.get(index).cloned()
    }

    /// Forgets that the claim holds its name.
    fn lost(&mut self, grant: &Grant) {
        self.held.retain(|held| held.claim != grant.claim);
        self.past.push(grant.clone());
    }

    pub(super) async fn round(mut self) -> Check<Self> {
        for wait in std::mem::take(&mut self.waits) {
            if wait.task.is_finished() {
                self.held.extend(wait.task.await??);
            } else {
                self.waits.push(wait);
            }
        }
        for _ in 0..self.rng.usize(1..=3) {
            if self.scene.history().calls.len() < MOST / 2 {
                self.step().await?;
            }
        }
        Ok(self)
    }

    async fn step(&mut self) -> Check {
        // In a simulation, no request takes time. Without this, the other client would run only while this one waits.
        for _ in 0..self.rng.u8(..3) {
            yield_now().await;
        }
        let Capabilities { shared, latches, together, listing, standing, .. } = self.scene.capabilities;
        let leases = standing == StandingKind::Lease;
        match self.rng.u8(..30) {
            7 if together => self.attempt_all().await,
            8..=10 if self.waits.len() < 2 => {
                self.wait();
                Ok(())
            }
            11 => self.give_up().await,
            12..=15 => self.release().await,
            16 | 17 if leases => self.renew().await,
            18 | 19 if shared => self.convert().await,
            20 => self.withdraw().await,
            21 if listing => self.force().await,
            22 | 23 if listing => self.look().await,
            24 | 28 | 29 if latches => self.latch().await,
            25 | 26 if leases && listing => self.lapse().await,
            _ => self.attempt().await,
        }
    }

    /// Makes the request. Sometimes gives up before the answer.
    async fn ask<T>(
        &mut self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<Result<T, StoreError>> {
        let gives_up = self.rng.u8(..8) == 0;
        let patience = Duration::from_micros(self.rng.u64(..1500));
        let request = pin!(request);
        let asked =
            if gives_up { tokio::time::timeout(patience, request).await.ok() } else { Some(request.await) };
        // It may have been carried out.
        asked.filter(|answer| !answer.as_ref().is_err_and(StoreError::is_unavailable))
    }

    async fn attempt(&mut self) -> Check {
        let mut claim = self.claim(false);
        // One that holds its name already. In a session, the client knows what it holds.
        if self.scene.capabilities.standing == StandingKind::Lease
            && self.rng.u8(..5) == 0
            && let Some(Grant { claim: id, name, mode, reserved, .. }) = self.one_of(false)
        {
            claim = Claim { id, name, mode, reserve: reserved, ..claim };
        }
        let (store, call) = (self.store(), self.begin(Request::Try(claim.clone())));
        match self.ask(store.try_acquire(&claim)).await {
            Some(Ok(Attempt::Granted(grant))) => {
                self.end(call, Answer::Granted(vec![(grant.token, grant.reserved)]));
                self.granted(grant);
            }
            Some(Ok(Attempt::Busy { .. })) => self.end(call, Answer::Busy),
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            None => {
                self.withdraw_claim(&claim).await?;
                self.held.retain(|held| held.claim != claim.id);
            }
        }
        Ok(())
    }

    fn granted(&mut self, grant: Grant) {
        self.held.retain(|held| held.claim != grant.claim);
        self.held.push(grant);
    }

    async fn attempt_all(&mut self) -> Check {
        let (mut claims, store) = (Vec::new(), self.store());
        for name in self.scene.names.clone() {
            claims.push(Claim { name, ..self.claim(false) });
        }
        let call = self.begin(Request::TryAll(claims.clone()));
        match self.ask(store.try_acquire_all(&claims)).await {
            Some(Ok(AttemptAll::Granted(grants))) => {
                let tokens = grants.iter().map(|grant| (grant.token, grant.reserved)).collect();
                self.end(call, Answer::Granted(tokens));
                self.held.extend(grants);
            }
            Some(Ok(AttemptAll::Busy)) => self.end(call, Answer::Busy),
            Some(Ok(AttemptAll::Apart)) => self.end(call, Answer::Apart),
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            None => {
                for claim in &claims {
                    self.withdraw_claim(claim).await?;
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self) {
        let (claim, ends, store) = (self.claim(true), CancellationToken::new(), self.store());
        let call = self.begin(Request::Wait(claim.clone()));
        let task = tokio::spawn({
            let (scene, claim, ends, client) =
                (Arc::clone(&self.scene), claim.clone(), ends.clone(), self.client);
            async move {
                let answer = tokio::select! {
                    biased;
                    answer = store.acquire(&claim) => answer,
                    () = ends.cancelled() => return Ok(None),
                };
                let grant = match answer {
                    Ok(grant) => grant,
                    Err(error) if error.is_unavailable() => return Ok(None),
                    Err(error) => {
                        scene.history().end(call, Answer::of(&error));
                        // It may have had a place in the queue.
                        withdrawn(&scene, client, &claim).await?;
                        return Ok(None);
                    }
                };
                confirmed(&scene, client, call, grant).await
            }
        });
        self.waits.push(Wait { claim, ends, task });
    }

    /// Gives up a wait, as if its caller had dropped it.
    async fn give_up(&mut self) -> Check {
        let Some(wait) = self.waits.pop() else { return Ok(()) };
        self.dropped(wait).await
    }

    async fn dropped(&mut self, wait: Wait) -> Check {
        // From now on it may leave the queue.
        let call = self.begin(Request::Withdraw(wait.claim.clone()));
        wait.ends.cancel();
        if let Some(grant) = wait.task.await?? {
            self.past.push(grant);
        }
        if answered(self.store().withdraw(&wait.claim).await)?.is_some() {
            self.end(call, Answer::Done);
        }
        Ok(())
    }

    async fn release(&mut self) -> Check {
        let past = self.rng.u8(..5) == 0;
        let Some(grant) = self.one_of(past) else { return Ok(()) };
        self.release_this(&grant).await
    }

    async fn release_this(&mut self, grant: &Grant) -> Check {
        let (store, call) = (self.store(), self.begin(Request::Release(grant.clone())));
        match self.ask(store.release(grant)).await {
            Some(Ok(answer)) => self.end(call, Answer::Release(answer)),
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            None => {}
        }
        self.lost(grant);
        Ok(())
    }

    /// Renews some grants in one request, and sometimes one that its holder has no more.
    async fn renew(&mut self) -> Check {
        let store = self.store();
        let past = self.rng.u8(..4) == 0;
        let mut grants: Vec<Grant> = self.one_of(true).filter(|_| past).into_iter().collect();
        let shard = |grant: &Grant| store.shard(&grant.name);
        for grant in &self.held {
            if grants.len() < 3 && grants.first().is_none_or(|first| shard(first) == shard(grant)) {
                grants.push(grant.clone());
            }
        }
        // As if the store had forgotten an upgrade.
        if self.rng.u8(..4) == 0
            && let Some(shared) = grants.iter_mut().find(|grant| grant.mode == Mode::Shared)
        {
            shared.mode = Mode::Exclusive;
        }
        if grants.is_empty() {
            return Ok(());
        }
        let calls: Vec<usize> =
            grants.iter().map(|grant| self.begin(Request::Renew(grant.clone()))).collect();
        let answers = match self.ask(store.renew(&grants)).await {
            Some(Ok(answers)) if answers.len() == grants.len() => answers,
            Some(Ok(answers)) => {
                return Err(Stop::failed(format_args!(
                    "`renew` of {} grants must return an answer for each: got {answers:?}",
                    grants.len()
                )));
            }
            Some(Err(error)) => {
                for call in calls {
                    self.end(call, Answer::of(&error));
                }
                return Ok(());
            }
            None => return Ok(()),
        };
        for ((call, grant), answer) in calls.into_iter().zip(grants).zip(answers) {
            match answer {
                Renewal::Renewed => self.end(call, Answer::Done),
                Renewal::Lost(cause) => {
                    self.end(call, Answer::Lost(cause));
                    self.lost(&grant);
                }
                Renewal::Unanswered => {}
            }
        }
        Ok(())
    }

    async fn convert(&mut self) -> Check {
        let past = self.rng.u8(..8) == 0;
        let Some(grant) = self.one_of(past) else { return Ok(()) };
        let to = match grant.mode {
            Mode::Exclusive => Mode::Shared,
            Mode::Shared => Mode::Exclusive,
            _ => return Ok(()),
        };
        let lesser = Grant { mode: Mode::Shared, ..grant.clone() };
        // The policy counts on no more than it will have.
        let asked = if to == Mode::Shared && self.rng.bool() { lesser.clone() } else { grant.clone() };
        let (store, call) = (self.store(), self.begin(Request::Convert(asked.clone(), to)));
        match self.ask(store.convert(&asked, to)).await {
            Some(Ok(answer)) => {
                self.end(call, Answer::Conversion(answer));
                match answer {
                    Conversion::Converted if !past => self.granted(Grant { mode: to, ..grant }),
                    Conversion::Lost(_) => self.lost(&grant),
                    _ => {}
                }
            }
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            // Its holder counts on no more than that.
            None if !past => self.granted(lesser),
            None => {}
        }
        Ok(())
    }

    async fn withdraw(&mut self) -> Check {
        let Some(grant) = self.one_of(false) else { return Ok(()) };
        let (waits, holder) = (false, Arc::new(HolderInfo::here(None)));
        let Grant { claim: id, name, mode, lease, reserved: reserve, .. } = grant.clone();
        self.lost(&grant);
        self.withdraw_claim(&Claim { id, name, mode, lease, waits, reserve, holder }).await
    }

    async fn withdraw_claim(&mut self, claim: &Claim) -> Check {
        withdrawn(&self.scene, self.client, claim).await
    }

    async fn force(&mut self) -> Check {
        let (name, store) = (self.name(), self.store());
        let call = self.begin(Request::Force(name.clone()));
        match self.ask(store.force_release(&name)).await {
            Some(Ok(held)) => self.end(call, Answer::Holders(told(&held))),
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            None => {}
        }
        Ok(())
    }

    async fn look(&mut self) -> Check {
        let (name, store) = (self.name(), self.store());
        if self.scene.capabilities.fair && self.scene.capabilities.waiting && self.rng.bool() {
            let call = self.begin(Request::Waiting(name.clone()));
            if let Some(waiting) = answered(store.waiting(&name).await)? {
                let waiting = waiting.into_iter().filter_map(|waiter| waiter.claim);
                // A single attempt may be in the queue for a moment.
                let answer = waiting.filter(|claim| self.scene.waits(*claim)).collect();
                self.end(call, Answer::Waiting(answer));
            }
        } else {
            let call = self.begin(Request::Holders(name.clone()));
            if let Some(held) = answered(store.holders(&name).await)? {
                self.end(call, Answer::Holders(told(&held)));
            }
        }
        Ok(())
    }

    async fn latch(&mut self) -> Check {
        let (name, store) = (self.name(), self.store());
        let of = NonZeroU32::new(self.rng.u32(2..=3)).unwrap_or(NonZeroU32::MIN);
        let step = match self.rng.u8(..6) {
            0 => LatchStep::Look,
            1 => LatchStep::Remove,
            _ => LatchStep::CountDown { party: Name::new(format!("p{}", self.rng.u8(..3)))?, of },
        };
        let call = self.begin(Request::Latch(name.clone(), step.clone()));
        match self.ask(store.latch(&name, &step)).await {
            Some(Ok(state)) => self.end(call, Answer::Latch(state)),
            Some(Err(error)) => self.end(call, Answer::of(&error)),
            None => {}
        }
        Ok(())
    }

    /// Cuts a lease short, and waits until the store says that it is over.
    async fn lapse(&mut self) -> Check {
        let scene = Arc::clone(&self.scene);
        let _turn = scene.lapse.lock().await;
        let Some(grant) = self.one_of(false) else { return Ok(()) };
        let (name, store) = (grant.name.clone(), self.store());
        let short = self.scene.brief;
        let brief = Grant { lease: short, ..grant.clone() };
        let after = self.begin(Request::Renew(brief.clone()));
        let lapse = self.begin(Request::Lapse { name: name.clone(), lease: short, after });
        let end = tokio::time::Instant::now() + HANG;
        let (mut renewed, mut tries) = (false, 0);
        // A longer renewal that this client gave up may come late, so the lease is cut short again if it does not end.
        'cut: loop {
            tries += 1;
            match answered(store.renew(std::slice::from_ref(&brief)).await)?.as_deref() {
                Some([Renewal::Renewed]) if !renewed => {
                    self.end(after, Answer::Done);
                    renewed = true;
                }
                Some([Renewal::Lost(cause)]) if !renewed && *cause != LossCause::Expired => {
                    self.end(after, Answer::Lost(*cause));
                    self.lost(&grant);
                    return Ok(());
                }
                // The answer of a slow store may come when even the short lease has expired.
                _ => {}
            }
            for _ in 0..self.scene.kept.as_millis() / 2 {
                let held = answered(store.holders(&name).await)?;
                // Even if it is gone: a store may list a holder by its end, and remove it a tick later.
                pause::look_again().await;
                if held.is_some_and(|held| held.iter().all(|holder| holder.claim != Some(grant.claim))) {
                    break 'cut;
                }
            }
            if tokio::time::Instant::now() >= end {
                return Err(Stop::failed(if renewed {
                    format!("a lease of {short:?} must expire, but its holder is still listed after {HANG:?}")
                } else {
                    format!(
                        "none of {tries} renewals that cut a lease to {short:?} was answered within it: the store or the \
                         way to it is too slow"
                    )
                }));
            }
        }
        self.end(lapse, Answer::Done);
        self.lost(&grant);
        Ok(())
    }

    pub(super) async fn leave(mut self) -> Check {
        for wait in std::mem::take(&mut self.waits) {
            if wait.task.is_finished() {
                self.held.extend(wait.task.await??);
            } else {
                self.dropped(wait).await?;
            }
        }
        for grant in std::mem::take(&mut self.held) {
            self.release_this(&grant).await?;
        }
        if self.scene.capabilities.latches {
            for name in &self.scene.names {
                answered(self.store().latch(name, &LatchStep::Remove).await)?;
            }
        }
        Ok(())
    }
}

/// Notes the grant. One that the store has handed over has a shorter lease until it is renewed. `None` if that was over too
/// soon.
async fn confirmed(scene: &Scene, client: usize, call: usize, grant: Grant) -> Check<Option<Grant>> {
    let (token, reserved) = (grant.token, grant.reserved);
    let stands = match grant.standing {
        Standing::Lease { stands, .. } if stands < grant.lease => stands,
        _ => {
            scene.history().end(call, Answer::Granted(vec![(token, reserved)]));
            return Ok(Some(grant));
        }
    };
    let renewal = {
        let mut history = scene.history();
        history.may_lapse(grant.name.clone(), stands, call);
        history.end(call, Answer::HandedOver(token, reserved, stands));
        history.begin(client, Request::Renew(grant.clone()))
    };
    match answered(scene.stores[client].renew(std::slice::from_ref(&grant)).await)?.as_deref() {
        Some([Renewal::Renewed]) => scene.history().end(renewal, Answer::Done),
        Some([Renewal::Lost(cause)]) => {
            scene.history().end(renewal, Answer::Lost(*cause));
            return Ok(None);
        }
        _ => {}
    }
    Ok(Some(grant))
}

/// Withdraws the claim, as `Locks` does if it gives up.
async fn withdrawn(scene: &Scene, client: usize, claim: &Claim) -> Check {
    let call = scene.history().begin(client, Request::Withdraw(claim.clone()));
    if answered(scene.stores[client].withdraw(claim).await)?.is_some() {
        scene.history().end(call, Answer::Done);
    }
    Ok(())
}

/// The answer; `None` if there was none.
pub(super) fn answered<T>(answer: Result<T, StoreError>) -> Check<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_unavailable() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn told(holders: &[Holder]) -> Vec<(Option<ClaimId>, Option<Token>, Mode)> {
    holders.iter().map(|holder| (holder.claim, holder.token, holder.mode)).collect()
}
