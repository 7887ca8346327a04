//! A store of locks built on a store of records.
//!
//! | file | what is in it |
//! |---|---|
//! | `renewals` | how leases are renewed |
//! | `change` | a record that is read, changed and swapped |
//! | `edition`, `idle` | the text under a key; names to forget |
//! | `store` | what a store of records must do |

mod change;
mod edition;
mod idle;
mod renewals;
mod store;
#[cfg(test)]
mod tests;

pub use store::{RecordStore, Stored};

use self::{
    change::{Changes, LOCKS, Tries, Write, key_of},
    edition::{Edition, parse},
    renewals::until_of,
};
use super::{LatchRecord, Record, StoreTime};
use crate::{
    contract::{
        Capabilities, Claim, Grant, Holder, LossCause, Mode, Moment, Name, StoreError, Waiter, Wakeup,
    },
    store::{Attempt, Backend, Background, Conversion, LatchState, LatchStep, Release, Renewal, Rounds},
};
use async_trait::async_trait;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Locks over any [`RecordStore`]: a [`Backend`] with every mode.
///
/// It has readers, permits, latches, elections, lists of holders and waiters, and forced release. Waiters of all
/// clients are served in the order in which they came. Each request reads one record, lets [`Record`] change it, and
/// swaps it if it changed. That takes two trips to the store, three for a name of which it keeps nothing, and more when
/// clients collide.
///
/// Each waiter writes its place every 1.5 s, so one name serves dozens of waiting clients over a fast store, and about
/// ten where a trip takes 100 ms. Where the store [asks again](RecordStore::ask_again) less often than each second, places
/// last three times that pause, and are written as much more seldom.
///
/// The client that released a name last removes it once it has been unused for a minute, at that client's next release.
/// If the client stops before then, the name's record stays until the name is used again.
///
/// # Cancel safety
///
/// Any request may be dropped. [`Backend::withdraw`] always changes the record, so a swap that is still on its way
/// meets a different version. So does the swap of a renewal once its holder has released the grant, or was told that it
/// is lost. If neither happens and the swap comes after the lease has expired, the name stays held for up to a lease.
#[derive(Debug)]
pub struct Records<S> {
    changes: Arc<Changes<S>>,
    /// How many times it was asked to renew.
    renewals: AtomicU32,
}

/// The prefix of the keys of latches.
const LATCHES: &str = "latch/";

impl<S: RecordStore> Records<S> {
    /// Creates locks over these records.
    pub fn new(store: S) -> Self {
        Self { changes: Arc::new(Changes::new(store)), renewals: AtomicU32::new(0) }
    }

    /// How long a waiter keeps its place without asking again: it asks three times before it would lose it.
    fn place(&self) -> Duration {
        Record::PLACE.max(self.changes.store.ask_again() * 3)
    }

    /// The holders for people, with the rest of the lease that each may count on.
    fn described(&self, record: &Record, name: &Name, now: StoreTime) -> impl Iterator<Item = Holder> {
        let margin = self.changes.store.margin();
        let rest = move |left: Duration| left.saturating_sub(margin);
        record
            .holders(name, now)
            .into_iter()
            .map(move |holder| Holder { left: holder.left.map(rest), ..holder })
    }

    /// Changes the record of `name`, and forgets the name once it has been idle for long enough.
    async fn change<T>(
        &self,
        name: &Name,
        write: Write,
        change: impl FnMut(&mut Record, StoreTime, Moment) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let (outcome, _) = self.changes.change(name, write, change).await?;
        Ok(outcome)
    }
}

#[async_trait]
impl<S: RecordStore> Backend for Records<S> {
    fn store(&self) -> &str {
        self.changes.store.store()
    }

