//! A record that is read, changed and swapped, until no other client came first; and names to forget.

use super::{
    RecordStore,
    edition::{Edition, parse},
    idle::IdleNames,
};
use crate::{
    contract::{Claim, ClaimId, Moment, Name, StoreError},
    record::{Record, StoreTime},
    store::Background,
};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The records of locks in a store, and how they change.
#[derive(Debug)]
pub(super) struct Changes<S> {
    pub(super) store: S,
    pub(super) background: Background,
    /// Cancelled, and replaced, when the last client closes: names are forgotten again once another comes.
    closing: Mutex<CancellationToken>,
    idle: IdleNames,
}

/// How long a request keeps trying while other clients change the record first.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A swap is sent no later than this after its read, and its answer counts no later than twice as long after it: a name is
/// forgotten only much later.
const FRESH: Duration = Duration::from_secs(20);
/// The prefix of the keys of locks.
pub(super) const LOCKS: &str = "lock/";
/// The key of the greatest token of all forgotten names.
const FLOOR: &str = "floor";

/// Whether a record is written even if nothing in it changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    IfChanged,
    Always,
    /// If it changed. The leases of other claims do not matter.
    Renewal(ClaimId),
}

impl<S: RecordStore> Changes<S> {
    pub(super) fn new(store: S) -> Self {
        let background = store.background();
        Self { store, background, closing: Mutex::default(), idle: IdleNames::default() }
    }

    /// The record of `name` and the store's time, to look at.
    pub(super) async fn look(&self, name: &Name) -> Result<(Record, StoreTime), StoreError> {
        let (key, mut doubt) = (key_of(name), self.doubt());
        loop {
            let stored = self.store.read(&key).await?;
            let record: Edition<Record> = parse(&key, &stored)?.unwrap_or_default();
            if !doubt.ends_with(&record.content, None, stored.now) {
                return Ok((record.content, stored.now));
            }
        }
    }

    /// The claim as a record keeps it: the time by which its lease begins may be behind by the margin.
    pub(super) fn kept(&self, claim: &Claim) -> Claim {
        Claim { lease: claim.lease + self.store.margin(), ..claim.clone() }
    }

