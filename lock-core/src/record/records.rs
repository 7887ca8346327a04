//! A store of locks built on a store of records.

#[cfg(test)]
mod tests;

use super::{
    LatchRecord, Record, RecordStore, StoreTime,
    edition::{Edition, parse},
    idle::IdleNames,
};
use crate::{
    Attempt, Backend, Background, Capabilities, Claim, Conversion, Grant, Holder, LatchState, LatchStep,
    LossCause, Mode, Moment, Name, Release, Renewal, StoreError, Waiter, Wakeup, backend::Rounds, lease,
};
use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::{StreamExt, stream};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Locks over any [`RecordStore`]: a [`Backend`] with every mode.
///
/// It has readers, permits, latches, elections, lists of holders and waiters, and forced release. Waiters of all
/// clients are served in the order in which they came. Each request reads one record, asks [`Record`] what becomes of
/// it, and swaps it if it changed. That takes two trips to the store, three for a name of which it keeps nothing, and
/// more when clients collide.
///
/// Each waiter writes its place every 1.5 s, so one name serves dozens of waiting clients over a fast store, and about
/// ten where a trip takes 100 ms.
///
/// A name that nobody has used for a minute is removed by the client that released it last, the next time that it
/// releases something. What a client leaves that stops before then stays until the name is used again.
///
/// # Cancel safety
///
/// Any request may be dropped. [`Backend::withdraw`] always changes the record, so a swap that is still on its way
/// meets a different version. So does the swap of a renewal once its holder has released the grant, or was told that it
/// is lost. If neither happens and the swap comes after the lease has expired, the name stays held for up to a lease.
#[derive(Debug)]
pub struct Records<S>(Arc<Inner<S>>);

#[derive(Debug)]
struct Inner<S> {
    store: S,
    background: Background,
    idle: IdleNames,
    closed: CancellationToken,
    /// How many times it was asked to renew.
    renewals: AtomicU32,
}

/// How long a request keeps trying while other clients change the record first.
const PATIENCE: Duration = Duration::from_secs(5);
/// A swap is sent no later than this after its read, and its answer counts no later than twice as long after it: a name is
/// forgotten only much later.
const FRESH: Duration = Duration::from_secs(20);
/// How many records are renewed at the same time, beside those that are slow to answer.
const RENEWED_AT_ONCE: usize = 16;

/// The prefixes of the keys of locks, and of latches.
const LOCKS: &str = "lock/";
const LATCHES: &str = "latch/";
/// The key of the greatest token of all forgotten names.
const FLOOR: &str = "floor";

/// Whether a record is written even if nothing in it changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    IfChanged,
    Always,
}

impl<S: RecordStore> Records<S> {
    /// Creates locks over these records.
    pub fn new(store: S) -> Self {
        let background = store.background();
        Self(Arc::new(Inner {
            store,
            background,
            idle: IdleNames::default(),
            closed: CancellationToken::new(),
            renewals: AtomicU32::new(0),
        }))
    }

    /// Changes the record of `name`, and forgets the name once it has been idle for long enough.
    async fn change<T>(
        &self,
        name: &Name,
        write: Write,
        change: impl FnMut(&mut Record, StoreTime, Moment) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let (outcome, _) = self.0.change(name, write, change).await?;
        Ok(outcome)
    }

    /// Renews one grant.
    ///
    /// Versions do not tell whether a swap came in time: nobody need have written since the lease expired. But an expired
    /// lease is never renewed (clause L2).
    async fn renew_one(&self, grant: &Grant) -> Result<Renewal, StoreError> {
        let mut expired = Moment::now();
        let renew = |record: &mut Record, now: StoreTime, _: Moment| {
            let held = record.live(now).find(|held| held.claim == grant.claim);
            let left = held.map_or(Duration::ZERO, |held| held.until.since(now));
            // No sooner than by the store's clock, since the store took its time before it answered.
            expired = Moment::now() + left;
            let renewal = record.renew(grant, now);
            if matches!(renewal, Renewal::Lost(_)) {
                // So that a renewal that is still on its way finds nothing to renew.
                record.release(grant, now);
            }
            Ok(renewal)
        };
        let renewal = self.change(&grant.name, Write::IfChanged, renew).await?;
        if renewal == Renewal::Renewed && expired.has_passed() {
            // It may have been carried out too late. The holder's own deadline has passed in any case.
            self.release(grant).await?;
            return Ok(Renewal::Lost(LossCause::Expired));
        }
        Ok(renewal)
    }
}

