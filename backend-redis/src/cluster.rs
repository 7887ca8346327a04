//! A Redis Cluster: sends each request to the node that keeps the name's slot.

mod slots;

use crate::{
    connection::{address::Address, link::Answer},
    doubts::Doubts,
    options::{CheckedOptions, RedisOptions},
    requests::keys,
    server::{Nodes, Redirect, Server, fitness, redirect, took_no_requests},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use slots::{NodeSlots, Slots};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{Background, Holder, Moment, Name, PerRuntime, StoreError};
use tokio::sync::watch;

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
    known: Mutex<KnownSlots>,
    looked: PerRuntime<Mutex<Option<LookUp>>>,
}

/// The known slots.
#[derive(Default)]
struct KnownSlots {
    slots: Arc<Slots>,
    /// When it last turned out that they may have changed, if a look-up has not settled that.
    stale: Option<Moment>,
    /// The nodes that have taken no requests, and when that last happened: others may keep their slots by now.
    doubted: HashMap<Address, Moment>,
}

/// The last look-up of the slots.
struct LookUp {
    began: Moment,
    /// Told to all who wait for it. Closed when it is over.
    outcome: watch::Receiver<Option<Outcome>>,
}

/// The slots, or why no node told them.
type Outcome = Result<Arc<Slots>, Arc<StoreError>>;

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
            known: Mutex::default(),
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

    /// Drops all nodes but these. A waiter at one of them goes on listening there until it is redirected.
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
        self.known().slots.place(self.slot(name)).map_or(0, |place| place as u64 + 1)
    }

    /// The route of a request about a name.
    pub(crate) fn route(self: &Arc<Self>, name: &Name) -> SlotRoute<'_> {
        SlotRoute { cluster: self, slot: self.slot(name), left: REDIRECTIONS, next: None, asked: None }
    }

    /// Whether these servers can keep locks.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<(), StoreError> {
        let key = fitness::key(self.prefix());
        let (_, server) = self.server(keys::slot_of(&key)).await?;
        fitness::check(&server.link, &server.scripts, self.prefix(), true).await.map(drop)
    }

    /// The holders of all names that begin with `prefix`, sorted by name.
    pub(crate) async fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let slots = self.look(|_| false).await?;
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
    async fn server(self: &Arc<Self>, slot: u16) -> Result<(Address, Arc<Server>), StoreError> {
        let slots = self.look(|known| known.serves(slot)).await?;
        let Some(node) = slots.node(slot) else {
            self.doubt(None);
            let what = format!("{}: no known node serves slot {slot}", self.url());
            return Err(StoreError::unavailable(what));
        };
        Ok((node.clone(), self.at(node)?))
    }

    fn known(&self) -> MutexGuard<'_, KnownSlots> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known slots may have changed, above all those of this node.
    fn doubt(&self, node: Option<Address>) {
        let (mut known, now) = (self.known(), Moment::now());
        known.stale = Some(now);
        known.doubted.extend(node.map(|node| (node, now)));
    }

    /// Returns the slots. If they may have changed, has them looked up, and waits for that unless the known slots are
    /// enough: a look-up takes as long as nodes may be silent, and requests to the others go on meanwhile.
    async fn look(
        self: &Arc<Self>,
        is_enough: impl FnOnce(&KnownSlots) -> bool,
    ) -> Result<Arc<Slots>, StoreError> {
        let (slots, is_enough) = {
            let known = self.known();
            let slots = Arc::clone(&known.slots);
            if known.stale.is_none() && !slots.is_empty() {
                return Ok(slots);
            }
            (slots, is_enough(&known))
        };
        let mut looking = self.looking();
        if is_enough {
            return Ok(slots);
        }
        let outcome = looking.wait_for(Option::is_some).await.ok().and_then(|told| (*told).clone());
        match outcome {
            Some(Ok(slots)) => Ok(slots),
            Some(Err(failure)) => Err(again(&failure)),
            None => Err(StoreError::unavailable("the runtime ended while the slots were looked up")),
        }
    }

    /// The look-up that is under way, or else a new one.
    ///
    /// In a task, so that a caller that gives up does not end it, and one that is not polled delays no other. All
    /// callers share it: if no node answers, none of them waits for another look-up.
    fn looking(self: &Arc<Self>) -> watch::Receiver<Option<Outcome>> {
        let looked = self.looked.get(Mutex::default);
        let mut last = looked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pause = Duration::ZERO;
        if let Some(LookUp { began, outcome }) = &*last {
            if outcome.has_changed().is_ok() {
                return outcome.clone();
            }
            pause = BREATH.saturating_sub(Moment::now().since(*began));
        }
        let ((tell, outcome), cluster) = (watch::channel(None), Arc::clone(self));
        *last = Some(LookUp { began: Moment::now() + pause, outcome: outcome.clone() });
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            tell.send_replace(Some(cluster.look_up().await));
        });
        outcome
    }

    async fn look_up(&self) -> Outcome {
        let (began, before) = (Moment::now(), Arc::clone(&self.known().slots));
        let slots = Arc::new(self.ask(&before).await?);
        self.known().learn(Arc::clone(&slots), began);
        self.keep(&slots.nodes().collect::<Vec<_>>());
        Ok(slots)
    }

    /// Asks all nodes at once for their slots: the newest answer of a majority counts, or of as many as answer in time.
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
            Ok(_) => {
                Err(StoreError::failed(format!("{address} did not report which node serves which slots")))
            }
        }
    }
}

