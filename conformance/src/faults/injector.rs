//! Carries out the schedule.

use super::{
    client::{Client, Setting},
    figures::Figures,
    process::Process,
    schedule::{AnyFault, Planned, lasts},
};
use crate::{
    Probe, Subject,
    check::{Check, Stop, chain},
    judge::{Effect, Event, Recorder, What},
    saboteur::{Direction, Hurt, Sabotage, SabotageError, Saboteur},
};
use rustix::process::Signal;
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

    /// The faults of a process, and its successors when it was killed.
    pub(super) async fn hurt_process(self, faults: Vec<Planned>, place: ProcessPlace) -> Check {
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
                }
                AnyFault::Freeze => {
                    let there = place.lock().await;
                    let Some(process) = &*there else { continue };
                    let fault = self.begin(&process.name, planned.what, Effect::Stops);
                    process.signal(Signal::STOP)?;
                    self.last_for(planned.lasts).await;
                    process.signal(Signal::CONT)?;
                    self.end(&process.name, fault);
                }
                AnyFault::NoFiles => {
                    let there = place.lock().await;
                    let Some(process) = there.as_ref().filter(|process| process.can_lack_files()) else {
                        continue;
                    };
                    let fault = self.begin(&process.name, planned.what, Effect::None);
                    process.limit_files(true)?;
                    self.last_for(planned.lasts).await;
                    process.limit_files(false)?;
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
            match (planned.what, planned.what.hurt(), &saboteur) {
                (AnyFault::Force(index), ..) => {
                    let name = names[index].clone();
                    let forgets = Effect::Forgets { name: Some(name.clone()) };
                    let fault = self.begin(Event::STORE, planned.what, forgets);
                    // A request without an answer may arrive later, so the fault goes on in this round and in the next.
                    if people.force_release(&Name::new(name)?).await.is_ok() {
                        self.end(Event::STORE, fault);
                    }
                }
                (what, Some(hurt), Some(saboteur)) => {
                    let before = done(saboteur.last_failover().await)?;
                    let fault = self.begin(Event::STORE, what, effect(hurt, &*subject));
                    done(do_hurt(&**saboteur, what, hurt, planned.lasts).await)?;
                    let mut second = None;
                    if let Some(network) = planned.network {
                        self.last_for(planned.lasts / 2).await;
                        let what = AnyFault::Server(network);
                        second = Some(self.begin(Event::STORE, what, effect(network, &*subject)));
                        done(do_hurt(&**saboteur, what, network, planned.lasts).await)?;
                        self.last_for(planned.lasts / 2).await;
                    } else if lasts(hurt) {
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
    if subject.forgets(hurt) { Effect::Forgets { name: None } } else { Effect::None }
}

async fn do_hurt(saboteur: &dyn Saboteur, what: AnyFault, hurt: Hurt, lasts: Duration) -> Sabotage {
    let member = if let AnyFault::Member(_, member) = what { member } else { 0 };
    let direction = if what == AnyFault::LateRequests { Direction::Requests } else { Direction::Replies };
    match hurt {
        Hurt::Freeze => saboteur.freeze().await,
        Hurt::Kill => saboteur.kill().await,
        Hurt::Wipe => saboteur.restart_empty().await,
        Hurt::Cut => saboteur.cut().await,
        Hurt::Refuse => saboteur.refuse().await,
        Hurt::Delay => saboteur.delay(direction, lasts / 3).await,
        // A request and its answer take a good part of the fault.
        Hurt::Drip => saboteur.drip(lasts / 300).await,
        Hurt::HalfOpen => saboteur.half_open().await,
        Hurt::DropRequests => saboteur.drop_requests().await,
        Hurt::DropReplies => saboteur.drop_replies().await,
        Hurt::LoseEnds => saboteur.lose_ends().await,
        Hurt::ExpireSessions => saboteur.expire_sessions().await,
        Hurt::TerminateBackends => saboteur.terminate_backends().await,
        Hurt::FlushScripts => saboteur.flush_scripts().await,
        Hurt::PauseWrites => saboteur.pause_writes(lasts).await,
        Hurt::ReadOnly => saboteur.make_read_only().await,
        Hurt::FillConnections => saboteur.fill_connections().await,
        Hurt::FillMemory => saboteur.fill_memory().await,
        Hurt::FillDisk => saboteur.fill_disk().await,
        Hurt::LockRows => saboteur.lock_rows().await,
        Hurt::LockTables => saboteur.lock_tables().await,
        Hurt::Partition => saboteur.partition(&[member]).await,
        Hurt::FreezeOne => saboteur.freeze_one(member).await,
        Hurt::KillOne => saboteur.kill_one(member).await,
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
