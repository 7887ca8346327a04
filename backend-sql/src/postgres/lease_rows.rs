//! Lease rows: requests to the server.

use super::{
    lease_statements::Statements,
    listener::Listener,
    options::{Durability, Own},
    server::{Postgres, arguments, with},
    values::range,
};
use crate::{
    hints::Hint,
    lane::{Again, Answered, Lane, Member, Server},
    lease_rows::{
        batches,
        known_rows::KnownRows,
        lease_table::{Answer, LeaseTable, Listed, Renewed, Swap},
        record_rows::{Change, Row, Seen, is_latch, mode_column},
        sweep::{BATCH, Broom, IDLE},
    },
    server::{Checked, Lanes},
    values::{end_of_prefix, millis, span},
};
use sqlx::{
    Row as _,
    postgres::{PgConnectOptions, PgRow},
};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tenure_core::{Background, Claim, Grant, Mode, Moment, Name, StoreError, Wakeup, record::Wake};

/// How many columns are read; some statements return one more after them.
const READ: usize = 14;

/// Lease rows in PostgreSQL.
pub(crate) struct PostgresRows {
    server: Arc<Postgres>,
    statements: Arc<Statements>,
    lanes: Lanes<Postgres>,
    /// A crash must not undo the count of a latch, even if it may undo locks.
    latches: Lane<Postgres>,
    listener: Listener,
}

impl PostgresRows {
    pub(super) fn new(options: Checked<Own>, connect: PgConnectOptions, background: Background) -> Self {
        let statements = Arc::new(Statements::new(&options.table));
        let server = |options, connect| {
            let (create, shape_check) = (statements.create.clone(), statements.acquire.clone());
            Arc::new(Postgres::new(options, connect, create, shape_check))
        };
        let durable = Own { durability: Durability::Full, ..options.own };
        let latches = Lane::new(&server(Checked { own: durable, ..options.clone() }, connect.clone()));
        let server = server(options, connect);
        let lanes = Lanes::new(&server, server.options.connections, background.clone());
        let listener = Listener::new(&server, background);
        Self { server, statements, lanes, latches, listener }
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// The channel on which releases are announced.
    fn channel(&self) -> &str {
        self.server.options.table.table.as_str()
    }

    /// The announcement that the name may be free: to all waiters, or to the first in the queue.
    fn announced(&self, name: &str, wake: Wake) -> Option<String> {
        let to_all = format!("{}\n{name}", self.prefix());
        match wake {
            Wake::First { claim, .. } => Some(format!("{to_all}\n{claim}")),
            Wake::All { .. } => Some(to_all),
            _ => None,
        }
    }

    fn lane(&self, key: &str) -> &Lane<Postgres> {
        if is_latch(key) { &self.latches } else { self.lanes.of(key) }
    }

    /// The extra column after those that are read.
    fn behind<'r, T>(&self, row: &'r PgRow) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        row.try_get(READ).map_err(|error| self.server.explain(error))
    }

    fn seen(&self, sent: Moment, row: &PgRow) -> Result<Seen, StoreError> {
        seen(sent, row).map_err(|error| self.server.explain(error))
    }

    /// All rows that were read, each with its name.
    fn all_seen(&self, sent: Moment, rows: &[PgRow]) -> Result<Vec<(String, Seen)>, StoreError> {
        rows.iter().map(|row| Ok((self.behind(row)?, self.seen(sent, row)?))).collect()
    }

    /// Reads the answer of a statement that also returns the row if it cannot decide.
    fn answer<'r, T>(&self, sent: Moment, rows: &'r [PgRow]) -> Result<Answer<T>, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let Some(row) = rows.first() else { return Ok(Answer::No) };
        if let Some(done) = self.behind(row)? {
            return Ok(Answer::Done(done));
        }
        let seen = self.seen(sent, row)?;
        Ok(if seen.row.is_some() { Answer::Seen(Box::new(seen)) } else { Answer::No })
    }

    /// The first column, if there is a row.
    fn first<'r, T>(&self, rows: &'r [PgRow]) -> Result<Answer<T>, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let Some(row) = rows.first() else { return Ok(Answer::No) };
        row.try_get(0).map(Answer::Done).map_err(|error| self.server.explain(error))
    }
}

