//! Lease rows: requests to the file.

use super::{file::File, lease_statements::Statements, options::Values};
use crate::{
    lane::{Again, Lane, Server as _},
    lease_rows::{
        batches,
        lease_table::{Answer, LeaseTable, Listed, Renewed, Swap},
        record_rows::{Change, Row, Seen, mode_column},
        sweep::{BATCH, Broom, IDLE},
    },
    statement::{Statement, arguments},
    values::{end_of_prefix, millis, span},
};
use sqlx::{
    Row as _,
    sqlite::{Sqlite, SqliteArguments, SqliteRow},
};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tenure_core::{Background, Claim, Grant, Mode, Moment, Name, StoreError, Wakeup, record::Record};

/// How many columns are read; the list returns one more after them.
const READ: usize = 14;

/// Lease rows in a SQLite file.
pub(crate) struct SqliteRows {
    file: Arc<File>,
    /// Acquires, releases and withdraws, in order: see [`Lane`].
    writer: Lane<File>,
    renewals: Lane<File>,
    /// In write-ahead mode, it never waits.
    reader: Lane<File>,
    background: Background,
}

impl SqliteRows {
    pub(super) fn new(file: File, background: Background) -> Self {
        let file = Arc::new(file);
        let lane = || Lane::new(&file);
        Self { writer: lane(), renewals: lane(), reader: lane(), background, file }
    }

    fn prefix(&self) -> &str {
        &self.file.options.values.prefix
    }

    /// Reads the answer of a statement that may also return the row if it cannot decide.
    fn answer<'r, T>(&self, sent: Moment, rows: &'r [SqliteRow]) -> Result<Answer<T>, StoreError>
    where
        T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        match rows.first() {
            None => Ok(Answer::No),
            Some(row) if row.len() < READ => {
                row.try_get(0).map(Answer::Done).map_err(|error| self.file.explain(error))
            }
            seen => Ok(Answer::Seen(Box::new(self.file.seen(sent, seen)?))),
        }
    }

    async fn read_on(&self, lane: &Lane<File>, key: &str) -> Result<Seen, StoreError> {
        let (sent, arguments) = (Moment::now(), arguments![SqliteArguments; self.prefix(), key]);
        let rows = lane.run(&self.file.statements.read, arguments, Again::Safe).await?;
        self.file.seen(sent, rows.first())
    }

    async fn swap_on(
        &self,
        lane: &Lane<File>,
        key: &str,
        (from, to): (&Seen, &Row),
        again: Again,
    ) -> Result<bool, StoreError> {
        let Row { token, claim, mode, since, expires_at, .. } = to;
        let Row { awaited_until, awaited_by, label, host, pid, record, .. } = to;
        let arguments = arguments![
            SqliteArguments;
            self.prefix(),
            key,
            from.row.as_ref().map(|row| row.version),
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
            from.until,
        ];
        Ok(!lane.run(&self.file.statements.swap, arguments, again).await?.is_empty())
    }
}

impl LeaseTable for SqliteRows {
    fn store(&self) -> &str {
        &self.file.store
    }

    fn background(&self) -> &Background {
        &self.background
    }

    fn wakeup(&self) -> Wakeup {
        Wakeup::Poll
    }

    fn poll(&self) -> Duration {
        let Values { poll, fair, .. } = self.file.options.values;
        if fair { poll.min(Record::PLACE / 6) } else { poll }
    }

    fn fair(&self) -> bool {
        self.file.options.values.fair
    }

    /// A file is nearer than a server.
    fn reserves(&self) -> u32 {
        32
    }

    /// SQLite itself waits while another client writes.
    fn patience(&self) -> Duration {
        self.file.options.values.busy_timeout
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let (sent, mode) = (Moment::now(), mode_column(*mode)?);
        let (id, Statements { acquire, look, .. }) = (id.to_string(), &self.file.statements);
        let arguments =
            arguments![SqliteArguments; self.prefix(), name.as_str(), id.as_str(), mode.as_deref()];
        // On the connection that writes, so that it comes after this client's own requests.
        let held = self.writer.run(look, arguments, Again::Safe).await?;
        if !held.is_empty() {
            return self.answer(sent, &held);
        }
        let arguments = arguments![
            SqliteArguments;
            self.prefix(),
            name.as_str(),
            id,
            millis(*lease),
            holder.label.as_deref(),
            holder.host.as_str(),
            holder.pid,
            mode,
            claim.reserve,
        ];
        self.answer(sent, &self.writer.run(acquire, arguments, Again::Safe).await?)
    }

    /// Not if there is a queue, which it would bypass.
    fn together(&self) -> bool {
        !self.file.options.values.fair
    }

