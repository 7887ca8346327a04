//! Carries out the schedule.

use super::{
    client::{Client, Setting},
    figures::Figures,
    process::Process,
    schedule::{AnyFault, Planned},
};
use crate::{
    Probe, Subject,
    check::{Check, Stop, chain},
    judge::{Effect, Event, Recorder, What},
    saboteur::{Hurt, SabotageError},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Backend, Name};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The common part of all tracks.
#[derive(Clone)]
pub(super) struct Injector {
    pub(super) recorder: Recorder,
    pub(super) figures: Arc<Mutex<Figures>>,
    pub(super) last: Arc<AtomicU64>,
    pub(super) begun: Instant,
    /// The round's faults are over.
    pub(super) over: CancellationToken,
}

/// The client that is in a place now, by name, and what stands between it and the store.
pub(super) type ClientPlace = Arc<Mutex<Option<(String, Probe)>>>;
/// The process that is in a place now.
pub(super) type ProcessPlace = Arc<AsyncMutex<Option<Process>>>;

impl Injector {
    /// Waits for the next fault's time; `false` when the round's faults are over.
    async fn reach(&self, planned: &Planned) -> bool {
        tokio::select! {
            biased;
            () = self.over.cancelled() => false,
            () = sleep_until(self.begun + planned.at) => true,
        }
    }

    async fn last_for(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = sleep(time) => {}
        }
    }

    /// Notes that a fault begins, and gives its number.
    fn begin(&self, whom: &str, what: AnyFault, effect: Effect) -> u64 {
        let fault = self.last.fetch_add(1, Ordering::Relaxed);
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).count_fault(what.kind());
        self.recorder.note(whom, What::Fault { fault, kind: what.to_string(), effect });
        fault
    }

    fn end(&self, whom: &str, fault: u64) {
        self.recorder.note(whom, What::Healed { fault });
    }

    /// The faults of a client in this process.
    pub(super) async fn hurt_client(self, faults: Vec<Planned>, place: ClientPlace) {
        for planned in faults {
            if !self.reach(&planned).await {
                return;
            }
            let there = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some((client, probe)) = there else { continue };
            match planned.what {
                AnyFault::Hang => probe.freeze(),
                AnyFault::Request(method, fault) => probe.always(method, fault),
                _ => continue,
            }
            let fault = self.begin(&client, planned.what, Effect::None);
            self.last_for(planned.lasts).await;
            probe.heal();
            self.end(&client, fault);
        }
    }

    /// Starts a process and hurts it. When it was killed, another takes its place.
    pub(super) async fn hurt_process(
        self,
        faults: Vec<Planned>,
        place: ProcessPlace,
        mut start: impl FnMut() -> Check<Process>,
    ) -> Check {
        place.lock().await.replace(start()?);
        for planned in faults {
            if !self.reach(&planned).await {
                return Ok(());
            }
            match planned.what {
                AnyFault::Kill => {
                    let Some(process) = place.lock().await.take() else { continue };
                    let name = process.name.clone();
                    let fault = self.begin(&name, planned.what, Effect::Kills);
                    process.kill().await?;
                    self.end(&name, fault);
                    if !self.over.is_cancelled() {
                        place.lock().await.replace(start()?);
                    }
                }
                what @ (AnyFault::Freeze | AnyFault::NoFiles | AnyFault::NoWrites(_)) => {
                    let (there, freezes) = (place.lock().await, what == AnyFault::Freeze);
                    let fit = there.as_ref().filter(|process| freezes || process.can_lack_files());
                    let Some(process) = fit else { continue };
                    let effect = if freezes { Effect::Stops } else { Effect::None };
                    let fault = self.begin(&process.name, what, effect);
                    process.hurt(what, true)?;
                    self.last_for(planned.lasts).await;
                    process.hurt(what, false)?;
                    self.end(&process.name, fault);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The faults of the store.
    pub(super) async fn hurt_store(
        self,
        faults: Vec<Planned>,
        names: Arc<[String]>,
        people: Arc<dyn Backend>,
        subject: Arc<dyn Subject>,
    ) -> Check {
        let saboteur = subject.saboteur();
        for planned in faults {
            if !self.reach(&planned).await {
                return Ok(());
            }
            match (planned.what, &saboteur) {
                (AnyFault::Force(index), _) => {
                    let name = names[index].clone();
                    let forgets = Effect::Forgets { name: Some(name.clone()) };
                    let fault = self.begin(Event::STORE, planned.what, forgets);
                    // A request without an answer may arrive later, so the fault goes on in this round and in the next.
                    if people.force_release(&Name::new(name)?).await.is_ok() {
                        self.end(Event::STORE, fault);
                    }
                }
                (AnyFault::Server(injection), Some(saboteur)) => {
                    let before = done(saboteur.last_failover().await)?;
                    let fault = self.begin(Event::STORE, planned.what, effect(injection.hurt, &*subject));
                    done(saboteur.inject(injection).await)?;
                    let mut second = None;
                    if let Some(other) = planned.second {
                        self.last_for(planned.lasts / 2).await;
                        let what = AnyFault::Server(other);
                        second = Some(self.begin(Event::STORE, what, effect(other.hurt, &*subject)));
                        done(saboteur.inject(other).await)?;
                        self.last_for(planned.lasts / 2).await;
                    } else if injection.hurt.lasts() {
                        self.last_for(planned.lasts).await;
                    }
                    done(saboteur.heal().await)?;
                    if done(saboteur.last_failover().await)? != before {
                        self.recorder.note(Event::STORE, What::FailedOver { fault });
                    }
                    for fault in [Some(fault), second].into_iter().flatten() {
                        self.end(Event::STORE, fault);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The effect that the contract allows for when the server has this fault.
fn effect(hurt: Hurt, subject: &dyn Subject) -> Effect {
    match hurt {
        hurt if !subject.forgets(hurt) => Effect::None,
        Hurt::ClockAhead => Effect::EndsLeases,
        _ => Effect::Forgets { name: None },
    }
}

fn done<T>(sabotage: Result<T, SabotageError>) -> Check<T> {
    sabotage.map_err(|error| {
        Stop::failed(format_args!("the suite could not inject or end a fault: {}", chain(&error)))
    })
}

/// Keeps a client in its place until the round is over: each lives for a while, closes its locks, and another comes.
pub(super) async fn keep_client(
    setting: Setting,
    place: ClientPlace,
    slot: String,
    lives: Vec<Duration>,
    over: CancellationToken,
) {
    let lives = lives.into_iter().chain(std::iter::repeat(Duration::MAX));
    for (generation, life) in (1_u64..).zip(lives) {
        let name = format!("{slot}.{generation}");
        let Some(client) = Client::start(&setting, &name, &over).await else { return };
        let put = |there| *place.lock().unwrap_or_else(PoisonError::into_inner) = there;
        put(Some((name, client.probe.clone())));
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            () = sleep(life) => {}
        }
        let probe = client.probe.clone();
        put(None);
        if over.is_cancelled() {
            probe.heal();
        }
        client.close().await;
        if over.is_cancelled() {
            return;
        }
    }
}
