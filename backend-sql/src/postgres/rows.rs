//! The table, asked.

use super::{
    listener::Listener,
    options::Checked,
    server::{Postgres, arguments},
    statements::Statements,
};
use crate::{
    hints::Hint,
    lane::{Again, Lane, Manner},
    lease_rows::{Broom, LeaseTable},
    rows::{HolderRow, Standing, StandingRow, beyond_all_names, end_of_prefix, millis, span},
    statement::Statement,
    sweep::{BATCH, IDLE},
};
use sqlx::postgres::{PgArguments, PgConnectOptions};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tenure_core::{Claim, Grant, Name, StoreError, Wakeup};

/// For how long a waiter's mark tells the holder that it is awaited. Renewed at half of it, by one of all waiters.
const AWAITED: Duration = Duration::from_secs(10);

/// Lease rows in PostgreSQL.
pub(super) struct PostgresRows {
    server: Arc<Postgres>,
    statements: Arc<Statements>,
    /// Acquires, releases and withdraws. What concerns one name goes over one of them, in order: see [`Lane`].
    lanes: Vec<Lane<Postgres>>,
    renewals: Lane<Postgres>,
    listener: Listener,
}

impl PostgresRows {
    pub(super) fn new(options: Checked, connect: PgConnectOptions) -> Self {
        let statements = Arc::new(Statements::new(&options.table));
        let (create, probe) = (statements.create.clone(), statements.acquire.clone());
        let server = Arc::new(Postgres::new(options, connect, create, probe));
        let lane = |manner| Lane::new(&server, manner);
        let lanes = (0..server.options.connections).map(|_| lane(Manner::Ordered)).collect();
        Self {
            lanes,
            renewals: lane(Manner::Impatient),
            listener: Listener::new(&server),
            server,
            statements,
        }
    }

    fn lane(&self, name: &Name) -> &Lane<Postgres> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let lanes = self.lanes.len() as u64;
        &self.lanes[usize::try_from(hasher.finish() % lanes).unwrap_or(0)]
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// The channel on which releases are announced.
    fn channel(&self) -> &str {
        self.server.options.table.table.as_str()
    }

    async fn look_on(&self, lane: &Lane<Postgres>, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let arguments = arguments![self.prefix(), names];
        let rows = lane.run(&self.statements.look, arguments, Again::Safe).await?;
        let rows: Vec<StandingRow> = self.server.rows(&rows)?;
        Ok(rows.into_iter().map(Standing::from).collect())
    }

    async fn holder_rows(
        &self,
        lane: &Lane<Postgres>,
        statement: &Statement,
        arguments: PgArguments,
    ) -> Result<Vec<HolderRow>, StoreError> {
        self.server.rows(&lane.run(statement, arguments, Again::Safe).await?)
    }
}

impl LeaseTable for PostgresRows {
    fn store(&self) -> &str {
        &self.server.store
    }

    fn wakeup(&self) -> Wakeup {
        if self.server.options.pooler { Wakeup::Poll } else { Wakeup::Push }
    }

    fn poll(&self) -> Duration {
        self.server.options.poll
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<i64>, StoreError> {
        let Claim { id, name, lease, holder, .. } = claim;
        let arguments = arguments![
            self.prefix(),
            name.as_str(),
            id.to_string(),
            millis(*lease),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
        ];
        let rows = self.lane(name).run(&self.statements.acquire, arguments, Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(token,)| Some(token))
    }

    async fn stand_by(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let Claim { id, name, waits, .. } = claim;
        if !waits {
            let standing = self.look(&[name]).await?.pop();
            return Ok(standing.and_then(|row| row.held_by_another(*id)));
        }
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string(), millis(AWAITED)];
        let rows = self.lane(name).run(&self.statements.stand_by, arguments, Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(left,)| Some(span(left)))
    }

    fn hint(&self, name: &Name) -> Hint {
        self.listener.hint(format!("{}\n{name}", self.prefix()))
    }

    async fn release(&self, grant: &Grant) -> Result<Option<bool>, StoreError> {
        let Grant { name, claim, .. } = grant;
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string(), self.channel()];
        let rows = self.lane(name).run(&self.statements.release, arguments, Again::No).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(bool,)>(row).map(|(awaited,)| Some(awaited))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, .. } = claim;
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string(), self.channel()];
        self.lane(name).run(&self.statements.withdraw, arguments, Again::Safe).await.map(drop)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<HashSet<String>, StoreError> {
        let names: Vec<&str> = grants.iter().map(|grant| grant.name.as_str()).collect();
        let claims: Vec<String> = grants.iter().map(|grant| grant.claim.to_string()).collect();
        let leases: Vec<i64> = grants.iter().map(|grant| millis(grant.lease)).collect();
        let arguments = arguments![self.prefix(), names, claims, leases];
        let rows = self.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        rows.iter().map(|row| self.server.row::<(String,)>(row).map(|(claim,)| claim)).collect()
    }

    async fn look(&self, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        match names {
            [] => Ok(Vec::new()),
            [first, ..] => self.look_on(self.lane(first), names).await,
        }
    }

    async fn look_for_renewal(&self, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        self.look_on(&self.renewals, names).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str()];
        self.holder_rows(self.lane(name), &self.statements.holders, arguments).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<HolderRow>, StoreError> {
        let end = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        let arguments = arguments![self.prefix(), prefix, end];
        self.holder_rows(&self.lanes[0], &self.statements.list, arguments).await
    }

    async fn force(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str(), self.channel()];
        let force = &self.statements.force;
        self.server.rows(&self.lane(name).run(force, arguments, Again::No).await?)
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        // What is first asked on each, with a short lease or a short wait, could not wait for its connection too.
        self.lanes.iter().chain([&self.renewals]).for_each(Lane::open);
        let rows = self.lanes[0].run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    type Broom = PostgresBroom;

    fn broom(&self) -> PostgresBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        PostgresBroom { lane: Lane::new(&server, Manner::Ordered), server, statements }
    }

    async fn close(&self) {
        self.listener.close();
        for lane in self.lanes.iter().chain([&self.renewals]) {
            lane.close().await;
        }
    }
}

/// A connection of its own: looking through a large table takes a while.
pub(super) struct PostgresBroom {
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
        let (prefixes, names): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let arguments = arguments![prefixes, names, millis(IDLE)];
        let deleted = self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?;
        Ok(deleted.len() as u64)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
