//! A store in virtual time: the memory store in a server, behind a network. Both can be hurt.

mod client;
mod data;
mod in_session;
mod network;
mod text_client;
mod texts;

use crate::{BoxError, Subject, async_trait, saboteur::Saboteur};
use client::Client;
use data::Data;
use in_session::InSession;
use network::{Late, Network};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Grant, Name, Release, StoreError, forward_backend, record::Records,
};
use text_client::TextClient;
use texts::{Dates, NOTICED};

/// The memory store as a server behind a network, for runtimes whose clock is paused.
///
/// In such a runtime, a fault run of an hour takes seconds, and other work on the machine does not disturb it. A
/// request that has arrived is carried out even if its client has given up, except for a wait.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure_conformance::{Simulation, Subject, faults};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tenure_conformance::Stop> {
/// let store: Arc<dyn Subject> = Arc::new(Simulation::seeded(7));
/// let options = faults::Options::seeded(7).lasting(Duration::from_mins(1));
/// let outcome = faults::run(&store, &options, |_, _| {}).await?;
/// assert!(outcome.violations.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Simulation {
    seed: Option<u64>,
    data: Arc<Data>,
    network: Arc<Network>,
    way: Way,
    /// How many clients of dated texts there were.
    clients: AtomicUsize,
}

/// How much more skew some clients of dated texts allow for.
const MORE_SKEW: Duration = Duration::from_secs(2);

/// How clients use the server.
#[derive(Clone, Debug)]
enum Way {
    /// Leases, and a queue.
    Queued,
    /// Exclusive leases only. These names were asked for in vain.
    Polled(Awaited),
    /// Sessions, and a queue.
    InSessions,
    /// Records in texts, which are dated so exactly.
    Dated(Dates),
}

type Awaited = Arc<Mutex<HashSet<Name>>>;

impl Simulation {
    /// Makes an empty store behind a network that takes no time.
    #[must_use]
    pub fn new() -> Self {
        Self::with(None, Way::Queued)
    }

    /// Makes an empty store behind a network whose delays are drawn from this seed, as is the rate of the server's clock.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::with(Some(seed), Way::Queued)
    }

    /// Has exclusive locks only, whose waiters ask again and again instead of queueing, as simpler stores do.
    #[must_use]
    pub fn polled(self) -> Self {
        Self::with(self.seed, Way::Polled(Awaited::default()))
    }

    /// Has sessions instead of leases, as ZooKeeper does: a grant stands as long as the server hears of its client.
    #[must_use]
    pub fn with_sessions(self) -> Self {
        Self::with(self.seed, Way::InSessions)
    }

    /// Has only texts, and no time but their dates, as NATS and object stores do: locks are records in them.
    #[must_use]
    pub fn dated(self) -> Self {
        Self::with(self.seed, Way::Dated(Dates::of(self.seed)))
    }

    fn with(seed: Option<u64>, way: Way) -> Self {
        let data = Arc::new(Data::new(seed));
        let late = match &way {
            Way::Dated(dates) => Late { margin: dates.clock(MORE_SKEW).margin(), noticed: NOTICED },
            Way::Queued | Way::Polled(_) | Way::InSessions => Late::default(),
        };
        let network = Network::new(seed, Arc::clone(&data), matches!(way, Way::InSessions), late);
        Self { seed, data, network: Arc::new(network), way, clients: AtomicUsize::new(0) }
    }

    fn client(&self, namespace: &str) -> Arc<dyn Backend> {
        let (data, connection) = (Arc::clone(&self.data), self.network.connection());
        let client = |data, connection| Client { data, namespace: namespace.to_owned(), connection };
        match &self.way {
            Way::Queued => Arc::new(client(data, connection)),
            Way::Polled(awaited) => {
                Arc::new(Polled { client: client(data, connection), awaited: Arc::clone(awaited) })
            }
            Way::InSessions => Arc::new(InSession::new(client(data, connection))),
            Way::Dated(dates) => {
                // Each second client of a seeded run allows for more skew.
                let uneven = self.seed.is_some() && self.clients.fetch_add(1, Ordering::Relaxed) % 2 == 1;
                let dates = (*dates, if uneven { MORE_SKEW } else { Duration::ZERO });
                Arc::new(Records::new(TextClient::new(data, dates, namespace, connection)))
            }
        }
    }
}

impl Default for Simulation {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Subject for Simulation {
    fn name(&self) -> &'static str {
        match self.way {
            Way::Queued => "simulation",
            Way::Polled(_) => "polled",
            Way::InSessions => "sessions",
            Way::Dated(_) => "dated",
        }
    }

    /// In a network that takes no time, clients that ask again and again fall into step: of three that take turns, two
    /// always come first. So cases in which many take turns need the queue. Fault runs have a seeded network.
    fn shows(&self, group: &str) -> bool {
        !matches!(self.way, Way::Polled(_)) || group != "waiting" && !group.starts_with("faults")
    }

    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        Some(Arc::new(match self.way {
            Way::Queued => Self::new(),
            Way::Polled(_) => Self::new().polled(),
            Way::InSessions => Self::new().with_sessions(),
            Way::Dated(_) => Self::new().dated(),
        }))
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(self.client(""))
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(self.client(namespace)))
    }

    fn session_timeout(&self) -> Option<Duration> {
        matches!(self.way, Way::InSessions).then_some(data::TIMEOUT)
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.network) as Arc<dyn Saboteur>)
    }
}

/// A client that does without the server's queue.
struct Polled {
    client: Client,
    awaited: Awaited,
}

impl Polled {
    fn awaited(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Polled {
    forward_backend!(
        self => self.client,
        except try_acquire, try_acquire_all, acquire, release, convert, capabilities, waiting,
    );

    fn capabilities(&self) -> Capabilities {
        let Capabilities { latches, listing, succession, .. } = self.client.capabilities();
        Capabilities { latches, listing, succession, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let answer = self.client.try_acquire(claim).await?;
        if claim.waits && matches!(answer, Attempt::Busy { .. }) {
            self.awaited().insert(claim.name.clone());
        }
        Ok(answer)
    }

    /// Tells a client that would take the lock again at once that another one waits (clause W5).
    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        Ok(match self.client.release(grant).await? {
            Release::Released { .. } => Release::Released { awaited: self.awaited().remove(&grant.name) },
            lost @ Release::Lost(_) => lost,
        })
    }
}
