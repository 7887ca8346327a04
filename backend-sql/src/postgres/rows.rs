//! The table, asked.

use super::{
    listener::Listener,
    options::Own,
    server::{Postgres, arguments, with},
    statements::Statements,
    values::Values,
};
use crate::{
    hints::Hint,
    lane::{Again, Lane, Server},
    lease_rows::{Broom, LeaseTable},
    queue::{LIVES, SHOW_UP, place_of},
    rows::{
        HolderRow, Standing, StandingRow, beyond_all_names, end_of_prefix, leases, mark_lasts, millis,
        renewed, span,
    },
    server::{Checked, Lanes},
    shares::take_of,
    statement::Statement,
    sweep::{BATCH, IDLE},
};
use sqlx::{
    Row,
    postgres::{PgConnectOptions, PgRow},
};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tenure_core::{Background, Claim, ClaimId, Grant, Mode, Name, StoreError, Wakeup};

/// The columns of what stands in a row, behind which `stand_by` tells whether it is marked.
const STANDING_COLUMNS: usize = 9;

/// Lease rows in PostgreSQL.
pub(crate) struct PostgresRows {
    server: Arc<Postgres>,
    statements: Arc<Statements>,
    lanes: Lanes<Postgres>,
    listener: Listener,
}

impl PostgresRows {
    pub(super) fn new(options: Checked<Own>, connect: PgConnectOptions, background: Background) -> Self {
        let statements = Arc::new(Statements::new(&options.table, options.fair));
        let (create, probe) = (statements.create.clone(), statements.acquire.clone());
        let server = Arc::new(Postgres::new(options, connect, create, probe));
        let lanes = Lanes::new(&server, server.options.connections, background.clone());
        Self { lanes, listener: Listener::new(&server, background), server, statements }
    }

    /// Asks for several names at once.
    fn sets(&self) -> &Lane<Postgres> {
        self.lanes.first()
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// The channel on which releases are announced.
    fn channel(&self) -> &str {
        self.server.options.table.table.as_str()
    }

    /// What `look` asks with.
    fn of(&self, names: &[&Name]) -> Values {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        arguments![self.prefix(), names]
    }

    /// What `look` answers.
    fn standings(&self, rows: &[PgRow]) -> Result<Vec<Standing>, StoreError> {
        let rows: Vec<StandingRow> = self.server.rows(rows)?;
        rows.into_iter().map(Standing::try_from).collect()
    }

    /// Keeps the claim's place in the queue, and tells after how long it may be its turn.
    async fn stand(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let Claim { id, name, mode, .. } = claim;
        let (take, of) = place_of(*mode);
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string(), millis(LIVES), take, of];
        let rows = self.lanes.of(name).run(&self.statements.stand, arguments, Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Standing::try_from(self.server.row::<StandingRow>(row)?)?.obstacle(claim)
    }

    async fn holder_rows(
        &self,
        lane: &Lane<Postgres>,
        statement: &Statement,
        arguments: Values,
    ) -> Result<Vec<HolderRow>, StoreError> {
        self.server.rows(&lane.run(statement, arguments, Again::Safe).await?)
    }
}

impl LeaseTable for PostgresRows {
    fn store(&self) -> &str {
        &self.server.store
    }

    fn wakeup(&self) -> Wakeup {
        if self.server.options.own.pooler { Wakeup::Poll } else { Wakeup::Push }
    }

    fn poll(&self) -> Duration {
        let poll = self.server.options.poll;
        if self.fair() { poll.min(SHOW_UP) } else { poll }
    }

    fn fair(&self) -> bool {
        self.server.options.fair
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let mut arguments = arguments![
            self.prefix(),
            name.as_str(),
            id.to_string(),
            millis(*lease),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
        ];
        let statement = match take_of(*mode) {
            None => &self.statements.acquire,
            Some((take, of)) => {
                arguments = with![arguments; take, of];
                if self.fair() {
                    arguments = with![arguments; self.channel()];
                }
                &self.statements.share
            }
        };
        let rows = self.lanes.of(name).run(statement, arguments, Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        row.try_get(0).map(Some).map_err(|error| self.server.explain(error))
    }

    /// Not past a queue.
    fn together(&self) -> bool {
        !self.server.options.fair
    }

    async fn ask_all(&self, claims: &[Claim]) -> Result<Vec<(i64, String)>, StoreError> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let ids: Vec<String> = claims.iter().map(|claim| claim.id.to_string()).collect();
        let leases: Vec<i64> = claims.iter().map(|claim| millis(claim.lease)).collect();
        let labels: Vec<Option<&str>> = claims.iter().map(|claim| claim.holder.label.as_deref()).collect();
        let (host, pid) = (first.holder.host.as_str(), i64::from(first.holder.pid));
        let arguments = arguments![self.prefix(), names, ids, leases, labels, host, pid];
        self.server.rows(&self.sets().run(&self.statements.acquire_all, arguments, Again::Safe).await?)
    }

