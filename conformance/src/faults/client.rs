//! One client: its locks, its workers, and how it ends.

use super::{
    options::{Options, WORKERS},
    resource::Resource,
    schedule::mixed,
    worker::Worker,
};
use crate::{
    Probe, Subject,
    check::chain,
    judge::{Recorder, What},
};
use std::{sync::Arc, time::Duration};
use tenure_core::Locks;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What all clients have in common.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) names: Arc<[String]>,
    pub(super) lease: Duration,
    pub(super) seed: u64,
    pub(super) recorder: Recorder,
    pub(super) resource: Arc<dyn Resource>,
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
    /// Opens the store, again and again until `stop`: it may be out of order just now.
    pub(super) async fn start(setting: &Setting, name: &str, stop: &CancellationToken) -> Option<Self> {
        let backend = loop {
            let opening = setting.subject.backend();
            let outcome = tokio::select! {
                () = stop.cancelled() => return None,
                outcome = opening => outcome,
            };
            match outcome {
                Ok(backend) => break backend,
                Err(error) => {
                    let call = 0;
                    setting
                        .recorder
                        .note(name, What::Ended { call, why: format!("no client: {}", chain(&*error)) });
                    tokio::time::sleep(setting.lease / 10).await;
                }
            }
        };
        let probe = Probe::over(backend);
        let locks = Locks::new(probe.clone());
        // Not a child of the other: a client is closed first, and stops with that.
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for number in 1..=WORKERS {
            let lane = format!("{name}/{number}");
            let seed = lane.bytes().fold(setting.seed, |seed, byte| mixed([seed, byte.into()]).u64(..));
            let worker = Worker {
                lane,
                locks: locks.clone(),
                names: Arc::clone(&setting.names),
                lease: setting.lease,
                resource: Arc::clone(&setting.resource),
                recorder: setting.recorder.clone(),
                rng: fastrand::Rng::with_seed(seed),
                stop: stop.clone(),
            };
            workers.spawn(worker.work());
        }
        let (name, recorder) = (name.to_owned(), setting.recorder.clone());
        Some(Self { name, locks, probe, recorder, workers, stop, patience: patience(setting.lease) })
    }

    /// Closes the locks while the workers are still at it, and waits for both.
    ///
    /// What takes too long is left behind: the judge sees that it did not end.
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

/// How long the end of a client may take: much longer than the contract allows.
pub(super) fn patience(lease: Duration) -> Duration {
    lease * 4 + Duration::from_secs(10)
}

impl Setting {
    pub(super) fn new(
        subject: Arc<dyn Subject>,
        names: Arc<[String]>,
        options: &Options,
        recorder: Recorder,
        resource: Arc<dyn Resource>,
    ) -> Self {
        Self { subject, names, lease: options.lease, seed: options.seed, recorder, resource }
    }
}
