//! Runs one case on one store.

use crate::{
    Case, Clock, Stage, Subject, Subjects,
    check::{Check, Stop, chain},
    is_required,
};
use futures_util::future::OptionFuture;
use std::{collections::HashMap, sync::Arc};
use tokio::{
    runtime::Builder,
    sync::{OnceCell, RwLock, Semaphore, oneshot},
};

/// The outcome of one case on one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps the contract.
    Passed,
    /// The contract is broken, or the store does not work: the observation.
    Failed(String),
    /// The store lacks a need of the case, or is not available here: the reason.
    Ignored(String),
}

/// A store under test, started once when its first case runs.
pub(crate) struct Tested {
    pub(crate) subject: Arc<dyn Subject>,
    started: OnceCell<Result<(), String>>,
    /// Shared by cases; a case that disturbs the store itself takes it exclusively.
    quiet: Arc<RwLock<()>>,
}

impl Tested {
    pub(crate) fn all(subjects: Subjects) -> Vec<Arc<Self>> {
        let mut servers = HashMap::<String, Arc<RwLock<()>>>::new();
        let tested = |subject: Arc<dyn Subject>| {
            let quiet = Arc::clone(servers.entry(subject.disturbs()).or_default());
            Arc::new(Self { subject, started: OnceCell::new(), quiet })
        };
        subjects.into_iter().map(tested).collect()
    }

    /// Whether this case runs on this store.
    pub(crate) fn shows(&self, case: &Case) -> bool {
        self.subject.shows(case.group) && (case.clock != Clock::Virtual || self.subject.simulated().is_some())
    }

    /// Runs one case. One that keeps a processor busy takes a permit.
    pub(crate) async fn run(self: Arc<Self>, case: Case, permits: &Semaphore) -> Outcome {
        if let Some(subject) = self.subject.simulated().filter(|_| case.clock != Clock::Wall) {
            let _permit = permits.acquire().await;
            return simulate(subject, case).await;
        }
        if let Err(absent) = self.started().await {
            return if is_required(self.subject.name()) {
                Outcome::Failed(format!("{absent}, and TENURE_TEST_REQUIRE=1"))
            } else {
                Outcome::Ignored(absent.clone())
            };
        }
        let _alone = OptionFuture::from(case.alone.then(|| self.quiet.write())).await;
        let _together = OptionFuture::from((!case.alone).then(|| self.quiet.read())).await;
        // The access comes first: a case that waits for it needs no permit meanwhile. One that has the store alone mostly
        // waits.
        let _permit = OptionFuture::from((!case.alone).then(|| permits.acquire())).await;
        let outcome = outcome_of(Arc::clone(&self.subject), case).await;
        if case.alone { self.healed(outcome).await } else { outcome }
    }

    /// Heals the server for the next case, even if this one failed.
    async fn healed(&self, outcome: Outcome) -> Outcome {
        let Some(saboteur) = self.subject.saboteur() else { return outcome };
        match (saboteur.heal().await, outcome) {
            (Ok(()), outcome) | (Err(_), outcome @ Outcome::Failed(_)) => outcome,
            (Err(error), _) => Outcome::Failed(chain(&error)),
        }
    }

    /// Starts the store ahead of its first case, which reports the outcome.
    pub(crate) async fn start(self: Arc<Self>) {
        let _ = self.started().await;
    }

    /// Why the store is not available here; `None` unless its start has failed.
    pub(crate) fn absent(&self) -> Option<&String> {
        self.started.get()?.as_ref().err()
    }

    async fn started(&self) -> Result<(), &String> {
        let start = || async { self.subject.start().await.map_err(|absent| absent.to_string()) };
        self.started.get_or_init(start).await.as_ref().copied()
    }
}

/// Runs one case in virtual time: in a runtime of its own, whose clock jumps to the next timer when all tasks wait.
async fn simulate(subject: Arc<dyn Subject>, case: Case) -> Outcome {
    let (tell, told) = oneshot::channel();
    // A thread that hangs does not keep the program from ending.
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let outcome = match runtime {
            Ok(runtime) => runtime.block_on(outcome_of(subject, case)),
            Err(error) => Outcome::Failed(format!("no runtime for the simulation: {error}")),
        };
        drop(tell.send(outcome));
    });
    match tokio::time::timeout(case.limit, told).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Outcome::Failed("the case panicked, in virtual time".to_owned()),
        Err(_) => Outcome::Failed(format!("the case did not end within {:?}, in virtual time", case.limit)),
    }
}

