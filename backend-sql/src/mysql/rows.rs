//! The table, asked.

use super::{
    crowds::Crowds,
    seen_rows::SeenRows,
    server::{Done, MySql, arguments, with},
    statements::Statements,
};
use crate::{
    hints::{Hint, Hints},
    lane::{Again, Lane},
    lease_rows::{Broom, LeaseTable},
    queue::{LIVES, SHOW_UP, place_of},
    rows::{
        HolderRow, Standing, StandingRow, beyond_all_names, end_of_prefix, is_shared, leases, mark_lasts,
        millis, span,
    },
    server::{Checked, Lanes},
    shares::take_of,
    statement::Statement,
    sweep::{BATCH, IDLE},
};
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tenure_core::{Background, Claim, ClaimId, Grant, Mode, Name, StoreError, Wakeup};

/// Lease rows in MySQL or MariaDB.
pub(crate) struct MySqlRows {
    server: Arc<MySql>,
    statements: Arc<Statements>,
    lanes: Lanes<MySql>,
    hints: Arc<Hints>,
    crowds: Crowds,
    rows: SeenRows,
}

impl MySqlRows {
    pub(super) fn new(options: Checked<()>, connect: MySqlConnectOptions, background: Background) -> Self {
        let statements = Arc::new(Statements::new(&options.table, options.fair));
        let (create, probe) = (statements.create.clone(), statements.acquire.clone());
        let server = Arc::new(MySql::new(options, connect, create, probe));
        let lanes = Lanes::new(&server, server.options.connections, background);
        Self {
            lanes,
            hints: Arc::default(),
            crowds: Crowds::default(),
            rows: SeenRows::default(),
            server,
            statements,
        }
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// The token that a statement granted.
    async fn token(
        &self,
        statement: &Statement,
        name: &Name,
        arguments: MySqlArguments,
    ) -> Result<Option<i64>, StoreError> {
        let done = self.lanes.of(name).run(statement, arguments, Again::Safe).await?;
        let token = i64::try_from(done.last_insert_id).map_err(StoreError::failed)?;
        Ok((token != 0).then_some(token))
    }

    /// Whether or not there is a row, and whoever is there.
    async fn take(&self, claim: &Claim) -> Result<Option<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let arguments = arguments![
            self.prefix(),
            name.as_str(),
            id.to_string(),
            millis(*lease),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
        ];
        match take_of(*mode) {
            None => self.token(&self.statements.acquire, name, arguments).await,
            Some((take, of)) => self.token(&self.statements.share, name, with![arguments; take, of]).await,
        }
    }

