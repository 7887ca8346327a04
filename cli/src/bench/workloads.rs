//! The workloads of `tenure bench`, and their times.

use hdrhistogram::Histogram;
use std::{
    iter, panic,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tenure::{ClaimId, Error, Lock, Locks, Memory};
use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

/// How many tasks compete for one name.
pub(super) const SHARING: usize = 16;
/// How long an acquisition may wait. Holders release at once, so only a failing store takes so long.
const WAIT: Duration = Duration::from_secs(30);
/// How long a waiter has to settle before the lock is handed to it, unless the store is far away.
const SETTLE: Duration = Duration::from_millis(40);
/// Or this multiple of an acquisition's time: a waiter asks, subscribes and asks again.
const SETTLE_REQUESTS: u32 = 4;
/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_mins(10);
/// To how many digits times are kept.
const DIGITS: u8 = 3;

/// How many workloads there are.
pub(super) const WORKLOADS: usize = Workload::ALL.len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// The smallest request: one task looks up the holder of a free name.
    RoundTrip,
    /// One task acquires and releases one name.
    Uncontended,
    /// Many tasks do that, each with a name of its own.
    ManyNames,
    /// Several tasks of one client compete for one name.
    OneName,
    /// Two clients hand one name to each other.
    TwoClients,
}

impl Workload {
    pub(super) const ALL: [Self; 5] =
        [Self::RoundTrip, Self::Uncontended, Self::ManyNames, Self::OneName, Self::TwoClients];
}

/// How long something took, each time.
pub(super) struct Figures {
    /// In nanoseconds.
    pub(super) times: Arc<Mutex<Histogram<u64>>>,
    /// How long all that took together, from begin to end of each round.
    pub(super) elapsed: Duration,
}

impl Default for Figures {
    fn default() -> Self {
        let times = Histogram::new_with_max(nanos(LONGEST), DIGITS);
        let times = times.unwrap_or_else(|error| unreachable!("a range and its digits: {error}"));
        Self { times: Arc::new(Mutex::new(times)), elapsed: Duration::ZERO }
    }
}

impl Figures {
    /// The times recorded so far.
    pub(super) fn times(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The measured part of an acquisition.
#[derive(Clone, Copy)]
enum Span {
    /// Until the grant.
    Wait,
    /// Until the release.
    Cycle,
}

/// One workload's run in one round.
#[derive(Clone)]
struct Run {
    times: Arc<Mutex<Histogram<u64>>>,
    end: Instant,
}

impl Run {
    fn record(&self, time: Duration) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(nanos(time));
    }

    /// Whether there is time for more. Lets others run, also where the store itself never waits.
    async fn goes_on(&self) -> bool {
        yield_now().await;
        Instant::now() < self.end
    }
}

/// The store, and two clients of it.
pub(super) struct Bench {
    clients: [Locks; 2],
    /// The beginning of all names.
    namespace: String,
    tasks: u32,
    running: JoinSet<Result<(), Error>>,
}

impl Bench {
    pub(super) async fn open(url: &str, tasks: u32) -> Result<Self, Error> {
        let locks = tenure::connect(url).await?;
        let clients = if locks.store() == "memory" {
            // A second `memory:` would be another store.
            let memory = Memory::from_url(url)?;
            [Locks::new(memory.clone()), Locks::new(memory)]
        } else {
            [locks, tenure::connect(url).await?]
        };
        Ok(Self {
            clients,
            namespace: format!("tenure-bench/{}/", &ClaimId::new().to_string()[..8]),
            tasks,
            running: JoinSet::new(),
        })
    }

    pub(super) fn store(&self) -> &str {
        self.clients[0].store()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs a workload for this long, and at least once.
    pub(super) async fn run(
        &mut self,
        workload: Workload,
        time: Duration,
        figures: &mut Figures,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let run = Run { times: Arc::clone(&figures.times), end: began + time };
        match workload {
            Workload::RoundTrip => self.look(&run).await?,
            Workload::Uncontended => self.cycle(iter::once("one"), Span::Cycle, &run).await?,
            Workload::ManyNames => {
                let names: Vec<String> = (0..self.tasks).map(|number| number.to_string()).collect();
                self.cycle(names.iter().map(String::as_str), Span::Cycle, &run).await?;
            }
            Workload::OneName => self.cycle(iter::repeat_n("shared", SHARING), Span::Wait, &run).await?,
            Workload::TwoClients => self.hand_off(&run).await?,
        }
        figures.elapsed += began.elapsed();
        Ok(())
    }

    /// Releases everything, also the locks of interrupted tasks, and disconnects.
    pub(super) async fn end(&mut self) {
        self.running.shutdown().await;
        for client in &self.clients {
            client.close().await;
        }
    }

    fn lock(&self, client: usize, name: &str) -> Lock {
        let name = format!("{}{name}", self.namespace);
        self.clients[client].lock(name).wait(WAIT).label("tenure bench")
    }

    async fn look(&self, run: &Run) -> Result<(), Error> {
        // No store of a URL lacks this.
        if !self.clients[0].capabilities().listing {
            return Ok(());
        }
        let name = format!("{}free", self.namespace);
        loop {
            let began = Instant::now();
            self.clients[0].holders(&name).await?;
            run.record(began.elapsed());
            if !run.goes_on().await {
                return Ok(());
            }
        }
    }

    /// A task for each of these names acquires and releases it.
    async fn cycle<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        span: Span,
        run: &Run,
    ) -> Result<(), Error> {
        for name in names {
            let (lock, run) = (self.lock(0, name), run.clone());
            self.running.spawn(async move {
                loop {
                    let began = Instant::now();
                    let guard = lock.acquire().await?;
                    let waited = began.elapsed();
                    guard.release().await?;
                    run.record(match span {
                        Span::Wait => waited,
                        Span::Cycle => began.elapsed(),
                    });
                    if !run.goes_on().await {
                        return Ok(());
                    }
                }
            });
        }
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))?;
        }
        Ok(())
    }

    /// The two clients release the lock to each other in turn. Measures from the release until the other has its guard.
    async fn hand_off(&self, run: &Run) -> Result<(), Error> {
        let locks = [0, 1].map(|client| self.lock(client, "handed-off"));
        let began = Instant::now();
        let mut held = locks[0].acquire().await?;
        let settle = SETTLE.max(began.elapsed() * SETTLE_REQUESTS);
        for next in locks.iter().cycle().skip(1) {
            let wait = async { Ok::<_, Error>((next.acquire().await?, Instant::now())) };
            let release = async {
                sleep(settle).await;
                let began = Instant::now();
                held.release().await?;
                Ok(began)
            };
            let (granted, released);
            ((held, granted), released) = tokio::try_join!(wait, release)?;
            run.record(granted.duration_since(released));
            if !run.goes_on().await {
                break;
            }
        }
        held.release().await
    }
}
