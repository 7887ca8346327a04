//! The store in this process: the reference for all others.

use crate::{
    contract::{
        Capabilities, Claim, ClaimId, Error, Grant, Holder, LossCause, Mode, Moment, Name, StoreError,
        Waiter, Wakeup,
    },
    record::{LatchRecord, Record, StoreTime},
    store::{Attempt, AttemptAll, Backend, Conversion, LatchState, LatchStep, Release, Renewal},
    url::{Guide, Parameter, Refusal, Scheme, Urls},
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// Locks in this process's memory: the same contract as every store, without any I/O.
///
/// For tests, and for programs that run alone today and in a fleet tomorrow. Waiters queue and are served first come,
/// first served; one that is not polled for three seconds loses its place. Follows tokio's paused time. Clones are the
/// same store, so two [`Locks`](crate::Locks) made of clones exclude each other. Each `Memory::new()` is a separate
/// store.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::{Locks, Memory};
///
/// let memory = Memory::new();
/// let (one, other) = (Locks::new(memory.clone()), Locks::new(memory));
/// let guard = one.lock("a").acquire().await?;
/// assert!(other.lock("a").try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Store>>);

/// With fewer names than this, nothing is swept.
const SWEEP_AT: usize = 64;

#[derive(Debug)]
struct Store {
    clock: Clock,
    /// Idle names too, until they are swept.
    names: BTreeMap<Name, Kept>,
    latches: HashMap<Name, LatchRecord>,
    /// Wakes waiters.
    places: HashMap<ClaimId, Arc<Notify>>,
    /// The greatest token of all names that were forgotten.
    last_token: u64,
    /// The number of names at which idle ones are swept.
    sweep_at: usize,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    /// The record is younger than these tokens: it does not know the earlier holders.
    after: u64,
}

impl Store {
    fn with_clock(clock: Clock) -> Self {
        Self {
            clock,
            names: BTreeMap::new(),
            latches: HashMap::new(),
            places: HashMap::new(),
            last_token: 0,
            sweep_at: SWEEP_AT,
        }
    }
}

/// Follows tokio's time, which a test may pause.
#[derive(Debug)]
struct Clock {
    time: SystemTime,
    start: Moment,
    rate: f64,
}

impl Clock {
    fn at(&self, moment: Moment) -> StoreTime {
        StoreTime::from(self.time) + moment.since(self.start).mul_f64(self.rate)
    }
}

const URLS: Urls<Memory> = Urls {
    schemes: &[Scheme {
        form: "memory:",
        about: "this process's memory, for tests; each connection is a store of its own",
    }],
    // Which no other store can meet.
    parameters: &[&[Parameter::prefix("none", |memory, _| memory)]],
};

impl Memory {
    /// Makes a new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemTime::now(), 1.0)
    }

    /// Makes a new, empty store whose clock shows `time` now, and runs `rate` times as fast as tokio's.
    ///
    /// For tests: tokens follow this clock, so in paused time each run gets the same ones; and a server's clock may run
    /// at another rate than its clients' (clause L3).
    ///
    /// # Panics
    ///
    /// Unless `rate` is finite and greater than zero.
    #[must_use]
    pub fn with_clock(time: SystemTime, rate: f64) -> Self {
        assert!(rate.is_finite() && rate > 0.0, "a clock cannot run {rate} times as fast");
        Self(Arc::new(Mutex::new(Store::with_clock(Clock { time, start: Moment::now(), rate }))))
    }

    /// Sets the clock to the time that `set` makes of the present one, as an operator does; from there it runs on.
    pub fn set_clock(&self, set: impl FnOnce(SystemTime) -> SystemTime) {
        let (mut store, start) = (self.store(), Moment::now());
        let time = set(store.clock.at(start).into());
        store.clock = Clock { time, start, ..store.clock };
    }

    /// A store of its own, for `memory:`.
    ///
    /// The URL may have a `prefix` and a `lease` as those of other stores may. A prefix makes no difference, and the
    /// lease is for [`Locks::with_lease`](crate::Locks::with_lease): [`url::lease`](crate::url::lease()) reads it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for any other URL.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        URLS.read(url, |place| match place.text() {
            "" => Ok(Self::new()),
            _ => Err(Refusal::new("memory: takes no path and no host", "write memory:")),
        })
    }

    /// Forgets all names and latches, like a server that restarts without its data. The clock goes on, so tokens still
    /// rise (clause T2).
    pub fn wipe(&self) {
        let mut store = self.store();
        store.names.clear();
        store.latches.clear();
        store.last_token = 0;
        store.places.values().for_each(|place| place.notify_one());
    }

    /// How its URLs are written.
    #[must_use]
    pub fn urls() -> Guide {
        URLS.guide()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    fn now(&self) -> StoreTime {
        self.clock.at(Moment::now())
    }

    /// Changes the record of `name`, and wakes the claim that is next.
    fn with<T>(&mut self, name: &Name, now: StoreTime, change: impl FnOnce(&mut Record) -> T) -> T {
        if !self.names.contains_key(name) {
            self.sweep(now);
            let after = self.last_token;
            self.names.insert(name.clone(), Kept { record: Record::after(after), after });
        }
        let Some(Kept { record, .. }) = self.names.get_mut(name) else { unreachable!("it was put there") };
        let outcome = change(record);
        if let Some(place) = record.next(now).and_then(|claim| self.places.get(&claim)) {
            place.notify_one();
        }
        outcome
    }

    /// Changes the record of the name that was granted. If the name was idle since, and was forgotten, nothing but its
    /// tokens is known: not whether another client has held it.
    fn with_granted<T>(
        &mut self,
        grant: &Grant,
        now: StoreTime,
        change: impl FnOnce(&mut Record) -> T,
    ) -> Result<T, LossCause> {
        let token = grant.token.get();
        match self.names.get(&grant.name) {
            // Either it knows this grant, or it has granted the name to another since.
            Some(Kept { record, after }) if *after < token.max(record.last_token()) => {
                Ok(self.with(&grant.name, now, change))
            }
            None if self.last_token < token => Err(LossCause::Forgotten),
            _ => Err(LossCause::Expired),
        }
    }

    /// Forgets the names whose leases have expired, or whose holders have learnt of a forced release (clause W8).
    fn sweep(&mut self, now: StoreTime) {
        if self.names.len() < self.sweep_at {
            return;
        }
        let last_token = &mut self.last_token;
        self.names.retain(|_, Kept { record, .. }| {
            let idle = record.is_idle(now);
            if idle {
                *last_token = (*last_token).max(record.last_token());
            }
            !idle
        });
        self.sweep_at = SWEEP_AT.max(self.names.len() * 2);
    }

    fn acquire(&mut self, claim: &Claim) -> Result<Attempt, StoreError> {
        let sent = Moment::now();
        let now = self.clock.at(sent);
        self.with(&claim.name, now, |record| record.acquire(claim, now, sent))
    }
}

