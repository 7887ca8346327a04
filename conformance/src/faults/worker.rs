//! The work of a client, again and again: acquire a lock, use the resource that it protects, release it.

use super::{
    resource::Resource,
    schedule::between,
    step::{Bound, Held, PARTIES, Step, Wanted},
    word::{SAME, Word},
};
use crate::{
    Form,
    check::Stop,
    judge::{Outcome, Recorder, Stamp, What},
    own_runtime::in_own_runtime,
};
use fastrand::Rng;
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tenure_core::{ClaimId, Error, Hold, Locks, Mode, Moment, Owner};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// One task of a client.
pub(super) struct Worker {
    pub(super) lane: String,
    pub(super) locks: Locks,
    pub(super) names: Arc<[String]>,
    pub(super) lease: Duration,
    pub(super) resource: Arc<dyn Resource>,
    pub(super) recorder: Recorder,
    pub(super) rng: Rng,
    pub(super) stop: CancellationToken,
    /// Whether its client hands grants on.
    pub(super) hands_on: bool,
    /// As whom it re-enters what it holds.
    pub(super) owner: Owner,
    /// Its last claim as that owner.
    pub(super) owned: Option<ClaimId>,
    /// How often it has asked so far.
    pub(super) calls: u64,
}

/// How a lock is asked for.
enum Asking {
    Once,
    For(Duration),
    /// Without a bound, until the locks are closed.
    Endlessly,
    /// Without a bound, and the future is dropped after this.
    UntilDropped(Duration),
}

