//! The store in this process: the reference for all others.

use crate::{
    Attempt, Backend, Capabilities, Claim, ClaimId, Grant, Holder, HolderInfo, LossCause, Moment, Name,
    Release, Renewal, StoreError, Token, Wakeup,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, VecDeque},
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
    /// One counter for all names: it rises for each of them, and nothing needs to be kept for a name that is free.
    last_token: u64,
}

#[derive(Debug, Default)]
struct Entry {
    held: Option<Held>,
    /// Whom somebody put out by force, until that holder has been told or its lease would have run out.
    forced: Option<(ClaimId, Moment)>,
    waiters: VecDeque<(ClaimId, Arc<Notify>)>,
}

#[derive(Debug)]
struct Held {
    claim: ClaimId,
    token: Token,
    since: (Moment, SystemTime),
    expires: Moment,
    holder: Arc<HolderInfo>,
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
    /// Changes the entry of `name`, lets the first waiter know if it is free then, and forgets it if it is not needed.
    fn with<T>(&mut self, name: &Name, change: impl FnOnce(&mut Entry, &mut u64) -> T) -> T {
        if !self.names.contains_key(name) {
            self.names.insert(name.clone(), Entry::default());
        }
        let Some(entry) = self.names.get_mut(name) else { unreachable!("it was put there") };
        entry.held.take_if(|held| held.expires.has_passed());
        entry.forced.take_if(|(_, expires)| expires.has_passed());
        let outcome = change(entry, &mut self.last_token);
        if entry.held.is_none() {
            match entry.waiters.front() {
                Some((_, turn)) => turn.notify_one(),
                None if entry.forced.is_none() => drop(self.names.remove(name)),
                None => {}
            }
        }
        outcome
    }
}

impl Entry {
    fn holds(&self, claim: ClaimId) -> bool {
        self.held.as_ref().is_some_and(|held| held.claim == claim)
    }

    /// Why `claim` does not hold the name.
    fn why_not(&mut self, claim: ClaimId) -> LossCause {
        if self.forced.take_if(|(forced, _)| *forced == claim).is_some() {
            return LossCause::Forced;
        }
        if self.held.is_some() { LossCause::TakenOver } else { LossCause::Expired }
    }

    /// Grants the name to `claim` if it is free and nobody is before it.
    fn grant(&mut self, claim: &Claim, last_token: &mut u64) -> Option<Grant> {
        let now = Moment::now();
        let expires = now + claim.lease;
        if let Some(held) = self.held.as_mut().filter(|held| held.claim == claim.id) {
            held.expires = expires;
            return Some(Grant::leased(claim, held.token, now));
        }
        let is_next = self.waiters.front().is_none_or(|(first, _)| *first == claim.id);
        if self.held.is_some() || !is_next {
            return None;
        }
        self.waiters.pop_front();
        let wall = SystemTime::now();
        let clock = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(0));
        *last_token = (*last_token + 1).max(clock);
        let token = Token::new(*last_token)?;
        self.held = Some(Held {
            claim: claim.id,
            token,
            since: (now, wall),
            expires,
            holder: Arc::clone(&claim.holder),
        });
        Some(Grant::leased(claim, token, now))
    }

    fn expires_in(&self) -> Option<Duration> {
        self.held.as_ref().map(|held| held.expires.left())
    }
}

#[async_trait]
impl Backend for Memory {
    fn store(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        let ask_again = Duration::from_secs(1);
        Capabilities { wakeup: Wakeup::Queue, fair: true, listing: true, ask_again, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        Ok(self.store().with(&claim.name, |entry, last| match entry.grant(claim, last) {
            Some(grant) => Attempt::Granted(grant),
            None => Attempt::Busy { expires_in: entry.expires_in() },
        }))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let turn = Arc::new(Notify::new());
        loop {
            let expires_in = {
                let mut store = self.store();
                let answer = store.with(&claim.name, |entry, last| {
                    if let Some(grant) = entry.grant(claim, last) {
                        return Ok(grant);
                    }
                    if !entry.waiters.iter().any(|(id, _)| *id == claim.id) {
                        entry.waiters.push_back((claim.id, Arc::clone(&turn)));
                    }
                    Err(entry.expires_in())
                });
                match answer {
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
            if !entry.holds(grant.claim) {
                return Release::NotHeld(entry.why_not(grant.claim));
            }
            entry.held = None;
            Release::Released { awaited: false }
        }))
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut store = self.store();
        let renew = |grant: &Grant| {
            store.with(&grant.name, |entry, _| {
                if let Some(held) = entry.held.as_mut().filter(|held| held.claim == grant.claim) {
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
            entry.held.take_if(|held| held.claim == claim.id);
            entry.waiters.retain(|(id, _)| *id != claim.id);
        });
        Ok(())
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.store().with(name, |entry, _| entry.held.iter().map(|held| held.tell(name)).collect()))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let store = self.store();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = store.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        let held = names.filter_map(|(name, entry)| Some((name, entry.held.as_ref()?)));
        Ok(held.filter(|(_, held)| !held.expires.has_passed()).map(|(name, held)| held.tell(name)).collect())
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.store().with(name, |entry, _| {
            let held = entry.held.take();
            entry.forced = held.as_ref().map(|held| (held.claim, held.expires));
            held.iter().map(|held| held.tell(name)).collect()
        }))
    }
}

impl Held {
    fn tell(&self, name: &Name) -> Holder {
        let (since, wall) = self.since;
        Holder::of(name.clone())
            .claim(self.claim, self.token)
            .info((*self.holder).clone())
            .since(wall, Moment::now().since(since))
            .left(self.expires.left())
    }
}
