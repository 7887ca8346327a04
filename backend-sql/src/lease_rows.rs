//! Lease rows: the code that all databases share.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `renewals`, `parts` | renewing many leases, in parts if it cannot be done as a whole |
//! | `settle`, `batches` | a row that is read and written back; several rows in one request |
//! | `lease_table` | the trait of what lease rows ask of a database |
//! | `record_rows`, `known_rows` | the meaning of a row's columns; rows that need not be read again |
//! | `sweep` | unused rows |

pub(crate) mod batches;
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only for PostgreSQL rows are remembered"))]
pub(crate) mod known_rows;
pub(crate) mod lease_table;
mod parts;
pub(crate) mod record_rows;
mod renewals;
mod settle;
pub(crate) mod sweep;

use self::{
    lease_table::{Answer, LeaseTable, Listed},
    parts::{end_of_renewal, renew_in_parts},
    record_rows::{Seen, Write, by_latch, by_record, latch_key},
    settle::{Basis, Via},
    sweep::{EVERY, Sweeping, sweep},
};
use crate::{
    lane::Again,
    values::{granted, mark_lasts},
};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Capability, Claim, Conversion, Grant, Holder,
    LatchState, LatchStep, Mode, Moment, Name, Release, Renewal, StoreError, Token, Waiter, async_trait,
    record::Record,
};

/// Takes a step on a latch.
pub(crate) async fn step(
    table: &impl LeaseTable,
    name: &Name,
    step: &LatchStep,
) -> Result<LatchState, StoreError> {
    let step = by_latch(name.clone(), step.clone());
    Via(table, Again::Safe).settle(&latch_key(name), Basis::Nothing, step).await
}

/// Locks in the rows of such a table.
pub(crate) struct LeaseRows<T> {
    table: Arc<T>,
    sweeping: Sweeping,
}

/// The outcome of asking by one statement.
enum Asked {
    Granted(Grant),
    /// A record decides.
    Undecided(Basis),
}

impl<T: LeaseTable> LeaseRows<T> {
    /// Connects, so that problems with the table show early.
    pub(crate) async fn open(table: T) -> Result<Self, StoreError> {
        let sweeping = Sweeping::new(table.open().await?);
        Ok(Self { table: Arc::new(table), sweeping })
    }

