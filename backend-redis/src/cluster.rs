//! A Redis Cluster: sends each request to the node that keeps the name's slot.

mod slots;

use crate::{
    connection::{address::Address, lane::Answer},
    options::{CheckedOptions, RedisOptions},
    requests::keys,
    server::{Doubts, Nodes, Redirect, Server, fitness, redirect},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use slots::{NodeSlots, Slots};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{Background, Holder, Moment, Name, PerRuntime, StoreError};

/// How often a request may be redirected.
const REDIRECTIONS: u32 = 5;
/// The shortest time between two look-ups of the slots: a failover takes seconds.
const BREATH: Duration = Duration::from_millis(100);

/// The nodes of a Cluster, each a server with its own connections.
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    tls: bool,
    checked: CheckedOptions,
    /// Shared by all nodes: a slot may move while a request of a claim is on its way.
    doubts: Doubts,
    background: Background,
    nodes: Arc<Nodes>,
    /// The nodes that have been asked about a name.
    servers: Mutex<HashMap<Address, Arc<Server>>>,
    slots: Mutex<Arc<Slots>>,
    /// Whether the known slots may be out of date.
    stale: AtomicBool,
    looked: PerRuntime<tokio::sync::Mutex<Option<LookUp>>>,
}

/// The last look-up of the slots.
struct LookUp {
    began: Moment,
    /// Why it failed, if it did.
    failure: Option<Arc<StoreError>>,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<Address>,
        tls: bool,
        options: RedisOptions,
        checked: CheckedOptions,
        background: &Background,
    ) -> Self {
        Self {
            seeds,
            tls,
            nodes: Arc::new(Nodes::new(options, checked.clone())),
            checked,
            doubts: Doubts::default(),
            background: background.clone(),
            servers: Mutex::default(),
            slots: Mutex::default(),
            stale: AtomicBool::new(false),
            looked: PerRuntime::new(),
        }
    }

    fn at(&self, address: &Address) -> Result<Arc<Server>, StoreError> {
        let mut known = self.servers();
        if let Some(server) = known.get(address) {
            return Ok(Arc::clone(server));
        }
        let (checked, doubts) = (self.checked.clone(), self.doubts.clone());
        let server = Arc::new(Server::among(&self.nodes, address, checked, doubts, &self.background)?);
        known.insert(address.clone(), Arc::clone(&server));
        Ok(server)
    }

    /// Drops all nodes but these. Whoever still waits at one of them goes on listening there until it is redirected.
    fn keep(&self, these: &[&Address]) {
        self.servers().retain(|address, _| these.contains(&address));
        self.nodes.keep(these);
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Address, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn url(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        let scheme = if self.tls { "rediss+cluster" } else { "redis+cluster" };
        format!("{scheme}://{}", seeds.join(","))
    }

    fn prefix(&self) -> &str {
        &self.checked.prefix
    }

    pub(crate) fn slot(&self, name: &Name) -> u16 {
        keys::slot_of(&keys::lock(self.prefix(), name))
    }

    /// The server that keeps a name, as a number.
    pub(crate) fn shard(&self, name: &Name) -> u64 {
        self.slots().place(self.slot(name)).map_or(0, |place| place as u64 + 1)
    }

    /// The route of a request about a name.
    pub(crate) fn route(&self, name: &Name) -> SlotRoute<'_> {
        SlotRoute { cluster: self, slot: self.slot(name), left: REDIRECTIONS, next: None }
    }

    /// Whether these servers can keep locks.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let key = fitness::key(self.prefix());
        let server = self.server(keys::slot_of(&key)).await?;
        fitness::check(&server.lane, &server.scripts, self.prefix(), true).await.map(drop)
    }

    /// The holders of all names that begin with `prefix`, sorted by name.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let slots = self.look().await?;
        let mut holders = Vec::new();
        for node in slots.nodes() {
            holders.extend(self.at(node)?.list(prefix).await?);
        }
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    pub(crate) fn disconnect(&self) {
        for server in self.servers().values() {
            server.disconnect();
        }
        self.keep(&[]);
    }

    /// The node that keeps a slot, as far as is known.
    async fn server(&self, slot: u16) -> Result<Arc<Server>, StoreError> {
        let slots = self.look().await?;
        let Some(node) = slots.node(slot) else {
            self.stale.store(true, Ordering::Relaxed);
            let what = format!("{}: no known node keeps slot {slot}", self.url());
            return Err(StoreError::unavailable(what));
        };
        self.at(node)
    }

    fn slots(&self) -> MutexGuard<'_, Arc<Slots>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slots. Asks for them if they are unknown or may have changed.
    async fn look(&self) -> Result<Arc<Slots>, StoreError> {
        let known = Arc::clone(&self.slots());
        if !known.is_empty() && !self.stale.load(Ordering::Relaxed) {
            return Ok(known);
        }
        let asked = Moment::now();
        let looked = self.looked.get(Default::default);
        let mut looked = looked.lock().await;
        let latest = Arc::clone(&self.slots());
        if !Arc::ptr_eq(&known, &latest) {
            // Another task has looked meanwhile.
            return Ok(latest);
        }
        if let Some(LookUp { began, failure }) = &*looked {
            if let Some(failure) = failure
                && *began >= asked
            {
                // It failed for everybody who waited for it: if no node answers, nobody waits for more than two
                // look-ups.
                return Err(again(failure));
            }
            tokio::time::sleep(BREATH.saturating_sub(Moment::now().since(*began))).await;
        }
        let began = Moment::now();
        *looked = Some(LookUp { began, failure: None });
        let slots = match self.ask(&known).await {
            Ok(slots) => Arc::new(slots),
            Err(error) => {
                let failure = Arc::new(error);
                *looked = Some(LookUp { began, failure: Some(Arc::clone(&failure)) });
                return Err(again(&failure));
            }
        };
        *self.slots() = Arc::clone(&slots);
        self.stale.store(false, Ordering::Relaxed);
        self.keep(&slots.nodes().collect::<Vec<_>>());
        Ok(slots)
    }

    /// Asks all nodes at once who keeps which slots: the newest answer of a majority counts, or of as many as answer in
    /// time.
    async fn ask(&self, known: &Slots) -> Result<Slots, StoreError> {
        let mut addresses: Vec<&Address> = known.nodes().collect();
        for seed in &self.seeds {
            if !addresses.contains(&seed) {
                addresses.push(seed);
            }
        }
        let mut asked: FuturesUnordered<_> = addresses.iter().map(|address| self.ask_one(address)).collect();
        let (mut said, mut answers, mut last) = (Vec::new(), 0, None);
        while answers <= addresses.len() / 2
            && let Some(answer) = asked.next().await
        {
            match answer {
                Ok(nodes) => {
                    answers += 1;
                    said.extend(nodes);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if answers == 0 => Err(error),
            _ => Ok(Slots::of(said)),
        }
    }

    async fn ask_one(&self, address: &Address) -> Result<Vec<NodeSlots>, StoreError> {
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("NODES");
        match self.nodes.at(address)?.ask(&ask).await {
            Ok(Answer { value: Value::BulkString(text), .. }) => {
                Ok(slots::read(&String::from_utf8_lossy(&text), address))
            }
            Ok(Answer { value: Value::VerbatimString { text, .. }, .. }) => Ok(slots::read(&text, address)),
            Err(failure) if failure.error.to_string().contains("cluster support disabled") => {
                Err(StoreError::failed(format!("{address} is not a node of a Redis Cluster; write redis:")))
            }
            Err(failure) => Err(failure.error),
            Ok(_) => Err(StoreError::failed(format!("{address} does not say which node keeps which slots"))),
        }
    }
}

/// The same failure for another request.
fn again(failure: &Arc<StoreError>) -> StoreError {
    let same = Arc::clone(failure);
    if failure.is_unavailable() { StoreError::unavailable(same) } else { StoreError::failed(same) }
}

/// A request on its way to the server that keeps its slot.
pub(crate) struct SlotRoute<'a> {
    cluster: &'a Cluster,
    slot: u16,
    left: u32,
    next: Option<Arc<Server>>,
}

impl SlotRoute<'_> {
    /// Where to ask next.
    pub(crate) async fn next(&mut self) -> Result<Arc<Server>, StoreError> {
        match self.next.take() {
            Some(server) => Ok(server),
            None => self.cluster.server(self.slot).await,
        }
    }

    /// Whether the error is a redirection to another node, which is then next. A redirected request was not carried
    /// out.
    pub(crate) fn follows(&mut self, error: &StoreError) -> bool {
        let moved = match redirect(error) {
            Some(Redirect::Moved(address)) => self.cluster.at(&address).ok(),
            _ => None,
        };
        if moved.is_some() || error.is_unavailable() {
            self.cluster.stale.store(true, Ordering::Relaxed);
        }
        if moved.is_none() || self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.next = moved;
        true
    }
}
