//! Two workloads: one task that acquires and releases one name, and many tasks with a name each.

use crate::support::{Way, report};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const TASKS: usize = 64;
/// The time for each workload, which all contenders share.
const TIME: Duration = Duration::from_secs(10);

/// A way to lock names.
#[async_trait]
pub(crate) trait Locks: Send + Sync + 'static {
    /// Prepares for the first cycle, unmeasured.
    async fn prepare(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Acquires a name that is free, and releases it.
    async fn cycle(&self, name: &str) -> Result<()>;
}

/// The contenders in one store, all compared with the first one added.
pub(crate) struct Comparison<'a> {
    store: &'a str,
    /// How many cycles a round has for one task, and for each of many: as many as in tenure's own benches.
    cycles: (u32, u32),
    contenders: Vec<Contender>,
}

struct Contender {
    what: &'static str,
    locks: Arc<dyn Locks>,
    /// One for each task.
    names: Vec<Arc<str>>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(store: &'a str, cycles: (u32, u32)) -> Self {
        Self { store, cycles, contenders: Vec::new() }
    }

    /// Each contender has names of its own, which are paths in ZooKeeper.
    pub(crate) fn add(&mut self, what: &'static str, locks: impl Locks) {
        let number = self.contenders.len();
        let names = (0..TASKS).map(|task| format!("/tenure-peers/{number}/{task}").into()).collect();
        self.contenders.push(Contender { what, locks: Arc::new(locks), names });
    }

    /// Measures both workloads, and prints what came out. Contenders that fail before the first round are left out, and
    /// the error names them.
    pub(crate) async fn measure(mut self) -> Result<()> {
        let mut failures = Vec::new();
        for contender in mem::take(&mut self.contenders) {
            match contender.warm_up().await {
                Ok(()) => self.contenders.push(contender),
                Err(error) => failures.push(format!("{}: {error:#}", contender.what)),
            }
        }
        let (one, each) = self.cycles;
        let ways = self.by_turns(one, async |contender| contender.locks.cycle(&contender.names[0]).await);
        self.print("uncontended acquire + release", &ways.await?);
        let ways = self.by_turns(1, async |contender| contender.together(each).await);
        self.print(&format!("{TASKS} tasks on {TASKS} names, {each} cycles each"), &ways.await?);
        ensure!(failures.is_empty(), "{}", failures.join("; "));
        Ok(())
    }

    /// Rounds of all contenders in turn, of so many times `work`, until the time is over.
    async fn by_turns(&self, cycles: u32, work: impl AsyncFn(&Contender) -> Result<()>) -> Result<Vec<Way>> {
        let mut ways: Vec<Way> = self.contenders.iter().map(|contender| Way::new(contender.what)).collect();
        let start = Instant::now();
        while start.elapsed() < TIME {
            for (contender, way) in self.contenders.iter().zip(&mut ways) {
                let mut outcome = Ok(());
                way.round(cycles, async || {
                    if outcome.is_ok() {
                        outcome = work(contender).await;
                    }
                })
                .await;
                outcome.context(contender.what)?;
            }
        }
        Ok(ways)
    }

    fn print(&self, workload: &str, ways: &[Way]) {
        for (contender, way) in self.contenders.iter().zip(ways).skip(1) {
            report(&format!("{}: {workload}, {}", self.store, contender.what), &ways[0], way);
        }
    }
}

impl Contender {
    /// Connections, prepared statements, rows.
    async fn warm_up(&self) -> Result<()> {
        for name in &self.names {
            self.locks.prepare(name).await?;
        }
        self.together(1).await
    }

    /// So many cycles of each of the tasks.
    async fn together(&self, cycles: u32) -> Result<()> {
        let tasks: JoinSet<Result<()>> = self
            .names
            .iter()
            .map(|name| {
                let (locks, name) = (Arc::clone(&self.locks), Arc::clone(name));
                async move {
                    for _ in 0..cycles {
                        locks.cycle(&name).await?;
                    }
                    Ok(())
                }
            })
            .collect();
        tasks.join_all().await.into_iter().collect()
    }
}