    /// When there is a row, and nobody there.
    async fn take_free(&self, claim: &Claim) -> Result<Option<i64>, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let (id, lease, prefix) = (id.to_string(), millis(*lease), self.prefix());
        let (label, host, pid) = (holder.label.as_deref(), holder.host.as_str(), i64::from(holder.pid));
        let Some((take, of)) = take_of(*mode) else {
            let arguments = arguments![id, lease, label, host, pid, prefix, name.as_str()];
            return self.token(&self.statements.take_free, name, arguments).await;
        };
        if self.crowds.expect(name) {
            return Ok(None);
        }
        let arguments = arguments![id, take, of, lease, label, host, pid, lease, prefix, name.as_str()];
        let token = self.token(&self.statements.share_free, name, arguments).await?;
        if token.is_some() {
            self.crowds.note(name, false);
        }
        Ok(token)
    }

    /// What `look` asks with.
    fn of(&self, names: &[&Name]) -> Result<MySqlArguments, StoreError> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        Ok(arguments![serde_json::json!(names).to_string(), self.prefix()])
    }

    /// What `look` answers.
    fn standings(&self, done: &Done) -> Result<Vec<Standing>, StoreError> {
        let rows: Vec<StandingRow> = self.server.rows(done)?;
        rows.into_iter().map(Standing::try_from).collect()
    }

    /// Keeps the claim's place in the queue.
    async fn stand(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, mode, .. } = claim;
        let (id, prefix, (take, of)) = (id.to_string(), self.prefix(), place_of(*mode));
        let id = id.as_str();
        let arguments = arguments![id, take, of, id, millis(LIVES), prefix, name.as_str(), id, id];
        self.lanes.of(name).run(&self.statements.stand, arguments, Again::Safe).await.map(drop)
    }

    /// Those of the names whose rows nobody has locked.
    async fn unlocked(&self, names: Vec<&str>) -> Result<HashSet<String>, StoreError> {
        let arguments = arguments![serde_json::json!(names).to_string(), self.prefix()];
        let done = self.lanes.renewals.run(&self.statements.unlocked, arguments, Again::Safe).await?;
        let rows: Vec<(String,)> = self.server.rows(&done)?;
        Ok(rows.into_iter().map(|(name,)| name).collect())
    }

    async fn mark(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, mode, .. } = claim;
        let (id, alone) = (id.to_string(), *mode == Mode::Exclusive);
        let (prefix, name_text) = (self.prefix(), name.as_str());
        let arguments = arguments![
            millis(mark_lasts(self.poll())),
            alone,
            id.as_str(),
            prefix,
            name_text,
            id.as_str(),
            alone
        ];
        self.lanes.of(name).run(&self.statements.mark, arguments, Again::Safe).await.map(drop)
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
        let poll = self.server.options.poll;
        if self.fair() { poll.min(SHOW_UP) } else { poll }
    }

    fn fair(&self) -> bool {
        self.server.options.fair
    }

    /// The simple statement first, where it is likely to do.
    async fn ask(&self, claim: &Claim) -> Result<Option<i64>, StoreError> {
        let (name, has_row) = (&claim.name, self.rows.expect(&claim.name));
        if has_row && let Some(token) = self.take_free(claim).await? {
            return Ok(Some(token));
        }
        let token = self.take(claim).await?;
        if token.is_some() {
            self.rows.note(name);
            if has_row && claim.mode != Mode::Exclusive {
                self.crowds.note(name, true);
            }
        }
        Ok(token)
    }

    async fn stand_by(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let standing = self.look(&[&claim.name]).await?.pop();
        let Some(row) = standing else { return Ok(None) };
        let obstacle = row.obstacle(claim)?;
        if obstacle.is_none() || !claim.waits {
            return Ok(obstacle);
        }
        if self.fair() {
            if row.wants_place(claim.id) {
                self.stand(claim).await?;
            }
        } else if row.wants_mark(claim.mode, millis(mark_lasts(self.poll()) / 2)) {
            self.mark(claim).await?;
        }
        Ok(obstacle)
    }

    /// Nobody tells: it is only waited for.
    fn hint(&self, claim: &Claim) -> Hint {
        self.hints.listen(claim.name.to_string())
    }

    /// First as it is nearly always. One who holds the name alone stands among the shares if it was a reader once.
    async fn release(&self, grant: &Grant) -> Result<Option<bool>, StoreError> {
        let Grant { name, claim, mode, .. } = grant;
        let (claim, prefix, lane) = (claim.to_string(), self.prefix(), self.lanes.of(name));
        let claim = claim.as_str();
        let Statements { release, release_last, release_share, .. } = &*self.statements;
        let simple = match mode {
            Mode::Exclusive => Some(release),
            _ => Some(release_last).filter(|_| !self.crowds.were_seen(name)),
        };
        if let Some(simple) = simple {
            let done = lane.run(simple, arguments![prefix, name.as_str(), claim], Again::No).await?;
            if done.affected > 0 {
                return Ok(Some(done.last_insert_id != 0));
            }
        }
        let arguments = arguments![claim, claim, prefix, name.as_str(), claim, claim];
        let done = lane.run(release_share, arguments, Again::No).await?;
        Ok((done.affected > 0).then_some(done.last_insert_id != 0))
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<bool, StoreError> {
        let Grant { name, claim, .. } = grant;
        let (claim, prefix) = (claim.to_string(), self.prefix());
        let claim = claim.as_str();
        let (statement, arguments) = match to {
            Mode::Exclusive => {
                let arguments = arguments![claim, claim, claim, prefix, name.as_str(), claim, claim, claim];
                (&self.statements.upgrade, arguments)
            }
            _ => (&self.statements.downgrade, arguments![claim, claim, prefix, name.as_str(), claim, claim]),
        };
        Ok(self.lanes.of(name).run(statement, arguments, Again::Safe).await?.affected > 0)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { id, name, .. } = claim;
        let (id, prefix) = (id.to_string(), self.prefix());
        let id = id.as_str();
        let arguments = if self.fair() {
            arguments![id, id, id, id, id, id, prefix, name.as_str(), id, id, id, id]
        } else {
            arguments![id, id, id, id, id, prefix, name.as_str(), id, id, id]
        };
        self.lanes.of(name).run(&self.statements.withdraw, arguments, Again::Safe).await.map(drop)
    }

    /// The server tells how many rows were changed. Only when that does not say that all were renewed, it is asked which.
    async fn renew(&self, grants: &[Grant]) -> Result<HashSet<ClaimId>, StoreError> {
        let mut leases = leases(grants);
        let unlocked = self.unlocked(leases.keys().copied().collect()).await?;
        leases.retain(|name, _| unlocked.contains(*name));
        let grants: Vec<&Grant> =
            grants.iter().filter(|grant| leases.contains_key(grant.name.as_str())).collect();
        if grants.is_empty() {
            return Ok(HashSet::new());
        }
        // The leases of one name as a text, because MariaDB takes no object out of JSON as a column.
        let asked: Vec<(&str, String)> =
            leases.iter().map(|(name, leases)| (*name, serde_json::json!(leases).to_string())).collect();
        let arguments = arguments![serde_json::json!(asked).to_string(), self.prefix()];
        let done = self.lanes.renewals.run(&self.statements.renew, arguments, Again::Safe).await?;
        if done.affected == grants.len() as u64 {
            return Ok(grants.iter().map(|grant| grant.claim).collect());
        }
        let names: HashSet<&Name> = grants.iter().map(|grant| &grant.name).collect();
        let names: Vec<&Name> = names.into_iter().collect();
        let mut renewed = HashSet::new();
        for row in self.look_for_renewal(&names).await? {
            let row = Standing::try_from(row)?;
            for grant in grants.iter().filter(|grant| grant.name.as_str() == row.name) {
                if row.is_held_by(grant.claim)? {
                    renewed.insert(grant.claim);
                }
            }
        }
        Ok(renewed)
    }

    async fn look(&self, names: &[&Name]) -> Result<Vec<Standing>, StoreError> {
        match names {
            [] => Ok(Vec::new()),
            [first, ..] => {
                let lane = self.lanes.of(first);
                self.standings(&lane.run(&self.statements.look, self.of(names)?, Again::Safe).await?)
            }
        }
    }

    async fn look_for_renewal(&self, names: &[&Name]) -> Result<Vec<StandingRow>, StoreError> {
        let looked = self.lanes.renewals.run(&self.statements.look, self.of(names)?, Again::Safe).await?;
        self.server.rows(&looked)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str()];
        let done = self.lanes.of(name).run(&self.statements.holders, arguments, Again::Safe).await?;
        self.server.rows(&done)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<HolderRow>, StoreError> {
        let end = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        let arguments = arguments![self.prefix(), prefix, end];
        let done = self.lanes.first().run(&self.statements.list, arguments, Again::Safe).await?;
        self.server.rows(&done)
    }

    /// Looks first, because the server does not tell what an update changed. Shares are there afterwards, as what was put out.
    async fn force(&self, name: &Name) -> Result<Vec<HolderRow>, StoreError> {
        let Some(mut holder) = self.holders(name).await?.pop() else { return Ok(Vec::new()) };
        let (prefix, lane) = (self.prefix(), self.lanes.of(name));
        // Also where its text looks like shares: another program may have written it.
        let arguments = arguments![prefix, name.as_str(), holder.1.as_str()];
        if lane.run(&self.statements.force, arguments, Again::No).await?.affected > 0 {
            return Ok(vec![holder]);
        }
        if !is_shared(&holder) {
            return Ok(Vec::new());
        }
        let ended = lane.run(&self.statements.force_shares, arguments![prefix, name.as_str()], Again::No);
        if ended.await?.affected == 0 {
            return Ok(Vec::new());
        }
        let forced =
            lane.run(&self.statements.forced, arguments![prefix, name.as_str()], Again::Safe).await?;
        let forced: Vec<(String,)> = self.server.rows(&forced)?;
        if let Some((forced,)) = forced.into_iter().next() {
            holder.1 = forced;
        }
        Ok(vec![holder])
    }

    async fn open(&self) -> Result<Option<Duration>, StoreError> {
        self.lanes.open();
        let done = self.lanes.first().run(&self.statements.last_sweep, arguments![], Again::Safe).await?;
        let Some(row) = done.rows.first() else { return Ok(None) };
        self.server.row::<(i64,)>(row).map(|(ago,)| Some(span(ago)))
    }

    fn background(&self) -> &Background {
        &self.lanes.background
    }

    type Broom = MySqlBroom;

    fn broom(&self) -> MySqlBroom {
        let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
        MySqlBroom { lane: Lane::new(&server), server, statements }
    }

    async fn close(&self) {
        self.lanes.close().await;
    }
}

/// A connection of its own: looking through a large table takes a while.
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
        let arguments = arguments![serde_json::json!(rows).to_string(), millis(IDLE)];
        Ok(self.lane.run(&self.statements.delete_idle, arguments, Again::Safe).await?.affected)
    }

    async fn close(&self) {
        self.lane.close().await;
    }
}