    fn capabilities(&self) -> Capabilities {
        let tells = self.changes.store.tells_of_changes();
        Capabilities {
            margin: self.changes.store.margin(),
            wakeup: if tells { Wakeup::Push } else { Wakeup::Poll },
            ask_again: self.changes.store.ask_again(),
            fair: true,
            shared: true,
            permits: true,
            latches: true,
            listing: true,
            waiting: true,
            succession: 32,
            renew_batch: 100,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let kept = self.changes.kept(claim);
        let acquire = |record: &mut Record, now, sent| record.acquire(&kept, now, sent);
        Ok(match self.change(&claim.name, Write::IfChanged, acquire).await? {
            Attempt::Granted(grant) => Attempt::Granted(grant.lasting(claim.lease)),
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let mut rounds = Rounds::of(self.capabilities());
        let (key, kept) = (key_of(&claim.name), self.changes.kept(claim));
        let (margin, place) = (self.changes.store.margin(), self.place());
        loop {
            let ask = |record: &mut Record, now: StoreTime, sent: Moment| {
                let answer = record.acquire(&kept, now, sent)?;
                // As a lease, a place lasts by each client's time.
                let now = now + margin;
                if matches!(answer, Attempt::Busy { .. }) && !record.has_place(claim.id, now + place / 2) {
                    record.join_queue_for(claim, now, place);
                }
                Ok(answer)
            };
            let (answer, version) = self.changes.change(&claim.name, Write::IfChanged, ask).await?;
            let pause = rounds.next();
            match answer {
                Attempt::Granted(grant) => return Ok(grant.lasting(claim.lease)),
                Attempt::Busy { expires_in } => {
                    // One millisecond more, because stores may count in milliseconds.
                    let until_expiry = expires_in.map_or(pause, |left| left + Duration::from_millis(1));
                    self.changes.store.changed(&key, &version, pause.min(until_expiry)).await?;
                }
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let mut held_until = None;
        let release = |record: &mut Record, now: StoreTime, _: Moment| {
            let until = until_of(record, grant, now);
            Ok(match record.release(grant, now) {
                // Apart from force, only its own release ends a grant before its lease. So this release's swap was
                // carried out. It answered false because it was sent twice, and others have written since.
                Release::Lost(LossCause::TakenOver | LossCause::Expired)
                    if held_until.is_some_and(|until| now < until) =>
                {
                    Release::Released { awaited: false }
                }
                release => {
                    held_until = until;
                    release
                }
            })
        };
        self.change(&grant.name, Write::IfChanged, release).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.changes.renew(grants, self.renewals.fetch_add(1, Ordering::Relaxed)).await
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
        let (store, key) = (&self.changes.store, format!("{LATCHES}{name}"));
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
        let (record, now) = self.changes.look(name).await?;
        Ok(self.described(&record, name, now).collect())
    }

    /// No claim is granted on an unreadable record, so its name counts as held by an unknown holder. It hides no other.
    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let (prefix, mut doubt) = (format!("{LOCKS}{prefix}"), self.changes.doubt());
        loop {
            let (mut holders, mut again) = (Vec::new(), false);
            for (key, stored) in self.changes.store.list(&prefix).await? {
                let name = key.strip_prefix(LOCKS).and_then(|name| Name::new(name).ok());
                let Some(name) = name else { continue };
                match parse::<_, Record>(&key, &stored) {
                    Ok(Some(Edition { content, .. })) => {
                        again |= doubt.ends_with(&content, None, stored.now);
                        holders.extend(self.described(&content, &name, stored.now));
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(lock.store = self.store(), %error, "cannot tell who holds a name");
                        holders.push(Holder::of(name));
                    }
                }
            }
            if !again {
                holders.sort_by(|one, other| one.name.cmp(&other.name));
                return Ok(holders);
            }
        }
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let (record, now) = self.changes.look(name).await?;
        Ok(record.waiting(name, now))
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.change(name, Write::IfChanged, |record, now, _| Ok(record.force_release(name, now))).await
    }

    fn background(&self) -> Background {
        self.changes.background.clone()
    }

    async fn close(&self) {
        // Another client of this backend goes on removing idle names.
        if self.changes.background.clients() < 2 {
            self.changes.stop_forgetting();
        }
        self.changes.store.close().await;
    }
}