impl KnownSlots {
    /// Whether the node that is known to keep a slot has answered so far.
    fn serves(&self, slot: u16) -> bool {
        self.slots.node(slot).is_some_and(|node| !self.doubted.contains_key(node))
    }

    /// Stores the slots of a look-up that began at that moment. Suspicions newer than it are kept: the nodes may have
    /// answered before.
    fn learn(&mut self, slots: Arc<Slots>, began: Moment) {
        self.slots = slots;
        self.stale = self.stale.filter(|since| *since >= began);
        self.doubted.retain(|_, since| *since >= began);
    }
}

/// A copy of the failure for another request.
fn again(failure: &Arc<StoreError>) -> StoreError {
    let same = Arc::clone(failure);
    if failure.is_unavailable() { StoreError::unavailable(same) } else { StoreError::failed(same) }
}

/// A request on its way to the server that keeps its slot.
pub(crate) struct SlotRoute<'a> {
    cluster: &'a Arc<Cluster>,
    slot: u16,
    left: u32,
    next: Option<(Address, Arc<Server>)>,
    /// The node that was asked last.
    asked: Option<Address>,
}

impl SlotRoute<'_> {
    /// Where to ask next.
    pub(crate) async fn next(&mut self) -> Result<Arc<Server>, StoreError> {
        let (address, server) = match self.next.take() {
            Some(next) => next,
            None => self.cluster.server(self.slot).await?,
        };
        self.asked = Some(address);
        Ok(server)
    }

    /// Whether the error is a redirection to another node, which is then next. A redirected request was not carried
    /// out.
    pub(crate) fn follows(&mut self, error: &StoreError) -> bool {
        let moved = match redirect(error) {
            Some(Redirect::Moved(address)) => self.cluster.at(&address).ok().map(|server| (address, server)),
            _ => None,
        };
        if moved.is_some() || error.is_unavailable() {
            self.cluster.doubt(self.asked.take().filter(|_| took_no_requests(error)));
        }
        if moved.is_none() || self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.next = moved;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::Network { host: "10.0.0.1".into(), port, tls: false }
    }

    /// One node keeps the slots up to 99, another one keeps slot 100.
    fn two_nodes() -> Arc<Slots> {
        let said = "\
            a 10.0.0.1:7001@17001 myself,master - 0 1 1 connected 0-99\n\
            b 10.0.0.1:7002@17002 master - 0 1 2 connected 100\n";
        Arc::new(Slots::of(slots::read(said, &at(7001))))
    }

    /// The nodes may have told their slots before.
    #[tokio::test(start_paused = true)]
    async fn doubt_during_a_look_up_is_kept() {
        let options = RedisOptions::from_url("redis+cluster://10.0.0.1:7001").unwrap();
        let (checked, background) = (options.check().unwrap(), Background::new());
        let cluster = Cluster::new(vec![at(7001)], false, options, checked, &background);
        let pass = || tokio::time::advance(BREATH);
        let state = || {
            let known = cluster.known();
            (known.stale.is_some(), known.serves(99), known.serves(100))
        };
        cluster.doubt(Some(at(7001)));
        pass().await;
        let began = Moment::now();
        pass().await;
        cluster.doubt(Some(at(7002)));
        cluster.known().learn(two_nodes(), began);
        assert_eq!(state(), (true, true, false), "only the older doubt is settled");
        assert!(!cluster.known().serves(101), "no node keeps it");
        pass().await;
        cluster.known().learn(two_nodes(), Moment::now());
        assert_eq!(state(), (false, true, true));
    }
}