    #[cfg(feature = "_server")]
    pub(crate) fn has_all_characters(&self) -> bool {
        self.table.has_all_characters()
    }

    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        sweep(&self.table.broom(), Duration::ZERO).await
    }

    fn via(&self, again: Again) -> Via<'_, T> {
        Via(&self.table, again)
    }

    /// The content of the name's row, unless another client has changed it.
    fn guess(&self, name: &Name, is_of_use: impl FnOnce(&Seen) -> bool) -> Option<Basis> {
        self.table.known()?.guess(name, is_of_use).map(Basis::Guessed)
    }

    /// The basis for a decision when a statement leaves it to the record.
    fn basis(&self, name: &Name, seen: Option<Box<Seen>>) -> Basis {
        let Some(seen) = seen else { return Basis::Nothing };
        if let Some(known) = self.table.known() {
            known.read(name, &seen);
        }
        Basis::Read(*seen)
    }

    /// Asks by one statement, unless a record is known to decide.
    async fn ask(&self, claim: &Claim) -> Result<Asked, StoreError> {
        // A claim for more permits than exist is never granted, even on a free name.
        if !claim.mode.admits([]) {
            return Ok(Asked::Undecided(Basis::Nothing));
        }
        let shares = claim.mode != Mode::Exclusive;
        if let Some(basis) = self.guess(&claim.name, |seen| shares || seen.has_record()) {
            return Ok(Asked::Undecided(basis));
        }
        let sent = Moment::now();
        let seen = match self.table.ask(claim).await? {
            Answer::Done(token) => {
                let token = Token::try_from(token).map_err(StoreError::failed)?;
                return Ok(Asked::Granted(Grant::leased(claim, token, sent).reserving(claim.reserve)));
            }
            Answer::No => None,
            Answer::Seen(seen) => Some(seen),
        };
        Ok(Asked::Undecided(self.basis(&claim.name, seen)))
    }

    /// Turns the outcome into an attempt. Also returns whether a refused claim will be told of a release.
    async fn decide(&self, claim: &Claim, asked: Asked) -> Result<(Attempt, bool), StoreError> {
        match asked {
            Asked::Granted(grant) => Ok((Attempt::Granted(grant), false)),
            Asked::Undecided(basis) => self.take_or_join(claim, basis).await,
        }
    }

    /// Looks first, and asks only if the columns say that the name is free: looking takes no lock. The lease counts
    /// from the request, not from the look.
    async fn look_and_ask(&self, claim: &Claim) -> Result<Asked, StoreError> {
        let seen = self.via(Again::Safe).read(claim.name.as_str()).await?;
        if !seen.has_record() && seen.record(&claim.name)?.would_grant(claim, seen.now())? {
            return self.ask(claim).await;
        }
        Ok(Asked::Undecided(Basis::Read(seen)))
    }

    /// Acquires the name if possible. Otherwise a waiting claim leaves a mark or keeps its place in the queue, unless
    /// its last one is still valid for long enough, with the bell of this process.
    async fn take_or_join(&self, claim: &Claim, basis: Basis) -> Result<(Attempt, bool), StoreError> {
        let (fair, lasts) = (self.table.fair(), mark_lasts(self.table.poll()));
        let take_or_join = |record: &mut Record, seen: &Seen| {
            let attempt = record_rows::acquire(record, claim, seen)?;
            if claim.waits && matches!(attempt, Attempt::Busy { .. }) {
                let now = seen.now();
                if !fair {
                    record.leave_mark(claim, now, lasts);
                } else if !record.has_place(claim.id, now + Record::PLACE / 2) {
                    record.join_queue(claim, now);
                }
                record.set_bell(claim.id, self.table.bell());
            }
            // A mark is removed when its claim is granted, and the next release then tells no waiter. So a shared waiter
            // that relied on another's mark polls. An exclusive one need not: no mark keeps it out, so after a wake-up it
            // is granted the name or leaves its own mark.
            let counts = fair || claim.mode == Mode::Exclusive || record.has_mark(claim.id, seen.now());
            let told = counts && self.table.is_told(record, claim, seen.now());
            Ok((attempt, told))
        };
        let change = by_record(claim.name.clone(), Write::IfChanged, take_or_join);
        self.via(Again::Safe).settle(claim.name.as_str(), basis, change).await
    }

    /// Changes the record of `name`.
    async fn change<R: Send>(
        &self,
        name: &Name,
        basis: Basis,
        (write, again): (Write, Again),
        mut change: impl FnMut(&mut Record, &Seen) -> R + Send,
    ) -> Result<R, StoreError> {
        let change = by_record(name.clone(), write, |record, seen| Ok(change(record, seen)));
        self.via(again).settle(name.as_str(), basis, change).await
    }

    fn sweep_if_due(&self) {
        if self.sweeping.is_due() {
            let table = Arc::clone(&self.table);
            self.table.background().spawn(async move {
                if let Err(error) = sweep(&table.broom(), EVERY).await {
                    tracing::warn!(lock.store = %table.store(), %error, "could not delete idle rows; trying again in an hour");
                }
            });
        }
    }
}

#[async_trait]
impl<T: LeaseTable> Backend for LeaseRows<T> {
    fn store(&self) -> &str {
        self.table.store()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakeup: self.table.wakeup(),
            ask_again: self.table.poll(),
            fair: self.table.fair(),
            // A queue would be passed over.
            succession: if self.table.fair() { 0 } else { self.table.reserves() },
            together: self.table.together(),
            shared: true,
            permits: true,
            latches: true,
            listing: true,
            waiting: self.table.fair(),
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let claim = &Claim { waits: false, ..claim.clone() };
        let asked = self.ask(claim).await?;
        self.decide(claim, asked).await.map(|(attempt, _)| attempt)
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        if claims.iter().any(|claim| claim.mode != Mode::Exclusive) {
            return Ok(AttemptAll::Apart);
        }
        let sent = Moment::now();
        if let Some(grants) = granted(claims, self.table.ask_all(claims).await?, sent)? {
            return Ok(AttemptAll::Granted(grants));
        }
        for claim in claims {
            let seen = self.table.read(claim.name.as_str()).await?;
            if !seen.record(&claim.name)?.would_grant(claim, seen.now())? {
                return Ok(AttemptAll::Busy);
            }
        }
        // A holder has just left, or an expired claim is still in a record.
        Ok(AttemptAll::Apart)
    }