    async fn ask_all(&self, claims: &[Claim]) -> Result<Vec<(i64, String)>, StoreError> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        let (host, pid, asked) = (first.holder.host.as_str(), first.holder.pid, batches::claims(claims));
        let Statements { acquire_all, look_at_all, .. } = &self.file.statements;
        let arguments = arguments![SqliteArguments; self.prefix(), asked.as_str()];
        if !self.writer.run(look_at_all, arguments, Again::Safe).await?.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = arguments![SqliteArguments; self.prefix(), asked, host, pid];
        let rows = self.writer.run(acquire_all, arguments, Again::Safe).await?;
        rows.iter().map(|row| self.file.row(row)).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<Answer<bool>, StoreError> {
        let Grant { name, claim, mode, .. } = grant;
        let Statements { release, release_or_read, .. } = &self.file.statements;
        let statement = if *mode == Mode::Exclusive { release } else { release_or_read };
        let (sent, claim) = (Moment::now(), claim.to_string());
        let arguments = arguments![SqliteArguments; self.prefix(), name.as_str(), claim];
        self.answer(sent, &self.writer.run(statement, arguments, Again::No).await?)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<bool, StoreError> {
        let Claim { id, name, .. } = claim;
        let arguments = arguments![SqliteArguments; self.prefix(), name.as_str(), id.to_string()];
        Ok(!self.writer.run(&self.file.statements.withdraw, arguments, Again::Safe).await?.is_empty())
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Renewed, StoreError> {
        let arguments = arguments![SqliteArguments; self.prefix(), batches::leases(grants)?];
        let rows = self.renewals.run(&self.file.statements.renew, arguments, Again::Safe).await?;
        let renewed = rows.iter().map(|row| self.file.row(row).map(|(claim,)| claim));
        let renewed = renewed.collect::<Result<HashSet<String>, _>>()?;
        let claims = grants.iter().map(|grant| grant.claim);
        let claims = claims.filter(|claim| renewed.contains(&claim.to_string())).collect();
        // A file has no connection that breaks.
        Ok(Renewed { claims, resent: false, seen: None })
    }

    async fn read(&self, key: &str) -> Result<Seen, StoreError> {
        self.read_on(&self.reader, key).await
    }

    async fn swap(&self, key: &str, from: &Seen, to: &Change, again: Again) -> Result<bool, StoreError> {
        self.swap_on(&self.writer, key, (from, &to.row), again).await
    }

    async fn read_for_renewal(&self, names: &[&Name]) -> Result<Vec<(String, Seen)>, StoreError> {
        let mut seen = Vec::with_capacity(names.len());
        for name in names {
            seen.push((name.to_string(), self.read_on(&self.renewals, name.as_str()).await?));
        }
        Ok(seen)
    }

    const SWAPS_AT_ONCE: usize = 1;

    async fn swap_for_renewal(&self, swaps: &[Swap<'_>]) -> Result<HashSet<String>, StoreError> {
        let mut written = HashSet::new();
        for Swap { name, from, to } in swaps {
            if self.swap_on(&self.renewals, name.as_str(), (from, &to.row), Again::Safe).await? {
                written.insert(name.to_string());
            }
        }
        Ok(written)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        // SQLite sorts every blob after every text.
        let arguments = if let Some(end) = end_of_prefix(prefix) {
            arguments![SqliteArguments; self.prefix(), prefix, end]
        } else {
            arguments![SqliteArguments; self.prefix(), prefix, Vec::<u8>::new()]
        };
        let sent = Moment::now();
        let rows = self.reader.run(&self.file.statements.list, arguments, Again::Safe).await?;
        let listed = |row: &SqliteRow| {
            Some(Listed { name: row.try_get(READ).ok()?, seen: self.file.seen(sent, Some(row)) })
        };
        Ok(rows.iter().filter_map(listed).collect())
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        let last_sweep = &self.file.statements.last_sweep;
        let rows = self.writer.run(last_sweep, SqliteArguments::default(), Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.file.row(row).map(|(ago,)| Some(span(ago)))
    }

    type Broom = SqliteBroom;

    fn broom(&self) -> SqliteBroom {
        SqliteBroom { lane: Lane::new(&self.file), file: Arc::clone(&self.file) }
    }

    async fn close(&self) {
        self.reader.close().await;
        self.renewals.close().await;
        self.writer.close().await;
    }
}

/// A separate connection: searching a large table takes a while.
pub(crate) struct SqliteBroom {
    file: Arc<File>,
    lane: Lane<File>,
}

impl SqliteBroom {
    async fn run(
        &self,
        statement: &Statement,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        self.lane.run(statement, arguments, Again::No).await
    }
}

impl Broom for SqliteBroom {
    /// No statement is under way while another writes. This leaves the file to others for a moment.
    const SETTLE: Duration = Duration::from_millis(10);
    const BATCHES: usize = 1;

    async fn begin(&self, every: Duration) -> Result<bool, StoreError> {
        let arguments = arguments![SqliteArguments; millis(every)];
        Ok(!self.run(&self.file.statements.begin_sweep, arguments).await?.is_empty())
    }

    async fn idle(&self, (prefix, name): (String, String)) -> Result<Vec<(String, String, i64)>, StoreError> {
        let arguments = arguments![SqliteArguments; prefix, name, millis(IDLE), i64::from(BATCH)];
        let rows = self.run(&self.file.statements.find_idle, arguments).await?;
        rows.iter().map(|row| self.file.row(row)).collect()
    }

    async fn raise_floor(&self, token: i64) -> Result<(), StoreError> {
        self.run(&self.file.statements.raise_floor, arguments![SqliteArguments; token]).await.map(drop)
    }

    async fn delete(&self, rows: Vec<(String, String)>) -> Result<u64, StoreError> {
        let arguments = arguments![SqliteArguments; batches::keys(rows), millis(IDLE)];
        Ok(self.run(&self.file.statements.delete_idle, arguments).await?.len() as u64)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
