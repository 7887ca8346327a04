//! A store in virtual time: the memory store in a server, behind a network. Both can be hurt.

mod network;

use crate::{BoxError, Subject, async_trait, saboteur::Saboteur};
use network::{Connection, Network};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{
    Attempt, AttemptAll, Backend, Capabilities, Claim, Conversion, Grant, Holder, LatchState, LatchStep,
    Memory, Mode, Moment, Name, Release, Renewal, Standing, StoreError, Waiter, forward_backend,
};

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
    data: Data,
    network: Arc<Network>,
    /// The names that a client asked for in vain, unless clients queue.
    awaited: Option<Awaited>,
}

type Awaited = Arc<Mutex<HashSet<Name>>>;

/// The server's data: a store for each namespace.
type Data = Arc<Mutex<HashMap<String, Memory>>>;

impl Simulation {
    /// Makes an empty store behind a network that takes no time.
    #[must_use]
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Makes an empty store behind a network whose delays are drawn from this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::with(Some(seed))
    }

    /// Has exclusive locks only, whose waiters ask again and again instead of queueing, as simpler stores do.
    #[must_use]
    pub fn polled(self) -> Self {
        Self { awaited: Some(Awaited::default()), ..self }
    }

    fn with(seed: Option<u64>) -> Self {
        let data = Data::default();
        let wiped = Arc::clone(&data);
        let wipe =
            move || wiped.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(Memory::wipe);
        Self { data, network: Arc::new(Network::new(seed, wipe)), awaited: None }
    }

    fn client(&self, namespace: &str) -> Arc<dyn Backend> {
        let connection = self.network.connection();
        let client = Client { data: Arc::clone(&self.data), namespace: namespace.to_owned(), connection };
        match &self.awaited {
            Some(awaited) => Arc::new(Polled { client, awaited: Arc::clone(awaited) }),
            None => Arc::new(client),
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
        if self.awaited.is_some() { "polled" } else { "simulation" }
    }

    /// In a network that takes no time, clients that ask again and again fall into step: of three that take turns, two
    /// always come first. So cases in which many take turns need the queue. Fault runs have a seeded network.
    fn shows(&self, group: &str) -> bool {
        self.awaited.is_none() || group != "waiting" && !group.starts_with("faults")
    }

    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        let fresh = Self::new();
        Some(Arc::new(if self.awaited.is_some() { fresh.polled() } else { fresh }))
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(self.client(""))
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(self.client(namespace)))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.network) as Arc<dyn Saboteur>)
    }
}

/// A client of the server.
struct Client {
    data: Data,
    namespace: String,
    connection: Connection,
}

impl Client {
    /// Carries a request to the server, and its answer back.
    async fn ask<T, Answer>(
        &self,
        request: impl FnOnce(Memory) -> Answer + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let (data, namespace) = (Arc::clone(&self.data), self.namespace.clone());
        let carried = self.connection.carry(async move {
            // The server may have lost its data since the request was sent.
            let memory =
                data.lock().unwrap_or_else(PoisonError::into_inner).entry(namespace).or_default().clone();
            request(memory).await
        });
        carried.await?
    }
}

/// The grant as its client counts it: from the moment when it sent the request.
fn sent_at(sent: Moment, grant: Grant) -> Grant {
    let standing = match grant.standing {
        Standing::Lease { stands, .. } => Standing::Lease { sent, stands },
        session @ Standing::Session(_) => session,
    };
    Grant { standing, ..grant }
}

#[async_trait]
impl Backend for Client {
    fn store(&self) -> &'static str {
        "simulation"
    }

    fn capabilities(&self) -> Capabilities {
        Memory::new().capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (sent, claim) = (Moment::now(), claim.clone());
        Ok(match self.ask(|memory| async move { memory.try_acquire(&claim).await }).await? {
            Attempt::Granted(grant) => Attempt::Granted(sent_at(sent, grant)),
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let (sent, claims) = (Moment::now(), claims.to_vec());
        Ok(match self.ask(|memory| async move { memory.try_acquire_all(&claims).await }).await? {
            AttemptAll::Granted(grants) => {
                AttemptAll::Granted(grants.into_iter().map(|grant| sent_at(sent, grant)).collect())
            }
            none @ (AttemptAll::Busy | AttemptAll::Apart) => none,
        })
    }

    /// The server answers when it is the claim's turn. Meanwhile the client asks whether the server is still there.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        const PULSE: Duration = Duration::from_secs(1);
        if let Attempt::Granted(grant) = self.try_acquire(claim).await? {
            return Ok(grant);
        }
        let claim = claim.clone();
        let queued = self.connection.wait({
            let (data, namespace) = (Arc::clone(&self.data), self.namespace.clone());
            async move {
                let memory =
                    data.lock().unwrap_or_else(PoisonError::into_inner).entry(namespace).or_default().clone();
                memory.acquire(&claim).await
            }
        });
        let silent = async {
            loop {
                tokio::time::sleep(PULSE).await;
                if let Err(error) = self.ask(|_| async { Ok(()) }).await {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            granted = queued => granted?,
            error = silent => Err(error),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let grant = grant.clone();
        self.ask(|memory| async move { memory.release(&grant).await }).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let grants = grants.to_vec();
        self.ask(|memory| async move { memory.renew(&grants).await }).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let claim = claim.clone();
        self.ask(|memory| async move { memory.withdraw(&claim).await }).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let grant = grant.clone();
        self.ask(move |memory| async move { memory.convert(&grant, to).await }).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (name, step) = (name.clone(), step.clone());
        self.ask(|memory| async move { memory.latch(&name, &step).await }).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.ask(|memory| async move { memory.holders(&name).await }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let prefix = prefix.to_owned();
        self.ask(|memory| async move { memory.list(&prefix).await }).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let name = name.clone();
        self.ask(|memory| async move { memory.waiting(&name).await }).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.ask(|memory| async move { memory.force_release(&name).await }).await
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