fn seen(sent: Moment, row: &PgRow) -> Result<Seen, sqlx::Error> {
    let (now, floor) = (row.try_get(0)?, row.try_get(1)?);
    let Some(version) = row.try_get(2)? else { return Ok(Seen::new(sent, now, floor, None)) };
    let row = Row {
        version,
        token: row.try_get(3)?,
        claim: row.try_get(4)?,
        mode: row.try_get(5)?,
        since: row.try_get(6)?,
        expires_at: row.try_get(7)?,
        awaited_until: row.try_get(8)?,
        awaited_by: row.try_get(9)?,
        awaited_bell: None,
        label: row.try_get(10)?,
        host: row.try_get(11)?,
        pid: row.try_get(12)?,
        record: row.try_get(13)?,
    };
    Ok(Seen::new(sent, now, floor, Some(row)))
}

impl LeaseTable for PostgresRows {
    fn store(&self) -> &str {
        self.server.store()
    }

    fn background(&self) -> &Background {
        &self.lanes.background
    }

    fn wakeup(&self) -> Wakeup {
        if self.server.options.own.pooled() { Wakeup::Poll } else { Wakeup::Push }
    }

    fn poll(&self) -> Duration {
        self.server.options.longest_poll()
    }

    fn fair(&self) -> bool {
        self.server.options.fair
    }

    fn has_all_characters(&self) -> bool {
        self.server.has_all_characters()
    }

    fn patience(&self) -> Duration {
        self.server.options.response_timeout
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let (sent, mode) = (Moment::now(), mode_column(*mode)?);
        let alone = mode.is_none() && !self.fair();
        let arguments = arguments![
            self.prefix(),
            name.as_str(),
            id.to_string(),
            millis(*lease),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
            mode,
            i64::from(claim.reserve),
        ];
        let Statements { acquire, acquire_many, acquire_or_read, .. } = &*self.statements;
        let lane = self.lanes.of(name);
        if alone {
            let member = Member::new(acquire_many, name, batches::acquisition(claim));
            return self.first(&lane.run_as(member, acquire, arguments, Again::Safe).await?);
        }
        self.answer(sent, &lane.run(acquire_or_read, arguments, Again::Safe).await?)
    }

    /// Not if there is a queue, which it would bypass.
    fn together(&self) -> bool {
        !self.server.options.fair
    }

