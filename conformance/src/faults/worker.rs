//! What a client does all day: take a lock, use what it protects, give it back.

use super::{resource::Resource, schedule::between};
use crate::judge::{Outcome, Recorder, Stamp, What};
use fastrand::Rng;
use std::{pin::pin, sync::Arc, time::Duration};
use tenure_core::{Error, Guard, Lock, Locks};
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
}

/// How the lock is asked for.
enum Asking {
    Once,
    For(Duration),
    /// Without a bound, until the locks are closed.
    Endlessly,
    /// Without a bound, and the future is dropped after this.
    UntilDropped(Duration),
}

impl Worker {
    pub(super) async fn work(mut self) {
        let mut call = 0;
        while !self.stop.is_cancelled() {
            call += 1;
            let name = self.names[self.rng.usize(..self.names.len())].clone();
            let lock =
                self.locks.lock(&name).lease(self.lease).renew(self.rng.u8(..5) > 0).label(&*self.lane);
            if let Some(guard) = self.ask(call, &name, &lock).await {
                self.hold(&name, guard).await;
            }
            sleep(between(&mut self.rng, Duration::from_millis(1), self.lease / 10)).await;
        }
    }

    async fn ask(&mut self, call: u64, name: &str, lock: &Lock) -> Option<Guard> {
        let asking = match self.rng.u8(..10) {
            0 | 1 => Asking::Once,
            2..=6 => Asking::For(between(&mut self.rng, self.lease / 4, self.lease * 4)),
            7 | 8 => Asking::UntilDropped(between(&mut self.rng, Duration::from_millis(1), self.lease * 3)),
            _ => Asking::Endlessly,
        };
        let budget = match asking {
            // Without an answer, one attempt ends after a lease.
            Asking::Once => Some(self.lease),
            Asking::For(wait) | Asking::UntilDropped(wait) => Some(wait),
            Asking::Endlessly => None,
        };
        let by = budget.map(|budget| Stamp::now() + budget);
        self.note(What::Asks { call, name: name.to_owned(), by });
        let outcome = match asking {
            Asking::Once => lock.try_acquire().await.map(|guard| guard.ok_or("busy")),
            Asking::For(wait) => lock.clone().wait(wait).acquire().await.map(Ok),
            Asking::Endlessly => lock.acquire().await.map(Ok),
            Asking::UntilDropped(after) => match tokio::time::timeout(after, lock.acquire()).await {
                Ok(outcome) => outcome.map(Ok),
                Err(_) => Ok(Err("dropped")),
            },
        };
        let why = match outcome {
            Ok(Ok(guard)) => {
                let until = guard.deadline().map_or_else(Stamp::now, Stamp::of);
                let (name, claim) = (name.to_owned(), guard.claim().to_string());
                let (token, lease) = (guard.token().get(), self.lease);
                self.note(What::Granted { call, name, claim, token, until, lease });
                return Some(guard);
            }
            Ok(Err(why)) => why.to_owned(),
            Err(Error::Timeout { .. }) => "timeout".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note(What::Ended { call, why });
        None
    }

    async fn hold(&mut self, name: &str, guard: Guard) {
        let claim = guard.claim().to_string();
        let mut lost = pin!(guard.lost());
        let longest = match self.rng.u8(..10) {
            0..=3 => self.lease / 10,
            4..=7 => self.lease,
            _ => self.lease * 3,
        };
        let mut done = pin!(sleep(between(&mut self.rng, Duration::from_millis(1), longest)));
        let stop = self.stop.clone();
        let mut last_word = guard.deadline().map_or(Stamp::ZERO, Stamp::of);
        loop {
            tokio::select! {
                biased;
                cause = &mut lost => {
                    self.note(What::Lost { claim: claim.clone(), cause: cause.as_str().to_owned() });
                    if self.rng.u8(..3) == 0 {
                        // As one who does not look: the fence is there for this.
                        self.update(name, &guard).await;
                    }
                    break;
                }
                () = &mut done => break,
                () = stop.cancelled() => break,
                () = self.look_and_update(name, &guard, &mut last_word) => {}
            }
        }
        self.note(What::Releases { claim: claim.clone() });
        if self.rng.u8(..5) == 0 {
            drop(guard);
            return;
        }
        let outcome = match guard.release().await {
            Ok(()) => Outcome::Released,
            Err(Error::Lost { cause, .. }) => Outcome::Lost(cause.as_str().to_owned()),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        self.note(What::Released { claim, outcome });
    }

    /// Asks the guard until when it holds, and uses what the lock protects.
    async fn look_and_update(&mut self, name: &str, guard: &Guard, last_word: &mut Stamp) {
        /// Closer than this it is the same deadline, read twice.
        const SAME: Duration = Duration::from_millis(2);
        if guard.is_held()
            && let Some(until) = guard.deadline().map(Stamp::of)
            && until.since(*last_word) > SAME
        {
            *last_word = until;
            self.note(What::Holds { claim: guard.claim().to_string(), until });
        }
        if self.rng.u8(..4) == 0 && guard.is_held() {
            self.update(name, guard).await;
        }
        sleep(self.lease / 50).await;
    }

    /// Reads the number, thinks, writes one more.
    async fn update(&mut self, name: &str, guard: &Guard) {
        let Some(value) = self.resource.read(&self.lane, name, guard.token()).await else { return };
        sleep(between(&mut self.rng, Duration::ZERO, self.lease / 20)).await;
        self.resource.write(&self.lane, name, guard.token(), value).await;
    }

    fn note(&self, what: What) {
        self.recorder.note(&self.lane, what);
    }
}