    /// Whether the end of a lease is certain.
    pub(super) fn doubt(&self) -> Doubt<'_, S> {
        Doubt { store: &self.store, is_open: !self.store.margin().is_zero() }
    }

    /// Changes the record of `name`, and forgets the name once it has been idle for long enough. Returns the version that
    /// was read.
    pub(super) async fn change<T>(
        self: &Arc<Self>,
        name: &Name,
        write: Write,
        mut change: impl FnMut(&mut Record, StoreTime, Moment) -> Result<T, StoreError> + Send,
    ) -> Result<(T, S::Version), StoreError> {
        let key = key_of(name);
        let (mut tries, mut doubt) = (Tries::new(), self.doubt());
        let mut last: Option<Swap<T>> = None;
        loop {
            let sent = Moment::now();
            let stored = self.store.read(&key).await?;
            // Something on the way sent the swap twice, and the answer was about the second time.
            if let Some(swap) = last.take_if(|swap| stored.text.as_ref() == Some(&swap.text)) {
                return Ok((swap.outcome, stored.version));
            }
            let (absent, before) = match parse(&key, &stored)? {
                Some(edition) => (false, edition),
                // The key was read before the floor, and the client that removed it had raised the floor before that.
                None => (true, Edition { edition: 0, content: Record::after(self.floor().await?.content) }),
            };
            let of = if let Write::Renewal(claim) = write { Some(claim) } else { None };
            if doubt.ends_with(&before.content, of, stored.now) {
                continue;
            }
            let mut record = before.content.clone();
            let outcome = change(&mut record, stored.now, sent)?;
            if write != Write::Always && record == before.content {
                return Ok((outcome, stored.version));
            }
            let is_idle = record.is_idle(stored.now);
            let next = before.next(record, stored.now);
            let text = next.text()?;
            let age = || Moment::now().since(sent);
            if age() < FRESH && self.store.swap(&key, &stored.version, Some(&text)).await? {
                if absent && FRESH * 2 < age() {
                    // The name may have been used and removed again meanwhile, with greater tokens.
                    return Err(StoreError::claim_spent("the store took too long to answer"));
                }
                if is_idle {
                    self.forget_later(name, next.edition);
                }
                return Ok((outcome, stored.version));
            }
            last = Some(Swap { text, outcome });
            tries.again().await?;
        }
    }

    async fn floor(&self) -> Result<Edition<u64>, StoreError> {
        let stored = self.store.read(FLOOR).await?;
        Ok(parse(FLOOR, &stored)?.unwrap_or_default())
    }

    /// Once a name is removed, every later record of it begins after this token.
    async fn raise_floor(&self, token: u64) -> Result<(), StoreError> {
        let mut tries = Tries::new();
        loop {
            let stored = self.store.read(FLOOR).await?;
            let floor: Edition<u64> = parse(FLOOR, &stored)?.unwrap_or_default();
            if token <= floor.content {
                return Ok(());
            }
            // As high as the clock, so that it is raised once for many names.
            let next = floor.next(token.max(stored.now.as_micros()), stored.now).text()?;
            if self.store.swap(FLOOR, &stored.version, Some(&next)).await? {
                return Ok(());
            }
            tries.again().await?;
        }
    }

    /// Notes that the name is idle, and removes names that have been idle for long enough, in the background.
    fn forget_later(self: &Arc<Self>, name: &Name, edition: u64) {
        let due = self.idle.note(name, edition);
        if !due.is_empty() {
            let (this, closing) = (Arc::clone(self), self.closing().clone());
            self.background.spawn(async move { closing.run_until_cancelled(this.forget(due)).await });
        }
    }

    fn closing(&self) -> MutexGuard<'_, CancellationToken> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes none of the names that are being removed.
    pub(super) fn stop_forgetting(&self) {
        mem::take(&mut *self.closing()).cancel();
    }

    /// Removes names that this client left idle, unless their records have been written since.
    pub(super) async fn forget(&self, names: Vec<(Name, u64)>) {
        for (name, edition) in names {
            if let Err(error) = self.forget_one(&name, edition).await {
                // It stays until the name is used again.
                tracing::debug!(lock.name = %name, lock.store = self.store.store(), %error, "could not remove the record of an idle name");
            }
        }
    }

    async fn forget_one(&self, name: &Name, edition: u64) -> Result<(), StoreError> {
        let key = key_of(name);
        let stored = self.store.read(&key).await?;
        let Some(now) = parse::<_, Record>(&key, &stored)? else { return Ok(()) };
        if now.edition == edition {
            self.raise_floor(now.content.last_token()).await?;
            self.store.swap(&key, &stored.version, None).await?;
        }
        Ok(())
    }
}

/// The doubt in a time that was counted on from an earlier reading of the store's clock, which may have been set since.
pub(super) struct Doubt<'a, S> {
    store: &'a S,
    is_open: bool,
}

impl<S: RecordStore> Doubt<'_, S> {
    /// Whether the caller must read again, by a new reading of the clock, because a lease has ended, of this claim or of
    /// any. Once is enough.
    pub(super) fn ends_with(&mut self, record: &Record, of: Option<ClaimId>, now: StoreTime) -> bool {
        let is_open = self.is_open && record.has_expired(of, now);
        if is_open {
            self.is_open = false;
            self.store.read_clock_anew();
        }
        is_open
    }
}

/// A swap that was sent, and the outcome if it was carried out.
struct Swap<T> {
    text: String,
    outcome: T,
}

/// Tries again for a while, with pauses that grow and differ from client to client.
pub(super) struct Tries {
    until: Moment,
    pauses: ExponentialBackoff,
}

impl Tries {
    pub(super) fn new() -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(1))
            .with_max_delay(Duration::from_millis(20))
            .with_jitter()
            .without_max_times();
        Self { until: Moment::now() + PATIENCE, pauses: pauses.build() }
    }

    pub(super) async fn again(&mut self) -> Result<(), StoreError> {
        if self.until.has_passed() {
            return Err(StoreError::unavailable(
                "other clients kept changing the record first, or the store is too slow",
            ));
        }
        tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
        Ok(())
    }
}

pub(super) fn key_of(name: &Name) -> String {
    format!("{LOCKS}{name}")
}
