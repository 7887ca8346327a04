//! Lease rows on a database server: what is the same for all of them.

use crate::{
    hints::Hint,
    parts::{end_of_renewal, renew_in_parts},
    rows::{HolderRow, Standing, StandingRow, granted, holders, not_converted, why_not},
    sweep::{BATCH, EVERY, Sweeping},
};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::Arc,
    time::Duration,
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, Mode, Moment,
    Name, Release, Renewal, StoreError, Together, Token, Wakeup, async_trait,
};

/// How long others have between noting the greatest token of idle rows and deleting them. A statement that read the
/// earlier note, and would begin a row anew below it, has ended by then.
const SETTLE: Duration = Duration::from_secs(1);

/// How often what was locked is renewed once more, and how long is waited for it the first time; the next time, twice as long.
/// Clients have rows locked for a moment all the time, and only strangers for longer.
const ONCE_MORE: u32 = 6;
const MOMENT: Duration = Duration::from_millis(1);

/// The table on one kind of server. Each request is one statement that commits by itself.
pub(crate) trait LeaseTable: Send + Sync + 'static {
    /// The store in words.
    fn store(&self) -> &str;

    /// Where renewal and the sweep run.
    fn background(&self) -> &Background;

    /// How waiters learn of a release.
    fn wakeup(&self) -> Wakeup;

    /// The longest time that a waiter lets pass without looking.
    fn poll(&self) -> Duration;

    /// Whether waiters stand in a queue.
    fn fair(&self) -> bool;

    /// The upsert: the token, or `None` when others keep the claim out.
    fn ask(&self, claim: &Claim) -> impl Future<Output = Result<Option<i64>, StoreError>> + Send;

    /// Whether [`ask_all`](Self::ask_all) is served.
    fn together(&self) -> bool {
        false
    }

    /// The upsert of several names, all of them alone: token and name of each, or nothing when others keep one of the
    /// claims out.
    fn ask_all(
        &self,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<(i64, String)>, StoreError>> + Send {
        let _ = claims;
        async { Ok(Vec::new()) }
    }

    /// Looks whether others keep the claim out, marks the name as awaited if so, or keeps the claim's place in the queue, and
    /// tells after how long that may change.
    fn stand_by(&self, claim: &Claim) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send;

    /// Hears from now on that the claim may have its name, where the server tells.
    fn hint(&self, claim: &Claim) -> Hint;

    /// Whether the name was awaited, or `None` when the claim does not hold it.
    fn release(&self, grant: &Grant) -> impl Future<Output = Result<Option<bool>, StoreError>> + Send;

    /// Makes the claim hold the name alone, or as a reader; whether that was possible.
    fn convert(&self, grant: &Grant, to: Mode) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Clears the claim from the name's row.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The claims that were renewed. Those whose rows somebody has locked just now are not, and not waited for.
    fn renew(&self, grants: &[Grant]) -> impl Future<Output = Result<HashSet<ClaimId>, StoreError>> + Send;

    /// What stands in the rows of these names.
    fn look(&self, names: &[&Name]) -> impl Future<Output = Result<Vec<Standing>, StoreError>> + Send;

    /// The same, on a connection of the renewals, and as it stands there: one row may be damaged.
    fn look_for_renewal(
        &self,
        names: &[&Name],
    ) -> impl Future<Output = Result<Vec<StandingRow>, StoreError>> + Send;

    /// Who holds the name.
    fn holders(&self, name: &Name) -> impl Future<Output = Result<Vec<HolderRow>, StoreError>> + Send;

    /// Who holds a name that begins so.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<HolderRow>, StoreError>> + Send;

    /// Ends the hold, and tells whose it was.
    fn force(&self, name: &Name) -> impl Future<Output = Result<Vec<HolderRow>, StoreError>> + Send;

    /// Connects, and tells how long ago idle rows were deleted.
    fn open(&self) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send;

    /// A connection of its own to sweep with.
    type Broom: Broom;

    /// Opens it.
    fn broom(&self) -> Self::Broom;

    /// Lets go of the connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What deletes idle rows.
pub(crate) trait Broom: Send + Sync {
    /// Whether the last sweep is long enough ago; if so, this one has begun.
    fn begin(&self, every: Duration) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Prefix, name and token of idle rows, in order, after this one.
    fn idle(
        &self,
        after: (String, String),
    ) -> impl Future<Output = Result<Vec<(String, String, i64)>, StoreError>> + Send;

    /// Notes that every new row's token must be greater.
    fn raise_floor(&self, token: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes those of the rows that are still idle, and tells how many.
    fn delete(&self, rows: Vec<(String, String)>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Lets go of the connection.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Locks in the rows of such a table.
pub(crate) struct LeaseRows<T> {
    table: Arc<T>,
    sweeping: Sweeping,
}

impl<T: LeaseTable> LeaseRows<T> {
    /// Connects, so that what is wrong with the table is known early.
    pub(crate) async fn open(table: T) -> Result<Self, StoreError> {
        let sweeping = Sweeping::new(table.open().await?);
        Ok(Self { table: Arc::new(table), sweeping })
    }

    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        sweep(&*self.table, Duration::ZERO).await
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>, StoreError> {
        let sent = Moment::now();
        let Some(token) = self.table.ask(claim).await? else { return Ok(None) };
        let token = Token::try_from(token).map_err(StoreError::failed)?;
        Ok(Some(Grant::leased(claim, token, sent)))
    }

    /// Renews what can be renewed; asks once more, a few times, for what somebody has locked.
    async fn renew_part(&self, grants: &[Grant], end: Moment) -> Result<Vec<Renewal>, StoreError> {
        let mut answers = self.renew_free(grants, end).await?;
        for pause in (0..ONCE_MORE).map(|time| MOMENT * 2_u32.pow(time)) {
            let locked = |index: &usize| answers[*index] == Renewal::Unanswered;
            let locked: Vec<usize> = (0..grants.len()).filter(locked).collect();
            // Whoever was renewed has to know it in time.
            if locked.is_empty() || Moment::now() + pause >= end {
                break;
            }
            tokio::time::sleep(pause).await;
            let again: Vec<Grant> = locked.iter().map(|index| grants[*index].clone()).collect();
            let told = match self.renew_free(&again, end).await {
                Ok(told) => told,
                Err(error) => {
                    self.incomplete(&error);
                    break;
                }
            };
            for (index, answer) in locked.into_iter().zip(told) {
                answers[index] = answer;
            }
        }
        Ok(answers)
    }

    /// Renews those whose rows nobody else has locked. The others are unanswered, as long as their rows say that they are held.
    async fn renew_free(&self, grants: &[Grant], end: Moment) -> Result<Vec<Renewal>, StoreError> {
        let renewed = self.table.renew(grants).await?;
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim);
        let without_a_look = || {
            let told = |grant| if is_renewed(grant) { Renewal::Renewed } else { Renewal::Unanswered };
            grants.iter().map(told).collect()
        };
        let rest: Vec<&Name> =
            grants.iter().filter(|grant| !is_renewed(grant)).map(|grant| &grant.name).collect();
        let found = match &*rest {
            [] => Vec::new(),
            // To look takes as long once more, and whoever was renewed has to know it in time.
            _ if !renewed.is_empty() && end.has_passed() => return Ok(without_a_look()),
            rest => match self.table.look_for_renewal(rest).await {
                Ok(found) => found.into_iter().map(Standing::try_from).collect::<Result<_, _>>()?,
                Err(error) if renewed.is_empty() => return Err(error),
                Err(error) => {
                    self.incomplete(&error);
                    return Ok(without_a_look());
                }
            },
        };
        let answer = |grant: &Grant| {
            if is_renewed(grant) {
                return Ok(Renewal::Renewed);
            }
            let row = found.iter().find(|row| row.name == grant.name.as_str());
            let held = row.map_or(Ok(false), |row| row.is_held_by(grant.claim))?;
            Ok(if held { Renewal::Unanswered } else { Renewal::Lost(why_not(grant, &found)) })
        };
        grants.iter().map(answer).collect()
    }

    /// Renews those first whose rows can be read. To look for the damaged costs one request; to try either half of the batch,
    /// and halves of these, takes longer than leases at a distant server last.
    async fn renew_sound(&self, grants: &[Grant], end: Moment) -> Result<Vec<Renewal>, StoreError> {
        let store = self.table.store();
        let names: Vec<&Name> = grants.iter().map(|grant| &grant.name).collect();
        let mut damaged = HashSet::new();
        let rows = match self.table.look_for_renewal(&names).await {
            // What is damaged may also fail the look: then halves are tried.
            Err(error) if !error.is_unavailable() => Vec::new(),
            rows => rows?,
        };
        for row in rows {
            let name = row.0.clone();
            if Standing::try_from(row).is_err() {
                damaged.insert(name);
            }
        }
        let (damaged, sound): (Vec<Grant>, Vec<Grant>) =
            grants.iter().cloned().partition(|grant| damaged.contains(grant.name.as_str()));
        let mut told = HashMap::new();
        for part in [&sound, &damaged] {
            if part.is_empty() || (end.has_passed() && !told.is_empty()) {
                continue;
            }
            match renew_in_parts(store, part, end, |part| self.renew_part(part, end)).await {
                Ok(answers) => told.extend(part.iter().map(|grant| grant.claim).zip(answers)),
                Err(error) if told.is_empty() => return Err(error),
                Err(error) => {
                    let name = &part[0].name;
                    tracing::warn!(lock.name = %name, lock.store = store, %error, "a lease could not be renewed");
                }
            }
        }
        let tell = |grant: &Grant| told.get(&grant.claim).copied().unwrap_or(Renewal::Unanswered);
        Ok(grants.iter().map(tell).collect())
    }

    /// What was renewed counts all the same.
    fn incomplete(&self, error: &StoreError) {
        tracing::warn!(lock.store = self.table.store(), %error, "a part of a renewal failed");
    }

    fn sweep_if_due(&self) {
        if self.sweeping.is_due() {
            let table = Arc::clone(&self.table);
            self.table.background().spawn(async move {
                if let Err(error) = sweep(&*table, EVERY).await {
                    tracing::warn!(lock.store = %table.store(), %error, "idle rows could not be deleted; tried again in an hour");
                }
            });
        }
    }
}

/// Deletes idle rows, and tells how many, unless the last sweep is less than `every` ago.
///
/// Before a row goes, its token is noted in the row with the empty name, above which every new row's token begins. So
/// tokens rise even if the server's clock is set back meanwhile (clause T2).
async fn sweep<T: LeaseTable>(table: &T, every: Duration) -> Result<u64, StoreError> {
    let broom = table.broom();
    let swept = sweep_with(&broom, every).await;
    broom.close().await;
    swept
}

async fn sweep_with(broom: &impl Broom, every: Duration) -> Result<u64, StoreError> {
    if !broom.begin(every).await? {
        return Ok(0);
    }
    let (mut after, mut deleted) = ((String::new(), String::new()), 0);
    loop {
        let idle = broom.idle(after).await?;
        let Some((prefix, name, _)) = idle.last().cloned() else { return Ok(deleted) };
        let greatest = idle.iter().map(|(.., token)| *token).max().unwrap_or(0);
        let whole = idle.len() == usize::from(BATCH);
        broom.raise_floor(greatest).await?;
        tokio::time::sleep(SETTLE).await;
        deleted += broom.delete(idle.into_iter().map(|(prefix, name, _)| (prefix, name)).collect()).await?;
        if !whole {
            return Ok(deleted);
        }
        after = (prefix, name);
    }
}

#[async_trait]
impl<T: LeaseTable> Backend for LeaseRows<T> {
    fn store(&self) -> &str {
        self.table.store()
    }

    fn capabilities(&self) -> Capabilities {
        let (wakeup, ask_again) = (self.table.wakeup(), self.table.poll());
        let family = Capabilities { shared: true, permits: true, listing: true, ..Capabilities::POLLED };
        let (fair, together) = (self.table.fair(), self.table.together());
        Capabilities { wakeup, ask_again, fair, together, ..family }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        if let Some(grant) = self.ask(claim).await? {
            return Ok(Attempt::Granted(grant));
        }
        let standing = self.table.look(&[&claim.name]).await?.pop();
        let expires_in = standing.map_or(Ok(None), |row| row.obstacle(claim))?;
        Ok(Attempt::Busy { expires_in })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        if claims.iter().any(|claim| claim.mode != Mode::Exclusive) {
            return Ok(Together::Apart);
        }
        let sent = Moment::now();
        let grants = granted(claims, self.table.ask_all(claims).await?, sent)?;
        Ok(grants.map_or(Together::Busy, Together::Granted))
    }

    /// Asks, and from then on looks, until the name is free or a hint says that it may be.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let longest = self.table.poll();
        // Where hints come, asking again is but a precaution.
        let first = match self.table.wakeup() {
            Wakeup::Poll => Duration::from_millis(1).min(longest),
            Wakeup::Push | Wakeup::Queue => longest,
        };
        // The jitter adds up to the pause itself, so half of what is meant is asked for.
        let growing = ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2);
        let growing = growing.with_max_delay(longest / 2).with_jitter().without_max_times();
        let mut pauses = growing.build();
        if let Some(grant) = self.ask(claim).await? {
            return Ok(grant);
        }
        let mut hint = self.table.hint(claim);
        loop {
            while let Some(left) = self.table.stand_by(claim).await? {
                // What is left was cut to whole milliseconds.
                let over = left + Duration::from_millis(1);
                if hint.told(pauses.next().unwrap_or(longest).min(longest).min(over)).await {
                    break;
                }
            }
            if let Some(grant) = self.ask(claim).await? {
                return Ok(grant);
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let released = match self.table.release(grant).await? {
            Some(awaited) => Release::Released { awaited },
            None => Release::NotHeld(why_not(grant, &self.table.look(&[&grant.name]).await?)),
        };
        // Not before the look, which the sweep could make say that the store has forgotten the name.
        self.sweep_if_due();
        Ok(released)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let end = end_of_renewal(grants);
        match self.renew_part(grants, end).await {
            Err(error) if !error.is_unavailable() && grants.len() > 1 => self.renew_sound(grants, end).await,
            told => told,
        }
    }

    /// Behind the claim's own request, if that is still on its way: one connection carries both out, in order.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.table.withdraw(claim).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        if self.table.convert(grant, to).await? {
            return Ok(Conversion::Converted);
        }
        not_converted(grant, &self.table.look(&[&grant.name]).await?)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        holders(self.table.holders(name).await?)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        holders(self.table.list(prefix).await?)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        holders(self.table.force(name).await?)
    }

    fn background(&self) -> Background {
        self.table.background().clone()
    }

    async fn close(&self) {
        self.table.close().await;
    }
}