/// A waiter's place in the queue. Dropping it leaves the queue, so a cancelled waiter leaves too.
struct Place<'a> {
    memory: &'a Memory,
    claim: &'a Claim,
    comes: Arc<Notify>,
}

impl<'a> Place<'a> {
    fn of(memory: &'a Memory, claim: &'a Claim) -> Self {
        let comes = Arc::new(Notify::new());
        memory.store().places.insert(claim.id, Arc::clone(&comes));
        Self { memory, claim, comes }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut store = self.memory.store();
        store.places.remove(&self.claim.id);
        let now = store.now();
        store.with(&self.claim.name, now, |record| record.leave_queue(self.claim.id));
    }
}

#[async_trait]
impl Backend for Memory {
    fn store(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakeup: Wakeup::Queue,
            fair: true,
            shared: true,
            permits: true,
            latches: true,
            together: true,
            listing: true,
            waiting: true,
            // It may be faster than that, and forgets no token.
            succession: 32,
            ask_again: Duration::from_secs(1),
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.store().acquire(claim)
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        // No other request can intervene, because the store is locked.
        let mut store = self.store();
        let now = store.now();
        for claim in claims {
            if !store.with(&claim.name, now, |record| record.would_grant(claim, now))? {
                return Ok(AttemptAll::Busy);
            }
        }
        let mut grants = Vec::with_capacity(claims.len());
        for claim in claims {
            match store.acquire(claim)? {
                Attempt::Granted(grant) => grants.push(grant),
                Attempt::Busy { .. } => {
                    return Err(StoreError::failed(
                        "a free name became busy during a request for several names",
                    ));
                }
            }
        }
        Ok(AttemptAll::Granted(grants))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        if let Attempt::Granted(grant) = self.store().acquire(claim)? {
            return Ok(grant);
        }
        let place = Place::of(self, claim);
        loop {
            let expires_in = {
                let mut store = self.store();
                match store.acquire(claim)? {
                    Attempt::Granted(grant) => return Ok(grant),
                    Attempt::Busy { expires_in } => {
                        let now = store.now();
                        store.with(&claim.name, now, |record| record.join_queue(claim, now));
                        expires_in
                    }
                }
            };
            let at_most = self.capabilities().ask_again;
            let pause = expires_in.map_or(at_most, |left| at_most.min(left));
            tokio::select! {
                biased;
                () = place.comes.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let mut store = self.store();
        let now = store.now();
        let released = store.with_granted(grant, now, |record| record.release(grant, now));
        Ok(released.unwrap_or_else(Release::Lost))
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut store = self.store();
        let now = store.now();
        Ok(grants
            .iter()
            .map(|grant| {
                let renewed = store.with_granted(grant, now, |record| record.renew(grant, now));
                renewed.unwrap_or_else(Renewal::Lost)
            })
            .collect())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let mut store = self.store();
        let now = store.now();
        store.with(&claim.name, now, |record| record.withdraw(claim.id));
        Ok(())
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let mut store = self.store();
        let now = store.now();
        let converted = store.with_granted(grant, now, |record| record.convert(grant, to, now));
        Ok(converted.unwrap_or_else(Conversion::Lost))
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let latches = &mut self.store().latches;
        let latch = latches.entry(name.clone()).or_default();
        let state = latch.step(step);
        if latch.is_absent() {
            latches.remove(name);
        }
        Ok(state)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let store = self.store();
        let now = store.now();
        Ok(store.names.get(name).map(|kept| kept.record.holders(name, now)).unwrap_or_default())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let store = self.store();
        let now = store.now();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = store.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        Ok(names.flat_map(|(name, kept)| kept.record.holders(name, now)).collect())
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let store = self.store();
        let now = store.now();
        Ok(store.names.get(name).map(|kept| kept.record.waiting(name, now)).unwrap_or_default())
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let mut store = self.store();
        let now = store.now();
        Ok(store.with(name, now, |record| record.force_release(name, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::HolderInfo;

    fn claim() -> Claim {
        Claim {
            id: ClaimId::new(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(10),
            waits: true,
            reserve: 0,
            holder: Arc::new(HolderInfo::here(None)),
        }
    }

    /// Its runtime ended, or its withdrawal never arrived.
    #[tokio::test(start_paused = true)]
    async fn vanished_waiter_does_not_block_a_free_lock() {
        let memory = Memory::new();
        let Attempt::Granted(held) = memory.try_acquire(&claim()).await.unwrap() else {
            panic!("it is free")
        };
        let gone = claim();
        let waited = tokio::time::timeout(Duration::from_millis(10), memory.acquire(&gone)).await;
        assert!(waited.is_err(), "{waited:?}");
        memory.release(&held).await.unwrap();
        let next = memory.try_acquire(&claim()).await.unwrap();
        assert!(matches!(next, Attempt::Granted(_)), "{next:?}");
    }

    /// The name was swept after its lease had expired.
    #[tokio::test(start_paused = true)]
    async fn swept_grant_counts_as_taken_over_only_after_a_later_grant() {
        let memory = Memory::new();
        let Attempt::Granted(old) = memory.try_acquire(&claim()).await.unwrap() else { panic!("it is free") };
        tokio::time::advance(Duration::from_secs(11)).await;
        for number in 0..SWEEP_AT {
            let other = Claim { name: Name::new(format!("n{number}")).unwrap(), ..claim() };
            memory.try_acquire(&other).await.unwrap();
        }
        assert!(!memory.store().names.contains_key(&old.name), "it was not swept");
        let renewed = async || memory.renew(std::slice::from_ref(&old)).await.unwrap();
        // Its record begins anew, but nothing is granted.
        assert_eq!(memory.force_release(&old.name).await.unwrap(), []);
        assert_eq!(renewed().await, [Renewal::Lost(LossCause::Expired)]);
        let next = memory.try_acquire(&claim()).await.unwrap();
        assert!(matches!(next, Attempt::Granted(_)), "{next:?}");
        assert_eq!(renewed().await, [Renewal::Lost(LossCause::TakenOver)]);
    }

    /// Put out by force, told of it, and never asked for again.
    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_after_forced_releases() {
        let memory = Memory::new();
        for number in 0..1000 {
            let claim = Claim { name: Name::new(format!("n{number}")).unwrap(), ..claim() };
            let Attempt::Granted(held) = memory.try_acquire(&claim).await.unwrap() else {
                panic!("it is free")
            };
            assert_eq!(memory.force_release(&claim.name).await.unwrap().len(), 1);
            memory.release(&held).await.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let kept = memory.store().names.len();
        assert!(kept <= SWEEP_AT, "{kept} names are kept");
    }
}
