//! A Redis Cluster: for each name the server that keeps its slot.

use crate::{
    address::Address,
    doubts::Doubts,
    errors::{Redirect, redirect},
    fitness, keys,
    options::{Checked, RedisOptions},
    server::Answer,
    slots::{self, Owner, Slots},
    store::Store,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{Background, Holder, Moment, Name, PerRuntime, StoreError};

/// How often a request is sent on to another server.
const REDIRECTIONS: u32 = 5;
/// The shortest time between two looks at who keeps what: a failover takes seconds.
const BREATH: Duration = Duration::from_millis(100);

/// The servers of a Cluster, each with its own connections.
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    tls: bool,
    members: Arc<Members>,
    slots: Mutex<Arc<Slots>>,
    /// Something has shown that the slots are not as they were.
    stale: AtomicBool,
    looked: PerRuntime<tokio::sync::Mutex<Option<Moment>>>,
}

/// The servers that were heard of.
pub(crate) struct Members {
    options: RedisOptions,
    checked: Checked,
    /// One for all: a slot may move while a request of a claim is on its way.
    doubts: Doubts,
    by_address: Mutex<HashMap<Address, Arc<Store>>>,
    background: Background,
    me: Weak<Self>,
}

impl Members {
    pub(crate) fn at(&self, address: &Address) -> Result<Arc<Store>, StoreError> {
        let mut known = self.by_address();
        if let Some(store) = known.get(address) {
            return Ok(Arc::clone(store));
        }
        let route = self.options.route_to(address).map_err(StoreError::failed)?;
        let (me, doubts) = (self.me.clone(), self.doubts.clone());
        let store = Store::among(me, route, self.checked.clone(), doubts, &self.background);
        let store = Arc::new(store);
        known.insert(address.clone(), Arc::clone(&store));
        Ok(store)
    }

    /// Lets go of servers that keep no slot.
    fn forget_others(&self, slots: &Slots) {
        let owners: Vec<&Address> = slots.owners().collect();
        self.by_address().retain(|address, store| {
            let stays = owners.contains(&address);
            if !stays {
                store.disconnect();
            }
            stays
        });
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<Address, Arc<Store>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<Address>,
        tls: bool,
        options: RedisOptions,
        checked: Checked,
        background: &Background,
    ) -> Self {
        let members = Arc::new_cyclic(|me| Members {
            options,
            checked,
            doubts: Doubts::default(),
            by_address: Mutex::default(),
            background: background.clone(),
            me: me.clone(),
        });
        Self {
            seeds,
            tls,
            members,
            slots: Mutex::default(),
            stale: AtomicBool::new(false),
            looked: PerRuntime::new(),
        }
    }

    pub(crate) fn url(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        let scheme = if self.tls { "rediss+cluster" } else { "redis+cluster" };
        format!("{scheme}://{}", seeds.join(","))
    }

    fn prefix(&self) -> &str {
        &self.members.checked.prefix
    }

    pub(crate) fn slot(&self, name: &Name) -> u16 {
        keys::slot_of(&keys::lock(self.prefix(), name))
    }

    /// The server that keeps a name, as a number.
    pub(crate) fn shard(&self, name: &Name) -> u64 {
        self.slots().place(self.slot(name)).map_or(0, |place| place as u64 + 1)
    }

    /// The way of a request about a name.
    pub(crate) fn route(&self, name: &Name) -> Route<'_> {
        Route { cluster: self, slot: self.slot(name), left: REDIRECTIONS, next: None }
    }

    /// Whether these servers can keep locks.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let key = fitness::key(self.prefix());
        let store = self.store(keys::slot_of(&key)).await?;
        fitness::check(&store.server, &store.scripts, self.prefix(), true).await.map(drop)
    }

    /// Who holds names that begin so, in order.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let slots = self.look().await?;
        let mut holders = Vec::new();
        for owner in slots.owners() {
            holders.extend(self.members.at(owner)?.list(prefix).await?);
        }
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    pub(crate) fn disconnect(&self) {
        for store in std::mem::take(&mut *self.members.by_address()).into_values() {
            store.disconnect();
        }
    }

    /// The store that keeps a slot, as far as is known.
    async fn store(&self, slot: u16) -> Result<Arc<Store>, StoreError> {
        let slots = self.look().await?;
        let Some(owner) = slots.owner(slot) else {
            self.stale.store(true, Ordering::Relaxed);
            let what = format!("{}: no server is known to keep slot {slot}", self.url());
            return Err(StoreError::unavailable(what));
        };
        self.members.at(owner)
    }

    fn slots(&self) -> MutexGuard<'_, Arc<Slots>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slots; asks for them where they are not known, or may have changed.
    async fn look(&self) -> Result<Arc<Slots>, StoreError> {
        let known = Arc::clone(&self.slots());
        if !known.is_empty() && !self.stale.load(Ordering::Relaxed) {
            return Ok(known);
        }
        let looked = self.looked.get(Default::default);
        let mut looked = looked.lock().await;
        let latest = Arc::clone(&self.slots());
        if !Arc::ptr_eq(&known, &latest) {
            // Somebody else has looked meanwhile.
            return Ok(latest);
        }
        if let Some(before) = *looked {
            tokio::time::sleep(BREATH.saturating_sub(Moment::now().since(before))).await;
        }
        *looked = Some(Moment::now());
        let slots = Arc::new(self.ask(&known).await?);
        *self.slots() = Arc::clone(&slots);
        self.stale.store(false, Ordering::Relaxed);
        self.members.forget_others(&slots);
        Ok(slots)
    }

    /// Asks all servers at once who keeps what: the newest word of a majority, or of as many as answer in time.
    async fn ask(&self, known: &Slots) -> Result<Slots, StoreError> {
        let mut addresses: Vec<&Address> = known.owners().collect();
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
                Ok(owners) => {
                    answers += 1;
                    said.extend(owners);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if answers == 0 => Err(error),
            _ => Ok(Slots::of(said)),
        }
    }

    async fn ask_one(&self, address: &Address) -> Result<Vec<Owner>, StoreError> {
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("NODES");
        match self.members.at(address)?.server.ask(&ask).await {
            Ok(Answer { value: Value::BulkString(text), .. }) => {
                Ok(slots::read(&String::from_utf8_lossy(&text), address))
            }
            Ok(Answer { value: Value::VerbatimString { text, .. }, .. }) => Ok(slots::read(&text, address)),
            Err(failure) if failure.error.to_string().contains("cluster support disabled") => {
                Err(StoreError::failed(format!("{address} is no node of a Redis Cluster; write redis:")))
            }
            Err(failure) => Err(failure.error),
            Ok(_) => Err(StoreError::failed(format!("{address} does not say who keeps which slots"))),
        }
    }
}

/// A request on its way to the server that keeps its slot.
pub(crate) struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    left: u32,
    next: Option<Arc<Store>>,
}

impl Route<'_> {
    /// Where to ask next.
    pub(crate) async fn next(&mut self) -> Result<Arc<Store>, StoreError> {
        match self.next.take() {
            Some(store) => Ok(store),
            None => self.cluster.store(self.slot).await,
        }
    }

    /// Whether the answer was that another server keeps the slot. Nothing was carried out then.
    pub(crate) fn follows(&mut self, error: &StoreError) -> bool {
        let moved = match redirect(error) {
            Some(Redirect::Moved(address)) => self.cluster.members.at(&address).ok(),
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
