//! One client: its locks, its workers, and how it ends.

use super::{
    options::{SUCCESSORS, WORKERS},
    resource::Resource,
    schedule::mixed,
    worker::Worker,
};
use crate::{
    BoxError, Probe, Subject,
    check::chain,
    judge::{Recorder, What},
    own_runtime::in_own_runtime,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tenure_core::{Backend, Locks, Moment, Owner};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// The common part of all clients.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) names: Arc<[String]>,
    pub(super) lease: Duration,
    pub(super) seed: u64,
    pub(super) recorder: Recorder,
    pub(super) resource: Arc<dyn Resource>,
    /// The program that all clients are, if they are not tenure's own.
    pub(super) program: Option<String>,
    /// The program that every other process is.
    pub(super) beside: Option<PathBuf>,
}

/// A client at work.
pub(super) struct Client {
    name: String,
    locks: Locks,
    /// Between it and the store.
    pub(super) probe: Probe,
    recorder: Recorder,
    workers: JoinSet<()>,
    stop: CancellationToken,
    patience: Duration,
}

impl Client {
    /// Opens the store, and sets the workers to work; nothing when `stop` comes first.
    pub(super) async fn start(setting: &Setting, name: &str, stop: &CancellationToken) -> Option<Self> {
        // Not a child of the other: a client is closed first, and stops with that.
        let over = CancellationToken::new();
        let mut workers = JoinSet::new();
        // Another runtime has another clock, which is not paused.
        let elsewhere = seeded(setting.seed, name).u8(..3) == 0 && !Moment::are_virtual();
        let (probe, locks) = if elsewhere {
            let (opened, open) = oneshot::channel();
            let beginning =
                begin_elsewhere(setting.clone(), name.to_owned(), stop.clone(), over.clone(), opened);
            workers.spawn(beginning);
            open.await.ok()?
        } else {
            setting.open(name, stop).await?
        };
        for number in 1 + usize::from(elsewhere)..=WORKERS {
            workers.spawn(setting.worker(name, number, &locks, &over).work(None));
        }
        let (name, recorder) = (name.to_owned(), setting.recorder.clone());
        Some(Self { name, locks, probe, recorder, workers, stop: over, patience: patience(setting.lease) })
    }

    /// Closes the locks while the workers are still at it, and waits for both.
    ///
    /// Leaves a client behind that takes too long: the judge sees that its closing did not end.
    pub(super) async fn close(mut self) {
        self.recorder.note(&self.name, What::Closes);
        let closing = async {
            if tokio::time::timeout(self.patience, self.locks.close()).await.is_ok() {
                self.recorder.note(&self.name, What::Closed);
            }
        };
        let finishing = async {
            self.stop.cancel();
            let finished = async {
                while let Some(worker) = self.workers.join_next().await {
                    if let Err(error) = worker {
                        // A panic in a worker is one in this suite or in lock-core: never to be passed over.
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
            };
            // A worker that does not come back has an acquisition or a release that hangs.
            let _ = tokio::time::timeout(self.patience, finished).await;
        };
        tokio::join!(closing, finishing);
        self.workers.abort_all();
        while self.workers.join_next().await.is_some() {}
        // Now that nothing is held, the store is let go.
        let _ = tokio::time::timeout(self.patience, self.locks.close()).await;
    }
}

/// Opens the store and lets the first worker take its first step in a runtime that ends with that, as a test's does
/// whose `static` lives on. What the worker then holds it goes on holding here.
async fn begin_elsewhere(
    setting: Setting,
    client: String,
    stop: CancellationToken,
    over: CancellationToken,
    opened: oneshot::Sender<(Probe, Locks)>,
) {
    let beginning = in_own_runtime(move || async move {
        let Some((probe, locks)) = setting.open(&client, &stop).await else { return Ok(None) };
        let mut worker = setting.worker(&client, 1, &locks, &over);
        // If the client was given up, the receiver is gone.
        let _ = opened.send((probe, locks));
        let held = worker.take().await;
        Ok(Some((worker, held)))
    });
    let begun = beginning.await.unwrap_or_else(|stop| panic!("a runtime that ends: {stop:?}"));
    if let Some((worker, held)) = begun {
        if held.is_some() {
            worker.note(What::RuntimeEnded);
        }
        worker.work(held).await;
    }
}

/// The random numbers of this client, or worker.
pub(super) fn seeded(seed: u64, name: &str) -> fastrand::Rng {
    let seed = name.bytes().fold(seed, |seed, byte| mixed([seed, byte.into()]).u64(..));
    fastrand::Rng::with_seed(seed)
}

/// How long the end of a client may take: much longer than the contract allows.
pub(super) fn patience(lease: Duration) -> Duration {
    lease * 4 + Duration::from_secs(10)
}

impl Setting {
    /// Opens the store, again and again until `stop`: it may be out of order just now.
    async fn open(&self, client: &str, stop: &CancellationToken) -> Option<(Probe, Locks)> {
        loop {
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                outcome = self.subject.backend() => outcome,
            };
            match outcome.and_then(|backend| self.client_of(backend, client)) {
                Ok(opened) => return Some(opened),
                Err(error) => {
                    let why = format!("no client: {}", chain(&*error));
                    self.recorder.note(client, What::Ended { call: 0, why });
                    tokio::time::sleep(self.lease / 10).await;
                }
            }
        }
    }

    fn client_of(&self, backend: Arc<dyn Backend>, client: &str) -> Result<(Probe, Locks), BoxError> {
        let probe = Probe::over(backend);
        let locks = Locks::new(probe.clone());
        let successors = if self.hands_on(client, &locks) { SUCCESSORS } else { 0 };
        Ok((probe, locks.with_succession(successors)?))
    }

    /// Whether this client hands grants on: if the store can, half of them do.
    fn hands_on(&self, client: &str, locks: &Locks) -> bool {
        locks.capabilities().succession > 0 && seeded(self.seed, &format!("{client} hands on")).bool()
    }

    fn worker(&self, client: &str, number: usize, locks: &Locks, stop: &CancellationToken) -> Worker {
        let lane = format!("{client}/{number}");
        Worker {
            rng: seeded(self.seed, &lane),
            lane,
            locks: locks.clone(),
            names: Arc::clone(&self.names),
            lease: self.lease,
            resource: Arc::clone(&self.resource),
            recorder: self.recorder.clone(),
            stop: stop.clone(),
            hands_on: self.hands_on(client, locks),
            owner: Owner::new(),
            owned: None,
            calls: 0,
        }
    }
}