    async fn ask_all(&self, claims: &[Claim]) -> Result<Vec<(i64, String)>, StoreError> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        let (host, pid) = (first.holder.host.as_str(), i64::from(first.holder.pid));
        let arguments = arguments![self.prefix(), batches::claims(claims), host, pid];
        let asked = self.lanes.first().run(&self.statements.acquire_all, arguments, Again::Safe);
        self.server.rows(&asked.await?)
    }

    fn hint(&self, claim: &Claim) -> Option<Hint> {
        let Claim { id, name, .. } = claim;
        let to_all = format!("{}\n{name}", self.prefix());
        Some(self.listener.hint(if self.fair() { format!("{to_all}\n{id}") } else { to_all }))
    }

    fn known(&self) -> Option<&KnownRows> {
        Some(&self.server.known)
    }

    async fn release(&self, grant: &Grant) -> Result<Answer<bool>, StoreError> {
        let Grant { name, claim, mode, .. } = grant;
        let sent = Moment::now();
        let alone = *mode == Mode::Exclusive && !self.fair();
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string(), self.channel()];
        let Statements { release, release_many, release_or_read, .. } = &*self.statements;
        let lane = self.lanes.of(name);
        if alone {
            let member = Member::new(release_many, name, batches::release(grant));
            return self.first(&lane.run_as(member, release, arguments, Again::No).await?);
        }
        self.answer(sent, &lane.run(release_or_read, arguments, Again::No).await?)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<bool, StoreError> {
        let Claim { id, name, waits, .. } = claim;
        let withdraw = &self.statements.withdraw;
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string(), self.channel()];
        // A claim that does not wait may be one of several that were requested together.
        if !waits {
            self.lanes.first().run(withdraw, arguments.clone(), Again::Safe).await?;
        }
        Ok(!self.lanes.of(name).run(withdraw, arguments, Again::Safe).await?.is_empty())
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Renewed, StoreError> {
        let arguments = arguments![self.prefix(), batches::leases(grants)?];
        let Answered { answer: rows, resent } =
            self.lanes.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        let renewed: Vec<(String,)> = self.server.rows(&rows)?;
        let renewed: HashSet<String> = renewed.into_iter().map(|(claim,)| claim).collect();
        let claims = grants.iter().map(|grant| grant.claim);
        let claims = claims.filter(|claim| renewed.contains(&claim.to_string())).collect();
        Ok(Renewed { claims, resent, seen: None })
    }

    async fn read(&self, key: &str) -> Result<Seen, StoreError> {
        let (sent, arguments) = (Moment::now(), arguments![self.prefix(), key]);
        let rows = self.lane(key).run(&self.statements.read, arguments, Again::Safe).await?;
        let row = rows.first().ok_or_else(|| self.server.explain(sqlx::Error::RowNotFound))?;
        self.seen(sent, row)
    }

    async fn swap(&self, key: &str, from: &Seen, to: &Change, again: Again) -> Result<bool, StoreError> {
        let Row { token, claim, mode, since, expires_at, .. } = &to.row;
        let Row { awaited_until, awaited_by, label, host, pid, record, .. } = &to.row;
        let mut arguments = arguments![
            self.prefix(),
            key,
            *token,
            claim.as_deref(),
            mode.as_deref(),
            *since,
            *expires_at,
            *awaited_until,
            awaited_by.as_deref(),
            label.as_deref(),
            host.as_str(),
            *pid,
            record.as_deref(),
            self.announced(key, to.wake),
            self.channel(),
        ];
        let statement = match &from.row {
            None => &self.statements.insert,
            Some(row) => {
                arguments = with![arguments; row.version, from.now, from.until, i64::from(to.lasting)];
                &self.statements.swap
            }
        };
        Ok(!self.lane(key).run(statement, arguments, again).await?.is_empty())
    }

    async fn read_for_renewal(&self, names: &[&Name]) -> Result<Vec<(String, Seen)>, StoreError> {
        let (sent, arguments) = (Moment::now(), arguments![self.prefix(), batches::names(names)]);
        let told = self.lanes.renewals.run(&self.statements.read_all, arguments, Again::Safe).await?;
        self.all_seen(sent, &told.answer)
    }

    async fn swap_for_renewal(&self, swaps: &[Swap<'_>]) -> Result<HashSet<String>, StoreError> {
        let arguments = arguments![self.prefix(), batches::swaps(swaps)?];
        let told = self.lanes.renewals.run(&self.statements.swap_all, arguments, Again::Safe).await?;
        let written: Vec<(String,)> = self.server.rows(&told.answer)?;
        Ok(written.into_iter().map(|(name,)| name).collect())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        // No name has control characters, so none comes before a space.
        let from = if prefix.is_empty() { " " } else { prefix };
        let end = end_of_prefix(prefix);
        let (sent, arguments) = (Moment::now(), range(self.prefix(), from, end.as_deref()));
        let list = self.statements.list.before(end.as_deref());
        let rows = self.lanes.first().run(list, arguments, Again::Safe).await?;
        let listed = |row: &PgRow| Some(Listed { name: row.try_get(READ).ok()?, seen: self.seen(sent, row) });
        Ok(rows.iter().filter_map(listed).collect())
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        self.lanes.open().await?;
        let rows = self.lanes.first().run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    type Broom = PostgresBroom;

    fn broom(&self) -> PostgresBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        PostgresBroom { lane: Lane::new(&server), server, statements }
    }

    async fn close(&self) {
        self.listener.close();
        self.latches.close().await;
        self.lanes.close().await;
    }
}

/// A separate connection: searching a large table takes a while.
pub(crate) struct PostgresBroom {
    server: Arc<Postgres>,
    statements: Arc<Statements>,
    lane: Lane<Postgres>,
}

impl Broom for PostgresBroom {
    async fn begin(&self, every: Duration) -> Result<bool, StoreError> {
        let begin = &self.statements.begin_sweep;
        Ok(!self.lane.run(begin, arguments![millis(every)], Again::No).await?.is_empty())
    }

    async fn idle(&self, (prefix, name): (String, String)) -> Result<Vec<(String, String, i64)>, StoreError> {
        let arguments = arguments![prefix, name, millis(IDLE), i64::from(BATCH)];
        self.server.rows(&self.lane.run(&self.statements.find_idle, arguments, Again::Safe).await?)
    }

    async fn raise_floor(&self, token: i64) -> Result<(), StoreError> {
        self.lane.run(&self.statements.raise_floor, arguments![token], Again::Safe).await.map(drop)
    }

    async fn delete(&self, rows: Vec<(String, String)>) -> Result<u64, StoreError> {
        let arguments = arguments![batches::keys(rows), millis(IDLE)];
        let deleted = self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?;
        Ok(deleted.len() as u64)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