    /// Asks once, and then looks until the name is free or a hint says that it may be.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let longest = self.table.poll();
        let first = Duration::from_millis(1).min(longest);
        // The jitter adds up to the whole pause, so this asks for half the pause.
        let growing = ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2);
        let growing = growing.with_max_delay(longest / 2).with_jitter().without_max_times();
        let mut pauses = growing.build();
        let mut asked = self.ask(claim).await?;
        if let Asked::Granted(grant) = asked {
            return Ok(grant);
        }
        // Listens before it joins: a client that sees its mark or its place sends a hint.
        let mut hint = self.table.hint(claim);
        // A row read before may have changed without a hint.
        let mut stale = hint.is_some() && matches!(asked, Asked::Undecided(Basis::Read(_)));
        loop {
            match self.decide(claim, asked).await? {
                (Attempt::Granted(grant), _) => return Ok(grant),
                (Attempt::Busy { .. }, _) if stale => {
                    stale = false;
                    asked = self.look_and_ask(claim).await?;
                }
                (Attempt::Busy { expires_in }, told) => {
                    // If there are hints, asking again is only a precaution.
                    let pause = if told {
                        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
                    } else {
                        pauses.next().unwrap_or(longest).min(longest)
                    };
                    // The rest of the lease was cut to whole milliseconds.
                    let over = expires_in.map_or(pause, |left| left + Duration::from_millis(1));
                    // After a hint it asks; otherwise it looks first.
                    let told = if let Some(hint) = &mut hint {
                        hint.told(pause.min(over)).await
                    } else {
                        tokio::time::sleep(pause.min(over)).await;
                        false
                    };
                    asked = if told {
                        // Others were told too, and one of them may take the mark away in this moment.
                        pauses = growing.with_min_delay((first * 5).min(longest / 2)).build();
                        self.ask(claim).await?
                    } else {
                        self.look_and_ask(claim).await?
                    };
                }
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let release = |record: &mut Record, seen: &Seen| record.release(grant, seen.now());
        let basis = if let Some(basis) = self.guess(&grant.name, Seen::has_record) {
            basis
        } else {
            let seen = match self.table.release(grant).await? {
                Answer::Done(awaited) => {
                    self.sweep_if_due();
                    return Ok(Release::Released { awaited });
                }
                Answer::No => None,
                Answer::Seen(seen) => Some(seen),
            };
            self.basis(&grant.name, seen)
        };
        // Not repeated: its answer would be about the first time.
        let released = self.change(&grant.name, basis, (Write::IfReleased, Again::No), release).await?;
        // Only after the look: a sweep before it could make it seem that the store has forgotten the name.
        self.sweep_if_due();
        Ok(released)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let end = end_of_renewal(grants);
        renew_in_parts(self.table.store(), grants, end, |part| renewals::renew_part(&*self.table, part, end))
            .await
    }

    /// Runs after the claim's own request, if that is still on its way: one connection carries out both, in order.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        if self.table.withdraw(claim).await? {
            return Ok(());
        }
        let withdraw = |record: &mut Record, _: &Seen| record.withdraw(claim.id);
        self.change(&claim.name, Basis::Nothing, (Write::Always, Again::Safe), withdraw).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let convert = |record: &mut Record, seen: &Seen| record.convert(grant, to, seen.now());
        // Always writes, so that a cancelled conversion to the other mode can change nothing any more.
        let basis = self.guess(&grant.name, |_| true).unwrap_or(Basis::Nothing);
        self.change(&grant.name, basis, (Write::Always, Again::Safe), convert).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self::step(&*self.table, name, step).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let seen = self.table.read(name.as_str()).await?;
        Ok(seen.record(name)?.holders(name, seen.now()))
    }

    /// No claim is granted on an unreadable row, so its name counts as held by an unknown holder. It hides no other.
    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let mut holders = Vec::new();
        for Listed { name, seen } in self.table.list(prefix).await? {
            // No lock has any other name.
            let Some(name) = Name::new(name).ok().filter(|name| name.as_str().starts_with(prefix)) else {
                continue;
            };
            match seen.and_then(|seen| Ok(seen.record(&name)?.holders(&name, seen.now()))) {
                Ok(known) => holders.extend(known),
                Err(error) => {
                    tracing::warn!(lock.store = %self.table.store(), %error, "cannot tell who holds a name");
                    holders.push(Holder::of(name));
                }
            }
        }
        // The database may sort by another encoding. Those of one name stay in order.
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    /// Without a queue the row knows one waiter at most, so it tells of none.
    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        if !self.table.fair() {
            return Err(StoreError::unsupported(Capability::Waiting));
        }
        let seen = self.table.read(name.as_str()).await?;
        Ok(seen.record(name)?.waiting(name, seen.now()))
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let force = |record: &mut Record, seen: &Seen| record.force_release(name, seen.now());
        self.change(name, Basis::Nothing, (Write::IfChanged, Again::No), force).await
    }

    fn background(&self) -> Background {
        self.table.background().clone()
    }

    async fn close(&self) {
        self.table.close().await;
    }
}
