//! The table, asked.

use super::{
    options::Checked,
    server::{MySql, arguments},
    statements::Statements,
};
use crate::{
    hints::{Hint, Hints},
    lane::{Again, Lane, Manner},
    lease_rows::{Broom, LeaseTable},
    rows::{HolderRow, Standing, StandingRow, beyond_all_names, end_of_prefix, millis, span},
    sweep::{BATCH, IDLE},
};
use sqlx::mysql::MySqlConnectOptions;
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tenure_core::{Claim, Grant, Name, StoreError, Wakeup};

/// For how long a waiter's mark tells the holder that it is awaited. Renewed at half of it, by one of all waiters.
const AWAITED: Duration = Duration::from_secs(2);

/// Lease rows in MySQL or MariaDB.
pub(super) struct MySqlRows {
    server: Arc<MySql>,
    statements: Arc<Statements>,
    /// Acquires, releases and withdraws. What concerns one name goes over one of them, in order: see [`Lane`].
    lanes: Vec<Lane<MySql>>,
    renewals: Lane<MySql>,
    hints: Arc<Hints>,
}

impl MySqlRows {
    pub(super) fn new(options: Checked, connect: MySqlConnectOptions) -> Self {
        let statements = Arc::new(Statements::new(&options.table));
        let (create, probe) = (statements.create.clone(), statements.acquire.clone());
        let server = Arc::new(MySql::new(options, connect, create, probe));
        let lane = |manner| Lane::new(&server, manner);
        let lanes = (0..server.options.connections).map(|_| lane(Manner::Ordered)).collect();
        Self { lanes, renewals: lane(Manner::Impatient), hints: Arc::default(), server, statements }
    }

    fn lane(&self, name: &Name) -> &Lane<MySql> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let lanes = self.lanes.len() as u64;
        &self.lanes[usize::try_from(hasher.finish() % lanes).unwrap_or(0)]
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    async fn look_on(&self, lane: &Lane<MySql>, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let arguments = arguments![serde_json::json!(names).to_string(), self.prefix()];
        let done = lane.run(&self.statements.look, arguments, Again::Safe).await?;
        let rows: Vec<StandingRow> = self.server.rows(&done)?;
        Ok(rows.into_iter().map(Standing::from).collect())
    }

    async fn mark(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, .. } = claim;
        let (awaited, prefix, name_text) = (millis(AWAITED), self.prefix(), name.as_str());
        let arguments = arguments![awaited, prefix, name_text, id.to_string(), awaited];
        self.lane(name).run(&self.statements.mark, arguments, Again::Safe).await.map(drop)
    }
}

impl LeaseTable for MySqlRows {
    fn store(&self) -> &str {
        &self.server.store
    }

    fn wakeup(&self) -> Wakeup {
        Wakeup::Poll
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
        let done = self.lane(name).run(&self.statements.acquire, arguments, Again::Safe).await?;
        let token = i64::try_from(done.last_insert_id).map_err(StoreError::failed)?;
        Ok((token != 0).then_some(token))
    }

    async fn stand_by(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let standing = self.look(&[&claim.name]).await?.pop();
        let Some(row) = standing else { return Ok(None) };
        let left = row.held_by_another(claim.id);
        if left.is_some() && claim.waits && row.awaited <= millis(AWAITED / 2) {
            self.mark(claim).await?;
        }
        Ok(left)
    }

    /// Nobody tells: it is only waited for.
    fn hint(&self, name: &Name) -> Hint {
        self.hints.listen(name.to_string())
    }

    async fn release(&self, grant: &Grant) -> Result<Option<bool>, StoreError> {
        let Grant { name, claim, .. } = grant;
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
        let done = self.lane(name).run(&self.statements.release, arguments, Again::No).await?;
        Ok((done.affected > 0).then_some(done.last_insert_id != 0))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, .. } = claim;
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string()];
        self.lane(name).run(&self.statements.withdraw, arguments, Again::Safe).await.map(drop)
    }

    /// The server tells how many were renewed. Only when it was not all of them, which ones is asked for.
    async fn renew(&self, grants: &[Grant]) -> Result<HashSet<String>, StoreError> {
        let asked: Vec<(&str, String, i64)> = grants
            .iter()
            .map(|Grant { name, claim, lease, .. }| (name.as_str(), claim.to_string(), millis(*lease)))
            .collect();
        let arguments = arguments![serde_json::json!(asked).to_string(), self.prefix()];
        let done = self.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        if done.affected == grants.len() as u64 {
            return Ok(asked.into_iter().map(|(_, claim, _)| claim).collect());
        }
        let names: Vec<&Name> = grants.iter().map(|grant| &grant.name).collect();
        let found = self.look_for_renewal(&names).await?;
        let stands = |grant: &&Grant| {
            found.iter().any(|row| row.name == grant.name.as_str() && row.is_held_by(grant.claim))
        };
        Ok(grants.iter().filter(stands).map(|grant| grant.claim.to_string()).collect())
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
        let done = self.lane(name).run(&self.statements.holders, arguments, Again::Safe).await?;
        self.server.rows(&done)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<HolderRow>, StoreError> {
        let end = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        let arguments = arguments![self.prefix(), prefix, end];
        let done = self.lanes[0].run(&self.statements.list, arguments, Again::Safe).await?;
        self.server.rows(&done)
    }

    /// Looks first, because the server does not tell what an update changed.
    async fn force(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let Some(holder) = self.holders(name).await?.pop() else { return Ok(Vec::new()) };
        let arguments = arguments![self.prefix(), name.as_str(), holder.1.as_str()];
        let done = self.lane(name).run(&self.statements.force, arguments, Again::No).await?;
        Ok(if done.affected > 0 { vec![holder] } else { Vec::new() })
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        // What is first asked on each, with a short lease or a short wait, could not wait for its connection too.
        self.lanes.iter().chain([&self.renewals]).for_each(Lane::open);
        let done = self.lanes[0].run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = done.rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    type Broom = MySqlBroom;

    fn broom(&self) -> MySqlBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        MySqlBroom { lane: Lane::new(&server, Manner::Ordered), server, statements }
    }

    async fn close(&self) {
        for lane in self.lanes.iter().chain([&self.renewals]) {
            lane.close().await;
        }
    }
}

/// A connection of its own: looking through a large table takes a while.
pub(super) struct MySqlBroom {
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
        let arguments = arguments![serde_json::json!(rows).to_string(), millis(IDLE)];
        Ok(self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?.affected)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