impl Asking {
    /// The hold, or why there is none.
    async fn carry_out(self, wanted: Wanted) -> Result<Held, String> {
        let outcome = match self {
            Self::Once => wanted.try_acquire().await.map(|held| held.ok_or("busy")),
            Self::For(wait) => wanted.wait(wait).acquire().await.map(Ok),
            Self::Endlessly => wanted.acquire().await.map(Ok),
            Self::UntilDropped(after) => match tokio::time::timeout(after, wanted.acquire()).await {
                Ok(outcome) => outcome.map(Ok),
                Err(_) => Ok(Err("dropped")),
            },
        };
        match outcome {
            Ok(held) => held.map_err(str::to_owned),
            Err(Error::Timeout { .. }) => Err("timeout".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Worker {
    /// Works until it is stopped, beginning with what it holds already.
    pub(super) async fn work(mut self, held: Option<Held>) {
        if let Some(held) = held {
            self.hold(held).await;
        }
        while !self.stop.is_cancelled() {
            if let Some(held) = self.take().await {
                self.hold(held).await;
            }
            sleep(between(&mut self.rng, Duration::from_millis(1), self.lease / 10)).await;
        }
    }

    /// Takes a step up to where something is held, if it comes to that.
    pub(super) async fn take(&mut self) -> Option<Held> {
        let step = if self.hands_on && self.rng.bool() {
            Step::Chain
        } else {
            Step::draw(&mut self.rng, self.locks.capabilities(), self.names.len())
        };
        if step == Step::Latch {
            self.calls += 1;
            self.count_down(self.calls).await;
            return None;
        }
        let names = self.names_of(step);
        // Each name of several is an acquisition of its own.
        let calls: Vec<_> = (self.calls + 1..).take(names.len()).collect();
        self.calls += names.len() as u64;
        self.ask(step, &calls, &names).await
    }

    fn names_of(&mut self, step: Step) -> Vec<String> {
        match step {
            Step::Several => self.names.to_vec(),
            Step::Chain => vec![self.names[0].clone()],
            _ => vec![self.names[self.rng.usize(..self.names.len())].clone()],
        }
    }

    async fn ask(&mut self, step: Step, calls: &[u64], names: &[String]) -> Option<Held> {
        let asking = match self.rng.u8(..10) {
            0 | 1 => Asking::Once,
            2..=6 => Asking::For(between(&mut self.rng, self.lease / 4, self.lease * 4)),
            7 | 8 => Asking::UntilDropped(between(&mut self.rng, Duration::from_millis(1), self.lease * 3)),
            _ => Asking::Endlessly,
        };
        let budget = match asking {
            // Without an answer, one attempt ends after a lease; several names are tried one after the other.
            Asking::Once => Some(self.lease * u32::try_from(names.len()).unwrap_or(u32::MAX)),
            Asking::For(wait) | Asking::UntilDropped(wait) => Some(wait),
            Asking::Endlessly => None,
        };
        let (renew, lease) = (self.rng.u8(..5) > 0 || step == Step::Chain, self.lease);
        let label = self.label(step);
        let bound = Bound::draw(&mut self.rng, step, self.locks.capabilities(), lease);
        let owns = matches!(step, Step::One(Form::Lock) | Step::Chain) && self.rng.u8(..3) == 0;
        let wanted = Wanted::of(step, &self.locks, names, |lock| {
            let lock = bound.of(lock.lease(lease).renew(renew).label(&*label));
            if owns { lock.owner(&self.owner) } else { lock }
        });
        let by = budget.map(|budget| Stamp::now() + budget);
        for (call, name) in calls.iter().zip(names) {
            self.note(What::Asks { call: *call, name: name.clone(), by });
        }
        // Now and then what asked ends before what it was granted, as a test's runtime does.
        let outcome = if self.rng.u8(..8) == 0 && !Moment::are_virtual() {
            for call in calls {
                self.note(What::Elsewhere { call: *call });
            }
            let elsewhere = in_own_runtime(move || async move { Ok(asking.carry_out(wanted).await) });
            elsewhere.await.unwrap_or_else(|stop| match stop {
                // A process without file descriptors makes no runtime.
                Stop::Failed(why) if why.contains("os error 24") || why.contains("os error 22") => Err(why),
                stop => panic!("a runtime that ends: {stop:?}"),
            })
        } else {
            asking.carry_out(wanted).await
        };
        let why = match outcome {
            Ok(held) => {
                let holds = held.holds();
                self.note_grants(calls, names, &holds, &label);
                self.owned = holds.first().filter(|_| owns).map(Hold::claim);
                return Some(held);
            }
            Err(why) => why,
        };
        for call in calls {
            self.note(What::Ended { call: *call, why: why.clone() });
        }
        None
    }

    /// The label that people see. Only holds with equal labels hand a grant on to each other. Sets of several names
    /// inherit none: their first grants are not noted, and the judge would not know when that chain began.
    fn label(&mut self, step: Step) -> String {
        match self.lane.split_once('/') {
            Some((client, _)) if step != Step::Several && self.hands_on && self.rng.u8(..4) > 0 => {
                client.to_owned()
            }
            _ => self.lane.clone(),
        }
    }

    fn note_grants(&self, calls: &[u64], names: &[String], holds: &[Hold], label: &str) {
        for hold in holds {
            let name = hold.name().as_str().to_owned();
            let place = names.iter().position(|asked| *asked == name);
            let call = place.and_then(|place| calls.get(place)).copied().unwrap_or_default();
            let until = hold.deadline().map_or_else(Stamp::now, Stamp::of);
            let (claim, token) = (hold.claim().to_string(), hold.token().get());
            let (mode, lease, label) = (hold.mode(), self.lease, label.to_owned());
            self.note(What::Granted { call, name, claim, mode, token, until, lease, label });
        }
    }

    async fn hold(&mut self, mut held: Held) {
        let holds = held.holds();
        let mut lost = pin!(Held::lost(&holds));
        let longest = match self.rng.u8(..10) {
            0..=3 => self.lease / 10,
            // A lock held for longer than a third of the lease is not handed on.
            4 | 5 if self.hands_on => self.lease / 10,
            4..=7 => self.lease,
            _ => self.lease * 3,
        };
        let after = between(&mut self.rng, Duration::from_millis(1), longest);
        let stays = self.rng.u8(..3) == 0;
        let mut done = pin!(had_its_time(&holds, after, stays.then_some(self.lease)));
        let stop = self.stop.clone();
        let mut looking = pin!(self.look(&holds));
        loop {
            tokio::select! {
                biased;
                _ = &mut lost => {
                    for hold in &holds {
                        if let Some(cause) = hold.loss() {
                            let (claim, token) = (hold.claim().to_string(), hold.token().get());
                            self.note(What::Lost { claim, token, cause: cause.as_str().to_owned() });
                        }
                    }
                    if self.rng.u8(..3) == 0 {
                        // Like a careless client: the fence is there for this.
                        self.update(&holds).await;
                    }
                    break;
                }
                () = &mut done => break,
                () = stop.cancelled() => break,
                never = &mut looking => match never {},
                () = self.use_it(&mut held, &holds) => {}
            }
        }
        for hold in &holds {
            self.note(What::Releases { claim: hold.claim().to_string(), token: hold.token().get() });
        }
        if self.rng.u8(..5) == 0 {
            drop(held);
            return;
        }
        let released = held.release().await;
        for hold in &holds {
            let outcome = match (&released, hold.loss()) {
                (Ok(()), _) => Outcome::Released,
                (Err(_), Some(cause)) => Outcome::Lost(cause.as_str().to_owned()),
                (Err(Error::Lost { name, cause, .. }), None) if name == hold.name() => {
                    Outcome::Lost(cause.as_str().to_owned())
                }
                (Err(error), None) => Outcome::Failed(error.to_string()),
            };
            let (claim, token) = (hold.claim().to_string(), hold.token().get());
            self.note(What::Released { claim, token, outcome });
        }
    }

    /// Asks the guard again and again until when it holds, also while it is being converted.
    fn look<'h>(&self, holds: &'h [Hold]) -> impl Future<Output = Infallible> + use<'h> {
        let (recorder, lane, pause) = (self.recorder.clone(), self.lane.clone(), self.lease / 50);
        let mut last_words = vec![Stamp::ZERO; holds.len()];
        async move {
            loop {
                for (hold, last_word) in holds.iter().zip(&mut last_words) {
                    if let Some(word) = Word::of(hold)
                        && (word.is_late() || word.until.since(*last_word) > SAME)
                    {
                        *last_word = word.until;
                        word.note(&recorder, &lane, hold);
                    }
                }
                sleep(pause).await;
            }
        }
    }

    /// Uses what the lock protects, and changes how it is held now and then.
    async fn use_it(&mut self, held: &mut Held, holds: &[Hold]) {
        match self.rng.u8(..20) {
            0..=4 if self.all_hold(holds) => self.update(holds).await,
            5 if self.locks.capabilities().shared => self.convert(held).await,
            // As long as all leases are alike, this makes no deadline earlier than the judge has heard. A session has none.
            6 => _ = holds[0].extend(self.lease).await,
            7 | 8 => self.reenter(&holds[0]).await,
            _ => {}
        }
        sleep(self.lease / 50).await;
    }

    /// Whether all guards say that they hold; one that says so too late is noted.
    fn all_hold(&self, holds: &[Hold]) -> bool {
        holds.iter().all(|hold| {
            let word = Word::of(hold);
            if let Some(late) = word.filter(Word::is_late) {
                late.note(&self.recorder, &self.lane, hold);
            }
            word.is_some()
        })
    }

    /// Enters again what it holds as its owner, and leaves it: the first guard goes on holding.
    async fn reenter(&mut self, hold: &Hold) {
        if self.owned != Some(hold.claim()) {
            return;
        }
        let name = hold.name().as_str();
        // It cannot enter a lock that it has lost, or holds as a reader by now.
        let Ok(Some(again)) = self.locks.lock(name).owner(&self.owner).try_acquire().await else { return };
        if again.claim() != hold.claim() {
            // A new grant, which the judge will find beside the first.
            self.calls += 1;
            self.note_grants(&[self.calls], &[name.to_owned()], &[again.hold()], "");
            self.note(What::Releases { claim: again.claim().to_string(), token: again.token().get() });
        }
        let _ = again.release().await;
    }

    /// Makes a writer a reader, or the only reader a writer.
    async fn convert(&mut self, held: &mut Held) {
        let Held::One(guard) = held else { return };
        let (claim, token) = (guard.claim().to_string(), guard.token().get());
        match guard.mode() {
            Mode::Exclusive => {
                // It counts as a reader from here on, even if the request fails.
                self.note(What::Converted { claim, token, mode: Mode::Shared });
                let _ = guard.downgrade().await;
            }
            Mode::Shared if matches!(guard.try_upgrade().await, Ok(true)) => {
                self.note(What::Converted { claim, token, mode: Mode::Exclusive });
            }
            _ => {}
        }
    }

    /// Reads the number, pauses, writes one more. Only an exclusive holder does so: readers hold at once, and the fence
    /// would refuse the older tokens.
    async fn update(&mut self, holds: &[Hold]) {
        let hold = &holds[self.rng.usize(..holds.len())];
        if hold.mode() != Mode::Exclusive {
            return;
        }
        let name = hold.name().as_str();
        let Some(value) = self.resource.read(&self.lane, name, hold.token()).await else { return };
        sleep(between(&mut self.rng, Duration::ZERO, self.lease / 20)).await;
        self.resource.write(&self.lane, name, hold.token(), value).await;
    }

    /// Is every party of a latch, one after the other, some of them twice.
    async fn count_down(&mut self, call: u64) {
        let name = format!("{}.{}.{call}", self.names[0], self.lane);
        let latch = self.locks.latch(&name, PARTIES);
        let since = Stamp::now();
        let (mut begun, mut sure) = (0, 0);
        for party in 1..=PARTIES {
            begun = party;
            let mut counted = false;
            for _ in 0..=self.rng.u8(..2) {
                // An answer would be waited for as long as the store hangs.
                let answer = tokio::time::timeout(self.lease, latch.count_down(party.to_string())).await;
                let Ok(Ok(missing)) = answer else { continue };
                sure += u32::from(!std::mem::replace(&mut counted, true));
                self.note(What::Looked { name: name.clone(), since, of: PARTIES, begun, sure, missing });
            }
        }
        if let Ok(Ok(missing)) = tokio::time::timeout(self.lease, latch.missing()).await {
            self.note(What::Looked { name, since, of: PARTIES, begun, sure, missing });
        }
        let _ = tokio::time::timeout(self.lease, latch.remove()).await;
    }

    pub(super) fn note(&self, what: What) {
        self.recorder.note(&self.lane, what);
    }
}

/// Ends when a holder has had its time. Some release nothing while they are not being renewed, if less than this lease
/// is left to them: only a client that still holds can see a loss that comes too late.
async fn had_its_time(holds: &[Hold], after: Duration, unless_within: Option<Duration>) {
    const BLINK: Duration = Duration::from_millis(10);
    sleep(after).await;
    let until = || holds.iter().filter_map(Hold::deadline).min();
    let near = |until: &Moment| unless_within.is_some_and(|lease| until.left() <= lease);
    let Some(first) = until().filter(near) else { return };
    while until().is_none_or(|until| until <= first) {
        sleep(BLINK).await;
    }
}

#[cfg(test)]
mod tests;
