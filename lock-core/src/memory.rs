//! The store in this process: the reference for all others.

use crate::{
    Attempt, Backend, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, HolderInfo, LatchState,
    LatchStep, LossCause, Mode, Moment, Name, Release, Renewal, StoreError, Together, Token, Wakeup,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    num::NonZeroU32,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// Locks in this process's memory: the same contract as every store, without any I/O.
///
/// For tests, and for programs that run alone today and in a fleet tomorrow. Waiters stand in a queue and are served in
/// the order in which they came. Follows tokio's paused time. Cloning gives the same store, so two
/// [`Locks`](crate::Locks) made of clones exclude each other; `Memory::new()` is a store of its own.
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
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Store>>);

#[derive(Debug, Default)]
struct Store {
    /// Only names that are held or waited for.
    names: BTreeMap<Name, Entry>,
    /// How many parties each latch waits for, and which of them have counted down.
    latches: HashMap<Name, (NonZeroU32, HashSet<Name>)>,
    /// One counter for all names: it rises for each of them, and nothing needs to be kept for a name that is free.
    last_token: u64,
}

#[derive(Debug, Default)]
struct Entry {
    held: Vec<Held>,
    /// Whom somebody put out by force, until that holder has been told or its lease would have run out.
    forced: Vec<(ClaimId, Moment)>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Held {
    claim: ClaimId,
    mode: Mode,
    token: Token,
    since: (Moment, SystemTime),
    expires: Moment,
    holder: Arc<HolderInfo>,
}

#[derive(Debug)]
struct Waiter {
    claim: ClaimId,
    mode: Mode,
    turn: Arc<Notify>,
}

impl Memory {
    /// A new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Changes the entry of `name`, lets the first waiter know if it may hold it then, and forgets it if it is not
    /// needed.
    fn with<T>(&mut self, name: &Name, change: impl FnOnce(&mut Entry, &mut u64) -> T) -> T {
        if !self.names.contains_key(name) {
            self.names.insert(name.clone(), Entry::default());
        }
        let Some(entry) = self.names.get_mut(name) else { unreachable!("it was put there") };
        entry.held.retain(|held| !held.expires.has_passed());
        entry.forced.retain(|(_, expires)| !expires.has_passed());
        let outcome = change(entry, &mut self.last_token);
        match entry.waiters.front() {
            Some(first) if entry.admits(first.mode) => first.turn.notify_one(),
            None if entry.held.is_empty() && entry.forced.is_empty() => drop(self.names.remove(name)),
            _ => {}
        }
        outcome
    }
}

impl Entry {
    fn holding(&mut self, claim: ClaimId) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.claim == claim)
    }

    fn admits(&self, mode: Mode) -> bool {
        mode.admits(self.held.iter().map(|held| held.mode))
    }

    /// Why `claim` does not hold the name.
    fn why_not(&mut self, claim: ClaimId) -> LossCause {
        let forced = self.forced.len();
        self.forced.retain(|(put_out, _)| *put_out != claim);
        if self.forced.len() < forced {
            return LossCause::Forced;
        }
        if self.held.is_empty() { LossCause::Expired } else { LossCause::TakenOver }
    }

    /// Whether `claim` holds the name, or those who hold it admit it and nobody is before it.
    fn would_grant(&mut self, claim: &Claim) -> Result<bool, StoreError> {
        if self.holding(claim.id).is_some() {
            return Ok(true);
        }
        claim.mode.agrees_with(self.held.iter().map(|held| held.mode)).map_err(StoreError::failed)?;
        let is_next = self.waiters.front().is_none_or(|first| first.claim == claim.id);
        Ok(is_next && self.admits(claim.mode))
    }

    /// Grants the name to `claim` if it may have it.
    fn grant(&mut self, claim: &Claim, last_token: &mut u64) -> Result<Option<Grant>, StoreError> {
        let now = Moment::now();
        let expires = now + claim.lease;
        if let Some(held) = self.holding(claim.id) {
            held.expires = expires;
            return Ok(Some(Grant::leased(claim, held.token, now)));
        }
        if !self.would_grant(claim)? {
            return Ok(None);
        }
        self.waiters.pop_front();
        let wall = SystemTime::now();
        let clock = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(0));
        *last_token = (*last_token + 1).max(clock);
        let token = Token::new(*last_token).ok_or_else(|| StoreError::failed("there are no more tokens"))?;
        self.held.push(Held {
            claim: claim.id,
            mode: claim.mode,
            token,
            since: (now, wall),
            expires,
            holder: Arc::clone(&claim.holder),
        });
        Ok(Some(Grant::leased(claim, token, now)))
    }

    /// When the first of those who hold the name may be gone.
    fn expires_in(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.expires.left()).min()
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
            ask_again: Duration::from_secs(1),
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.store().with(&claim.name, |entry, last| {
            Ok(match entry.grant(claim, last)? {
                Some(grant) => Attempt::Granted(grant),
                None => Attempt::Busy { expires_in: entry.expires_in() },
            })
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        // Nobody comes between, because the store is locked.
        let mut store = self.store();
        for claim in claims {
            if !store.with(&claim.name, |entry, _| entry.would_grant(claim))? {
                return Ok(Together::Busy);
            }
        }
        let grants =
            claims.iter().map(|claim| store.with(&claim.name, |entry, last| entry.grant(claim, last)));
        let grants: Option<Vec<Grant>> = grants.collect::<Result<_, _>>()?;
        Ok(grants.map_or(Together::Busy, Together::Granted))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let turn = Arc::new(Notify::new());
        loop {
            let expires_in = {
                let mut store = self.store();
                let answer = store.with(&claim.name, |entry, last| {
                    if let Some(grant) = entry.grant(claim, last)? {
                        return Ok(Ok(grant));
                    }
                    if !entry.waiters.iter().any(|waiter| waiter.claim == claim.id) {
                        let turn = Arc::clone(&turn);
                        entry.waiters.push_back(Waiter { claim: claim.id, mode: claim.mode, turn });
                    }
                    Ok(Err(entry.expires_in()))
                });
                match answer? {
                    Ok(grant) => return Ok(grant),
                    Err(expires_in) => expires_in,
                }
            };
            let at_most = self.capabilities().ask_again;
            let pause = expires_in.map_or(at_most, |left| at_most.min(left));
            tokio::select! {
                () = turn.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        Ok(self.store().with(&grant.name, |entry, _| {
            if entry.holding(grant.claim).is_none() {
                return Release::NotHeld(entry.why_not(grant.claim));
            }
            entry.held.retain(|held| held.claim != grant.claim);
            Release::Released { awaited: false }
        }))
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut store = self.store();
        let renew = |grant: &Grant| {
            store.with(&grant.name, |entry, _| {
                if let Some(held) = entry.holding(grant.claim) {
                    held.expires = Moment::now() + grant.lease;
                    return Renewal::Renewed;
                }
                Renewal::Lost(entry.why_not(grant.claim))
            })
        };
        Ok(grants.iter().map(renew).collect())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.store().with(&claim.name, |entry, _| {
            entry.held.retain(|held| held.claim != claim.id);
            entry.waiters.retain(|waiter| waiter.claim != claim.id);
        });
        Ok(())
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        Ok(self.store().with(&grant.name, |entry, _| {
            let others = entry.held.iter().filter(|held| held.claim != grant.claim).map(|held| held.mode);
            let admitted = to.admits(others);
            match entry.holding(grant.claim) {
                None => Conversion::NotHeld(entry.why_not(grant.claim)),
                Some(_) if !admitted => Conversion::Refused,
                Some(held) => {
                    held.mode = to;
                    Conversion::Converted
                }
            }
        }))
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let latches = &mut self.store().latches;
        match step {
            LatchStep::CountDown { party, of } => {
                let (theirs, counted) = latches.entry(name.clone()).or_insert_with(|| (*of, HashSet::new()));
                if theirs == of {
                    counted.insert(party.clone());
                }
            }
            LatchStep::Remove => drop(latches.remove(name)),
            LatchStep::Look => {}
        }
        Ok(latches.get(name).map_or(LatchState::default(), |(of, counted)| LatchState {
            of: of.get(),
            counted: u32::try_from(counted.len()).unwrap_or(u32::MAX),
        }))
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.store().with(name, |entry, _| entry.held.iter().map(|held| held.tell(name)).collect()))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let store = self.store();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = store.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        let held = names.flat_map(|(name, entry)| entry.held.iter().map(move |held| (name, held)));
        Ok(held.filter(|(_, held)| !held.expires.has_passed()).map(|(name, held)| held.tell(name)).collect())
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.store().with(name, |entry, _| {
            let held = std::mem::take(&mut entry.held);
            entry.forced.extend(held.iter().map(|held| (held.claim, held.expires)));
            held.iter().map(|held| held.tell(name)).collect()
        }))
    }
}

impl Held {
    fn tell(&self, name: &Name) -> Holder {
        let (since, wall) = self.since;
        Holder::of(name.clone())
            .claim(self.claim, self.token)
            .mode(self.mode)
            .info((*self.holder).clone())
            .since(wall, Moment::now().since(since))
            .left(self.expires.left())
    }
}