    async fn stand_by(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let Claim { id, name, mode, waits, .. } = claim;
        if !waits {
            let standing = self.look(&[name]).await?.pop();
            return standing.map_or(Ok(None), |row| row.obstacle(claim));
        }
        if self.fair() {
            // Where nobody tells them, waiters look often, and write only as often as they must.
            if self.wakeup() == Wakeup::Poll {
                let Some(row) = self.look(&[name]).await?.pop() else { return Ok(None) };
                let obstacle = row.obstacle(claim)?;
                if obstacle.is_none() || !row.wants_place(*id) {
                    return Ok(obstacle);
                }
            }
            return self.stand(claim).await;
        }
        let alone = *mode == Mode::Exclusive;
        let arguments =
            arguments![self.prefix(), name.as_str(), id.to_string(), millis(mark_lasts(self.poll())), alone];
        let rows = self.lanes.of(name).run(&self.statements.stand_by, arguments, Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let marked = row.try_get(STANDING_COLUMNS).map_err(|error| self.server.explain(error))?;
        let standing = Standing::try_from(self.server.row::<StandingRow>(row)?)?;
        let obstacle = standing.obstacle(claim)?;
        Ok(if marked { obstacle } else { None })
    }

    fn hint(&self, claim: &Claim) -> Hint {
        let Claim { id, name, .. } = claim;
        let everybody = format!("{}\n{name}", self.prefix());
        self.listener.hint(if self.fair() { format!("{everybody}\n{id}") } else { everybody })
    }

    async fn release(&self, grant: &Grant) -> Result<Option<bool>, StoreError> {
        let Grant { name, claim, .. } = grant;
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string(), self.channel()];
        let rows = self.lanes.of(name).run(&self.statements.release, arguments, Again::No).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(bool,)>(row).map(|(awaited,)| Some(awaited))
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<bool, StoreError> {
        let Grant { name, claim, .. } = grant;
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
        let (statement, arguments) = match to {
            Mode::Exclusive => (&self.statements.upgrade, arguments),
            _ => (&self.statements.downgrade, with![arguments; self.channel()]),
        };
        Ok(!self.lanes.of(name).run(statement, arguments, Again::Safe).await?.is_empty())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, waits, .. } = claim;
        let withdraw = &self.statements.withdraw;
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string(), self.channel()];
        // It may be one of several that were asked for together, which only those that do not wait are.
        if !waits {
            self.sets().run(withdraw, arguments.clone(), Again::Safe).await?;
        }
        self.lanes.of(name).run(withdraw, arguments, Again::Safe).await.map(drop)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<HashSet<ClaimId>, StoreError> {
        let leases =
            leases(grants).into_iter().map(|(name, leases)| (name, serde_json::json!(leases).to_string()));
        let (names, leases): (Vec<&str>, Vec<String>) = leases.unzip();
        let arguments = arguments![self.prefix(), names, leases];
        let rows = self.lanes.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        let held: Vec<(String,)> = self.server.rows(&rows)?;
        renewed(grants, held.into_iter().map(|(held,)| held).collect())
    }

    async fn look(&self, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        match names {
            [] => Ok(Vec::new()),
            [first, ..] => {
                let lane = self.lanes.of(first);
                self.standings(&lane.run(&self.statements.look, self.of(names), Again::Safe).await?)
            }
        }
    }

    async fn look_for_renewal(&self, names: &[&Name]) -> Result<Vec<StandingRow>, StoreError> {
        let looked = self.lanes.renewals.run(&self.statements.look, self.of(names), Again::Safe).await?;
        self.server.rows(&looked)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str()];
        self.holder_rows(self.lanes.of(name), &self.statements.holders, arguments).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<HolderRow>, StoreError> {
        let end = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        let arguments = arguments![self.prefix(), prefix, end];
        self.holder_rows(self.lanes.first(), &self.statements.list, arguments).await
    }

    async fn force(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str(), self.channel()];
        let force = &self.statements.force;
        self.server.rows(&self.lanes.of(name).run(force, arguments, Again::No).await?)
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        self.lanes.open();
        let rows = self.lanes.first().run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    fn background(&self) -> &Background {
        &self.lanes.background
    }

    type Broom = PostgresBroom;

    fn broom(&self) -> PostgresBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        PostgresBroom { lane: Lane::new(&server), server, statements }
    }

    async fn close(&self) {
        self.listener.close();
        self.lanes.close().await;
    }
}

/// A connection of its own: looking through a large table takes a while.
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
        let (prefixes, names): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let arguments = arguments![prefixes, names, millis(IDLE)];
        let deleted = self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?;
        Ok(deleted.len() as u64)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