impl<S: RecordStore> Inner<S> {
    /// The record of `name` and the store's time, to look at.
    async fn look(&self, name: &Name) -> Result<(Record, StoreTime), StoreError> {
        let key = key_of(name);
        let stored = self.store.read(&key).await?;
        let record: Edition<Record> = parse(&key, &stored)?.unwrap_or_default();
        Ok((record.content, stored.now))
    }

    async fn change<T>(
        self: &Arc<Self>,
        name: &Name,
        write: Write,
        mut change: impl FnMut(&mut Record, StoreTime, Moment) -> Result<T, StoreError> + Send,
    ) -> Result<(T, S::Version), StoreError> {
        let key = key_of(name);
        let mut tries = Tries::new();
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
                // The key was read before the floor, and whoever removed it had raised the floor before that.
                None => (true, Edition { edition: 0, content: Record::after(self.floor().await?.content) }),
            };
            let mut record = before.content.clone();
            let outcome = change(&mut record, stored.now, sent)?;
            if write == Write::IfChanged && record == before.content {
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
            let this = Arc::clone(self);
            self.background.spawn(async move {
                let closed = this.closed.clone();
                closed.run_until_cancelled(this.forget(due)).await
            });
        }
    }

    /// Removes names that this client left idle, unless somebody has written to their records since.
    async fn forget(&self, names: Vec<(Name, u64)>) {
        for (name, edition) in names {
            if let Err(error) = self.forget_one(&name, edition).await {
                // It stays until the name is used again.
                tracing::debug!(lock.name = %name, lock.store = self.store.store(), %error, "an idle name was not removed");
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

/// A swap that was sent, and the outcome if it was carried out.
struct Swap<T> {
    text: String,
    outcome: T,
}

/// Tries again for a while, with pauses that grow and differ from client to client.
struct Tries {
    until: Moment,
    pauses: ExponentialBackoff,
}

impl Tries {
    fn new() -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(1))
            .with_max_delay(Duration::from_millis(20))
            .with_jitter()
            .without_max_times();
        Self { until: Moment::now() + PATIENCE, pauses: pauses.build() }
    }

    async fn again(&mut self) -> Result<(), StoreError> {
        if self.until.has_passed() {
            return Err(StoreError::unavailable(
                "the store is too slow, or other clients kept changing the record first",
            ));
        }
        tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
        Ok(())
    }
}

fn key_of(name: &Name) -> String {
    format!("{LOCKS}{name}")
}

/// Which of `count` records is the first in this call.
///
/// Steps of the golden ratio soon come near every record, even for those who make only every second or third call.
fn first_of(call: u32, count: usize) -> usize {
    const GOLDEN_RATIO: u32 = 0x9E37_79B9;
    let part = u64::from(call.wrapping_mul(GOLDEN_RATIO));
    usize::try_from((part * count as u64) >> 32).unwrap_or_default()
}

/// One answer for each grant, or an error if there is no answer for any.
fn told(
    grants: &[Grant],
    answers: Vec<Option<Result<Renewal, StoreError>>>,
) -> Result<Vec<Renewal>, StoreError> {
    let mut failed = None;
    let answers: Vec<_> = grants
        .iter()
        .zip(answers)
        .map(|(grant, answer)| match answer {
            Some(Ok(renewal)) => renewal,
            Some(Err(error)) => {
                tracing::debug!(lock.name = %grant.name, %error, "a record was not renewed");
                failed.get_or_insert(error);
                Renewal::Unanswered
            }
            None => Renewal::Unanswered,
        })
        .collect();
    match failed {
        Some(error) if answers.iter().all(|answer| *answer == Renewal::Unanswered) => Err(error),
        _ => Ok(answers),
    }
}

#[async_trait]
impl<S: RecordStore> Backend for Records<S> {
    fn store(&self) -> &str {
        self.0.store.store()
    }

    fn capabilities(&self) -> Capabilities {
        let tells = self.0.store.tells_of_changes();
        Capabilities {
            wakeup: if tells { Wakeup::Push } else { Wakeup::Poll },
            // A waiter renews its place three times before it would lose it.
            ask_again: self.0.store.ask_again().min(Record::PLACE / 3),
            fair: true,
            shared: true,
            permits: true,
            latches: true,
            listing: true,
            waiting: true,
            succession: true,
            renew_batch: 100,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.change(&claim.name, Write::IfChanged, |record, now, sent| record.acquire(claim, now, sent)).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let mut rounds = Rounds::of(self.capabilities());
        let key = key_of(&claim.name);
        loop {
            let ask = |record: &mut Record, now: StoreTime, sent: Moment| {
                let answer = record.acquire(claim, now, sent)?;
                if matches!(answer, Attempt::Busy { .. })
                    && !record.has_place(claim.id, now + Record::PLACE / 2)
                {
                    record.join_queue(claim, now);
                }
                Ok(answer)
            };
            let (answer, version) = self.0.change(&claim.name, Write::IfChanged, ask).await?;
            let pause = rounds.next();
            match answer {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => {
                    // One millisecond more, because stores may count in milliseconds.
                    let until_expiry = expires_in.map_or(pause, |left| left + Duration::from_millis(1));
                    self.0.store.changed(&key, &version, pause.min(until_expiry)).await?;
                }
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.change(&grant.name, Write::IfChanged, |record, now, _| Ok(record.release(grant, now))).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let Some(patience) = grants.iter().map(|grant| lease::renewal_patience(grant.lease)).min() else {
            return Ok(Vec::new());
        };
        let slots = &Semaphore::new(RENEWED_AT_ONCE);
        let renew = |(at, grant): (usize, Grant)| async move {
            let slot = slots.acquire().await;
            let mut renewed = pin!(timeout(patience / 2, self.renew_one(&grant)));
            // One that is slow goes on beside the others, which do not wait for it.
            let answer = if let Ok(answer) = timeout(patience / 16, &mut renewed).await {
                answer
            } else {
                drop(slot);
                renewed.await
            };
            (at, answer.unwrap_or_else(|_| Err(StoreError::unavailable("no answer"))))
        };
        // A record that cannot be read, or a request that hangs, costs no other lock its lease: what was renewed in
        // time counts.
        let mut answers: Vec<Option<Result<Renewal, StoreError>>> = grants.iter().map(|_| None).collect();
        let mut in_turn: Vec<_> = grants.iter().cloned().enumerate().collect();
        // Nor do many that are slow: each call begins with others.
        in_turn.rotate_left(first_of(self.0.renewals.fetch_add(1, Ordering::Relaxed), grants.len()));
        let renewals = stream::iter(in_turn).map(renew);
        let renewals = renewals.buffer_unordered(grants.len()).take_until(sleep(patience / 4 * 3));
        let mut renewals = pin!(renewals);
        while let Some((at, answer)) = renewals.next().await {
            answers[at] = Some(answer);
        }
        told(grants, answers)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let withdraw = |record: &mut Record, _, _| {
            record.withdraw(claim.id);
            Ok(())
        };
        self.change(&claim.name, Write::Always, withdraw).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        // Always writes, so that a cancelled conversion to the other mode can change nothing any more.
        self.change(&grant.name, Write::Always, |record, now, _| Ok(record.convert(grant, to, now))).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (store, key) = (&self.0.store, format!("{LATCHES}{name}"));
        let mut tries = Tries::new();
        loop {
            let stored = store.read(&key).await?;
            let before: Edition<LatchRecord> = parse(&key, &stored)?.unwrap_or_default();
            let mut latch = before.content.clone();
            let state = latch.step(step);
            if latch == before.content {
                return Ok(state);
            }
            let next = if latch.is_absent() { None } else { Some(before.next(latch, stored.now).text()?) };
            if store.swap(&key, &stored.version, next.as_deref()).await? {
                return Ok(state);
            }
            tries.again().await?;
        }
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (record, now) = self.0.look(name).await?;
        Ok(record.holders(name, now))
    }

    /// A record that cannot be read lets nobody in, so its name counts as held by somebody unknown. It hides no other.
    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let mut holders = Vec::new();
        for (key, stored) in self.0.store.list(&format!("{LOCKS}{prefix}")).await? {
            let Some(name) = key.strip_prefix(LOCKS).and_then(|name| Name::new(name).ok()) else { continue };
            match parse::<_, Record>(&key, &stored) {
                Ok(record) => {
                    holders.extend(
                        record.into_iter().flat_map(|edition| edition.content.holders(&name, stored.now)),
                    );
                }
                Err(error) => {
                    tracing::warn!(lock.store = self.store(), %error, "cannot tell who holds a name");
                    holders.push(Holder::of(name));
                }
            }
        }
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let (record, now) = self.0.look(name).await?;
        Ok(record.waiting(name, now))
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.change(name, Write::IfChanged, |record, now, _| Ok(record.force_release(name, now))).await
    }

    fn background(&self) -> Background {
        self.0.background.clone()
    }

    async fn close(&self) {
        // Another client of this backend goes on removing idle names.
        if self.0.background.clients() < 2 {
            self.0.closed.cancel();
        }
        self.0.store.close().await;
    }
}