/// Runs one case in a task of its own.
async fn outcome_of(subject: Arc<dyn Subject>, case: Case) -> Outcome {
    let mut task = tokio::spawn(play(subject, case));
    match tokio::time::timeout(case.limit, &mut task).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(Stop::Failed(what)))) => Outcome::Failed(what),
        Ok(Ok(Err(Stop::Lacks(need)))) => Outcome::Ignored(need.to_string()),
        Ok(Err(panic)) => Outcome::Failed(said(panic)),
        Err(_) => {
            task.abort();
            Outcome::Failed(format!("the case did not end within {:?}", case.limit))
        }
    }
}

async fn play(subject: Arc<dyn Subject>, case: Case) -> Check {
    let stage = Stage::new(subject, case.name, case.form).await?;
    (case.run)(&stage).await?;
    stage.strike().await
}

/// The message of a panic.
fn said(panic: tokio::task::JoinError) -> String {
    let Ok(panic) = panic.try_into_panic() else { return "the task of the case was cancelled".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(|| "the case panicked".to_owned(), |text| format!("the case panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Absent, BoxError, Need, async_trait, case::Running};
    use std::time::Duration;
    use tenure_core::{Backend, Memory};

    struct InMemory {
        memory: Memory,
        absent: Option<&'static str>,
    }

    #[async_trait]
    impl Subject for InMemory {
        fn name(&self) -> &'static str {
            "memory"
        }

        async fn start(&self) -> Result<(), Absent> {
            self.absent.map_or(Ok(()), |why| Err(Absent::because(why)))
        }

        async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
            Ok(Arc::new(self.memory.clone()))
        }
    }

    async fn tested(absent: Option<&'static str>, case: Case) -> Outcome {
        let subject = InMemory { memory: Memory::new(), absent };
        let tested = Tested::all(Subjects::new().with(subject)).remove(0);
        tested.run(case, &Semaphore::new(1)).await
    }

    async fn outcome(absent: Option<&'static str>, run: for<'a> fn(&'a Stage) -> Running<'a>) -> Outcome {
        tested(absent, Case::new("group", "name", run)).await
    }

    /// Asserts that the case failed with this message.
    fn failed(outcome: &Outcome, saying: &str) {
        assert!(matches!(outcome, Outcome::Failed(what) if what.contains(saying)), "{outcome:?}");
    }

    #[tokio::test]
    async fn case_passes_fails_or_is_ignored() {
        assert_eq!(outcome(None, |_| Box::pin(async { Ok(()) })).await, Outcome::Passed);
        let lacks = outcome(None, |stage| Box::pin(async { stage.needs(Need::Processes) })).await;
        assert_eq!(lacks, Outcome::Ignored(Need::Processes.to_string()));
        let seen = outcome(None, |_| Box::pin(async { Err(Stop::failed("two holders")) })).await;
        failed(&seen, "two holders (at conformance/src/suite.rs");
    }

    #[tokio::test]
    async fn case_that_hangs_or_panics_fails() {
        let hangs = Case::new("group", "name", |_| Box::pin(std::future::pending()));
        let hangs = Case { limit: Duration::from_millis(300), ..hangs };
        failed(&tested(None, hangs).await, "did not end within 300ms");
        let panics =
            |_: &Stage| -> Running<'_> { Box::pin(async { std::panic::resume_unwind(Box::new("oh")) }) };
        failed(&outcome(None, panics).await, "the case panicked: oh");
    }

    #[tokio::test]
    async fn case_that_leaves_a_grant_behind_fails() {
        fn leaks(stage: &Stage) -> Running<'_> {
            Box::pin(async move {
                let guard = stage.client().await?.lock(stage.name("a")).acquire().await?;
                std::mem::forget(guard);
                Ok(())
            })
        }
        failed(&outcome(None, leaks).await, "no queue is left in Client");
    }

    #[tokio::test]
    async fn absent_store_is_ignored_with_reason() {
        let absent = outcome(Some("no server"), |_| Box::pin(std::future::pending())).await;
        if is_required("memory") {
            failed(&absent, "no server, and TENURE_TEST_REQUIRE=1");
        } else {
            assert_eq!(absent, Outcome::Ignored("no server".to_owned()));
        }
    }
}
