//! Lease rows: requests to the server.

use super::{
    bell::OwnBell,
    guesses::{Guess, Guesses},
    lease_statements::Statements,
    options::Own,
    ringer::Ringer,
    server::{Done, MySql, arguments},
};
use crate::{
    hints::Hint,
    lane::{Again, Answered, Lane, Member, Server},
    lease_rows::{
        batches,
        lease_table::{Answer, LeaseTable, Listed, Renewed, Swap},
        record_rows::{Change, Row, Seen, mode_column},
        sweep::{BATCH, Broom, IDLE},
    },
    server::{Checked, Lanes},
    session_locks::rows::beyond_all_names,
    values::{end_of_prefix, millis, span},
};
use sqlx::{
    Row as _,
    mysql::{MySqlConnectOptions, MySqlRow},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tenure_core::{
    Background, Claim, Grant, Mode, Moment, Name, StoreError, Wakeup,
    record::{Bell, Record, StoreTime},
};

/// How many columns are read; some statements return one more after them.
const READ: usize = 15;

/// Lease rows in MySQL or MariaDB.
pub(crate) struct MySqlRows {
    server: Arc<MySql>,
    statements: Arc<Statements>,
    lanes: Lanes<MySql>,
    guesses: Guesses,
    bell: OwnBell,
    ringer: Ringer,
}

impl MySqlRows {
    pub(super) fn new(options: Checked<Own>, connect: MySqlConnectOptions, background: Background) -> Self {
        let statements = Arc::new(Statements::new(&options.table));
        let (create, shape_check) = (statements.create.clone(), statements.acquire.clone());
        let server = Arc::new(MySql::new(options, connect, create, shape_check));
        let bell = OwnBell::new(&server, &statements, background.clone());
        let ringer = Ringer::new(&server, background.clone());
        let lanes = Lanes::new(&server, server.options.connections, background);
        Self { lanes, guesses: Guesses::default(), bell, ringer, server, statements }
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// Tells the process with this bell that `name` may be free.
    fn ring(&self, name: &str, bell: Bell) {
        if self.bell.get() == Some(bell) {
            self.bell.tell(name);
        } else {
            self.ringer.ring(bell);
        }
    }

    /// Rings the bell that a statement returned. Returns whether the name is awaited.
    fn ring_returned(&self, name: &str, done: &Done) -> bool {
        // 1 is no bell.
        if done.last_insert_id > 1 {
            self.ring(name, Bell(done.last_insert_id));
        }
        done.last_insert_id != 0
    }

    fn seen(&self, sent: Moment, row: &MySqlRow) -> Result<Seen, StoreError> {
        seen(sent, row).map_err(|error| self.server.explain(error))
    }

    /// All rows that were read, each with its name.
    fn all_seen(&self, sent: Moment, done: &Done) -> Result<Vec<(String, Seen)>, StoreError> {
        let named = |row: &MySqlRow| Ok((row.try_get(READ)?, seen(sent, row)?));
        done.rows.iter().map(named).collect::<Result<_, _>>().map_err(|error| self.server.explain(error))
    }

    /// The names whose rows are not locked, and the time.
    async fn unlocked(&self, names: &[&Name]) -> Result<(HashSet<String>, i64), StoreError> {
        let arguments = arguments![batches::names(names), self.prefix()];
        let told = self.lanes.renewals.run(&self.statements.unlocked, arguments, Again::Safe).await?;
        let rows: Vec<(String, i64)> = self.server.rows(&told.answer)?;
        let now = rows.first().map_or(0, |(_, now)| *now);
        Ok((rows.into_iter().map(|(name, _)| name).collect(), now))
    }
}

fn seen(sent: Moment, row: &MySqlRow) -> Result<Seen, sqlx::Error> {
    let (now, floor) = (row.try_get(0)?, row.try_get(1)?);
    let Some(version) = row.try_get(2)? else { return Ok(Seen::new(sent, now, floor, None)) };
    // Bytes that are not UTF-8 become a text that is not a claim.
    let claim = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let row = Row {
        version,
        token: row.try_get(3)?,
        claim: claim(row.try_get(4)?),
        mode: row.try_get(5)?,
        since: row.try_get(6)?,
        expires_at: row.try_get(7)?,
        awaited_until: row.try_get(8)?,
        awaited_by: claim(row.try_get(9)?),
        awaited_bell: row.try_get(10)?,
        label: row.try_get(11)?,
        host: row.try_get(12)?,
        pid: row.try_get(13)?,
        record: row.try_get(14)?,
    };
    Ok(Seen::new(sent, now, floor, Some(row)))
}

impl LeaseTable for MySqlRows {
    fn store(&self) -> &str {
        &self.server.store
    }

    fn background(&self) -> &Background {
        &self.lanes.background
    }

    fn wakeup(&self) -> Wakeup {
        if self.bell.get().is_some() { Wakeup::Push } else { Wakeup::Poll }
    }

    fn hint(&self, claim: &Claim) -> Option<Hint> {
        Some(self.bell.hint(&claim.name))
    }

    fn bell(&self) -> Option<Bell> {
        self.bell.get()
    }

    /// A name has one mark, so if several processes wait, only one of them is told.
    fn is_told(&self, record: &Record, claim: &Claim, now: StoreTime) -> bool {
        self.bell.get().is_some_and(|bell| record.rings(claim.id, bell, now))
    }

    fn poll(&self) -> Duration {
        self.server.options.longest_poll()
    }

    fn fair(&self) -> bool {
        self.server.options.fair
    }

    fn patience(&self) -> Duration {
        self.server.options.response_timeout
    }

    /// Uses the statement that is likely to be enough, or none if a record is likely to decide. Each statement locks the
    /// row, even if it then grants nothing, and a binary log may get its text. So a try at a name that was held looks
    /// first. A claim that waits does not: it has just looked, or was told that the name may be free, or will leave its mark
    /// in the row anyway.
    async fn ask(&self, claim: &Claim) -> Result<Answer<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let (id, lease, mode) = (id.to_string(), millis(*lease), mode_column(*mode)?);
        let (label, host, pid) = (holder.label.as_deref(), holder.host.as_str(), i64::from(holder.pid));
        let (prefix, name_text, more) = (self.prefix(), name.as_str(), i64::from(claim.reserve));
        let mut guess = self.guesses.of(name);
        if guess == Guess::Held && !claim.waits {
            let seen = self.read(name).await?;
            guess = match &seen.row {
                None => Guess::Nothing,
                Some(row) if row.is_vacant_for(claim.mode, seen.now) => Guess::Columns,
                Some(_) => return Ok(Answer::Seen(Box::new(seen))),
            };
        }
        let Statements { acquire, take_free, take_many, .. } = &*self.statements;
        let (statement, arguments) = match guess {
            Guess::Record => return Ok(Answer::No),
            Guess::Columns | Guess::Held => {
                let mode = mode.as_deref();
                (take_free, arguments![more, id, mode, lease, label, host, pid, prefix, name_text, mode])
            }
            Guess::Nothing => {
                let mode = mode.as_deref();
                (acquire, arguments![prefix, name_text, more, id, mode, lease, label, host, pid, more + 1])
            }
        };
        let lane = self.lanes.of(name);
        let done = if mode.is_none() && !self.fair() {
            let member = Member::new(take_many, name, batches::acquisition(claim));
            lane.run_as(member, statement, arguments, Again::Safe).await?
        } else {
            lane.run(statement, arguments, Again::Safe).await?
        };
        let token = i64::try_from(done.last_insert_id).map_err(StoreError::failed)?;
        if token == 0 {
            return Ok(Answer::No);
        }
        self.guesses.changed(name);
        Ok(Answer::Done(token))
    }

    async fn release(&self, grant: &Grant) -> Result<Answer<bool>, StoreError> {
        let Grant { name, claim, mode, .. } = grant;
        if self.guesses.of(name) == Guess::Record {
            return Ok(Answer::No);
        }
        let (lane, alone) = (self.lanes.of(name), *mode == Mode::Exclusive && !self.fair());
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
        let Statements { release, release_many, .. } = &*self.statements;
        let done = if alone {
            let member = Member::new(release_many, name, batches::release(grant));
            lane.run_as(member, release, arguments, Again::No).await?
        } else {
            lane.run(release, arguments, Again::No).await?
        };
        if done.affected == 0 {
            return Ok(Answer::No);
        }
        self.guesses.changed(name);
        Ok(Answer::Done(self.ring_returned(name, &done)))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<bool, StoreError> {
        let Claim { id, name, .. } = claim;
        let id = id.to_string();
        let id = id.as_str();
        let arguments = arguments![id, id, id, id, id, self.prefix(), name.as_str()];
        let done = self.lanes.of(name).run(&self.statements.withdraw, arguments, Again::Safe).await?;
        if done.affected > 0 {
            self.ring_returned(name, &done);
        }
        Ok(done.affected > 0)
    }

    /// The server returns how many rows were changed. Reads them only if that does not prove that all were renewed.
    async fn renew(&self, grants: &[Grant]) -> Result<Renewed, StoreError> {
        let names: HashSet<&Name> = grants.iter().map(|grant| &grant.name).collect();
        let names: Vec<&Name> = names.into_iter().collect();
        let (unlocked, before) = self.unlocked(&names).await?;
        let unlocked: Vec<&Grant> =
            grants.iter().filter(|grant| unlocked.contains(grant.name.as_str())).collect();
        if unlocked.is_empty() {
            return Ok(Renewed::default());
        }
        let arguments = arguments![batches::leases(unlocked.iter().copied())?, self.prefix()];
        let Answered { answer: done, resent } =
            self.lanes.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        if done.affected == grants.len() as u64 {
            let claims = grants.iter().map(|grant| grant.claim).collect();
            return Ok(Renewed { claims, resent, seen: None });
        }
        let seen = self.read_for_renewal(&names).await?;
        // A row that the statement skipped because of a record may be plain again by now, with its old lease.
        let rows: HashMap<(&str, &str), &Row> = seen
            .iter()
            .filter_map(|(name, seen)| {
                let row = seen.row.as_ref().filter(|row| row.record.is_none())?;
                Some(((name.as_str(), row.claim.as_deref()?), row))
            })
            .collect();
        let is_renewed = |grant: &&Grant| {
            let claim = grant.claim.to_string();
            let row = rows.get(&(grant.name.as_str(), claim.as_str()));
            row.is_some_and(|row| row.covers(grant.mode) && before + millis(grant.lease) <= row.expires_at)
        };
        let claims = unlocked.into_iter().filter(is_renewed).map(|grant| grant.claim).collect();
        Ok(Renewed { claims, resent, seen: Some(seen) })
    }

    async fn read(&self, key: &str) -> Result<Seen, StoreError> {
        let (sent, arguments) = (Moment::now(), arguments![self.prefix(), key]);
        let done = self.lanes.of(key).run(&self.statements.read, arguments, Again::Safe).await?;
        let row = done.rows.first().ok_or_else(|| self.server.explain(sqlx::Error::RowNotFound))?;
        let seen = self.seen(sent, row)?;
        if let Some(row) = &seen.row {
            self.guesses.seen(key, row);
        }
        Ok(seen)
    }

    async fn swap(&self, key: &str, from: &Seen, to: &Change, again: Again) -> Result<bool, StoreError> {
        let (prefix, lane) = (self.prefix(), self.lanes.of(key));
        let Row { token, claim, mode, since, expires_at, .. } = &to.row;
        let Row { awaited_until, awaited_by, awaited_bell, label, host, pid, record, .. } = &to.row;
        let (claim, mode, awaited_by) = (claim.as_deref(), mode.as_deref(), awaited_by.as_deref());
        let (label, record) = (label.as_deref(), record.as_deref());
        let written = if let Some(row) = &from.row {
            let arguments = arguments![
                *token,
                claim,
                mode,
                *since,
                *expires_at,
                *awaited_until,
                awaited_by,
                *awaited_bell,
                label,
                host.as_str(),
                *pid,
                record,
                prefix,
                key,
                row.version,
            ];
            lane.run(&self.statements.swap, arguments, again).await?.affected > 0
        } else {
            let arguments = arguments![
                prefix,
                key,
                *token,
                claim,
                mode,
                *since,
                *expires_at,
                *awaited_until,
                awaited_by,
                *awaited_bell,
                label,
                host.as_str(),
                *pid,
                record,
            ];
            lane.run(&self.statements.insert, arguments, again).await?.last_insert_id != 0
        };
        if written {
            self.guesses.seen(key, &to.row);
            if let Some(bell) = to.wake.bell() {
                self.ring(key, bell);
            }
        }
        Ok(written)
    }

    async fn read_for_renewal(&self, names: &[&Name]) -> Result<Vec<(String, Seen)>, StoreError> {
        let (sent, arguments) = (Moment::now(), arguments![batches::names(names), self.prefix()]);
        let told = self.lanes.renewals.run(&self.statements.read_all, arguments, Again::Safe).await?;
        self.all_seen(sent, &told.answer)
    }

    /// The server returns how many rows were written, but not which. Unless all were, the next read shows which.
    async fn swap_for_renewal(&self, swaps: &[Swap<'_>]) -> Result<HashSet<String>, StoreError> {
        let (unlocked, _) = self.unlocked(&swaps.iter().map(|swap| swap.name).collect::<Vec<_>>()).await?;
        let swaps = swaps.iter().filter(|swap| unlocked.contains(swap.name.as_str()));
        let swaps: Vec<&Swap<'_>> = swaps.collect();
        if swaps.is_empty() {
            return Ok(HashSet::new());
        }
        let arguments = arguments![batches::swaps(swaps.iter().copied())?, self.prefix()];
        let told = self.lanes.renewals.run(&self.statements.swap_all, arguments, Again::Safe).await?;
        Ok(if told.answer.affected == swaps.len() as u64 { unlocked } else { HashSet::new() })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        // No name has control characters, so none comes before a space.
        let from = if prefix.is_empty() { " " } else { prefix };
        let end = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        let (sent, arguments) = (Moment::now(), arguments![self.prefix(), from, end]);
        let done = self.lanes.first().run(&self.statements.list, arguments, Again::Safe).await?;
        let listed =
            |row: &MySqlRow| Some(Listed { name: row.try_get(READ).ok()?, seen: self.seen(sent, row) });
        Ok(done.rows.iter().filter_map(listed).collect())
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        self.lanes.open().await?;
        let done = self.lanes.first().run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = done.rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    type Broom = MySqlBroom;

    fn broom(&self) -> MySqlBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        MySqlBroom { lane: Lane::new(&server), server, statements }
    }

    async fn close(&self) {
        self.bell.close();
        self.ringer.close();
        self.lanes.close().await;
    }
}

/// A separate connection: searching a large table takes a while.
pub(crate) struct MySqlBroom {
    server: Arc<MySql>,
    statements: Arc<Statements>,
    lane: Lane<MySql>,
}

impl Broom for MySqlBroom {
    async fn begin(&self, every: Duration) -> Result<bool, StoreError> {
        let Statements { prepare_sweep, begin_sweep, .. } = &*self.statements;
        self.lane.run(prepare_sweep, arguments![], Again::Safe).await?;
        Ok(self.lane.run(begin_sweep, arguments![millis(every)], Again::No).await?.affected > 0)
    }

    async fn idle(&self, (prefix, name): (String, String)) -> Result<Vec<(String, String, i64)>, StoreError> {
        let arguments = arguments![prefix.as_str(), prefix.as_str(), name, millis(IDLE), i64::from(BATCH)];
        self.server.rows(&self.lane.run(&self.statements.find_idle, arguments, Again::Safe).await?)
    }

    async fn raise_floor(&self, token: i64) -> Result<(), StoreError> {
        self.lane.run(&self.statements.raise_floor, arguments![token], Again::Safe).await.map(drop)
    }

    async fn delete(&self, rows: Vec<(String, String)>) -> Result<u64, StoreError> {
        let arguments = arguments![batches::keys(rows), millis(IDLE)];
        Ok(self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?.affected)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
