//! Row locks: requests to the server.

use super::{
    errors,
    options::Own,
    row_lock_statements::{RowStatements, application},
    server::{LONGEST_LEASE, Postgres, arguments},
    values::{Values, beside, range, written},
};
use crate::{
    lane::{Again, Lane, Server},
    patience::Patience,
    server::{Checked, in_time},
    session_locks::{
        issue::Issue,
        requests::{Found, SessionRequests, unseen},
        rows::{RowHolder, row_holder},
    },
    statement::Statement,
    values::millis,
};
use sqlx::{
    AssertSqlSafe, Executor, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Claim, ClaimId, Grant, Holder, Name, StoreError, Token};

/// Locked rows in PostgreSQL.
pub(crate) struct PostgresRowLocks {
    server: Arc<Postgres>,
    statements: RowStatements,
    /// Notes grants, and looks after the connections that hold and wait.
    desk: Lane<Postgres>,
}

impl PostgresRowLocks {
    pub(super) fn new(options: Checked<Own>, connect: PgConnectOptions) -> Self {
        // Behind a pooler, each transaction may use another connection, so none is prepared.
        let limit = options.own.pooled().then(|| Patience::of(options.response_timeout).lock);
        let statements = RowStatements::new(&options.table, limit);
        let (create, shape_check) = (statements.create.clone(), statements.note.clone());
        let server = Arc::new(Postgres::new(options, connect, create, shape_check));
        Self { desk: Lane::new(&server), server, statements }
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    /// Whether its connections are prepared.
    fn prepares(&self) -> bool {
        !self.server.options.own.pooled()
    }

    async fn ask(&self, statement: &Statement, arguments: Values) -> Result<Vec<PgRow>, StoreError> {
        self.desk.run(statement, arguments, Again::Safe).await
    }

    fn tell(&self, rows: &[PgRow]) -> Result<Vec<Holder>, StoreError> {
        self.server.rows::<RowHolder>(rows)?.into_iter().map(row_holder).collect()
    }

    /// Asks for the name's row in the application's transaction.
    async fn ask_in(
        &self,
        transaction: &mut PgConnection,
        statement: &Statement,
        name: &Name,
    ) -> Result<Option<()>, sqlx::Error> {
        let arguments = beside(arguments![self.prefix(), name.as_str()])?;
        let asked = sqlx::query_with(statement.sql(), arguments).persistent(self.prepares());
        Ok(asked.fetch_optional(transaction).await?.map(drop))
    }
}

impl SessionRequests for PostgresRowLocks {
    type Connection = PgConnection;

    fn store(&self) -> &str {
        self.server.store()
    }

    /// Waiters are [in a
    /// queue](https://github.com/postgres/postgres/blob/master/src/backend/access/heap/README.tuplock).
    fn fair(&self) -> bool {
        true
    }

    fn has_all_characters(&self) -> bool {
        self.server.has_all_characters()
    }

    fn connections(&self) -> usize {
        self.server.options.connections
    }

    fn response_timeout(&self) -> Duration {
        self.server.options.response_timeout
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease.min(LONGEST_LEASE)
    }

    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let connecting = async {
            if !self.prepares() {
                return self.server.session().await;
            }
            self.server.session_for_locks(&self.statements.prepare, self.open()).await
        };
        in_time(self.server.options.connect_timeout, connecting).await
    }

    async fn take(
        &self,
        connection: &mut PgConnection,
        claim: &Claim,
        waits: bool,
    ) -> Result<Found<Issue>, StoreError> {
        let RowStatements { wait, at_once, .. } = &self.statements;
        let take = if waits { wait } else { at_once };
        let lease = millis(self.lease(claim)).to_string();
        let arguments = arguments![self.prefix(), claim.name.as_str(), application(claim.id), lease];
        let take = written(take.text(), &arguments);
        let rows = sqlx::raw_sql(AssertSqlSafe(take)).fetch_all(connection).await;
        let told = match rows {
            // Asking again would be waiting: a migration may keep the table locked for long.
            Err(error) if !waits && errors::is_lock_timeout(&error) => {
                return Ok(Found::Blocked(self.server.explain(error)));
            }
            rows => rows.map(|rows| rows.into_iter().nth(1)),
        };
        self.server.found(told)?.try_map(|row| {
            let (last, now, after) = self.server.row(&row)?;
            // A server that accepts no notes locks no rows either.
            Ok(Issue { last, now, after, writable: true })
        })
    }

    async fn lock(
        &self,
        connection: &mut PgConnection,
        name: &Name,
        waits: bool,
    ) -> Result<Found<()>, StoreError> {
        let RowStatements { lock, try_lock, exists, .. } = &self.statements;
        let found =
            self.server.found(self.ask_in(connection, if waits { lock } else { try_lock }, name).await)?;
        if waits || !matches!(found, Found::Nothing) {
            return Ok(found);
        }
        // A row that another has locked can be read, unless the transaction's snapshot is older than the row.
        let exists =
            self.ask_in(connection, exists, name).await.map_err(|error| self.server.explain(error))?;
        exists.map(|()| found).ok_or_else(unseen)
    }

    async fn beat(&self, connection: &mut PgConnection, _: Option<&Claim>) -> Result<(), StoreError> {
        connection.execute("SELECT 1").await.map(drop).map_err(|error| self.server.explain(error))
    }

    async fn end(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        connection.execute("ROLLBACK").await.map(drop).map_err(|error| self.server.explain(error))
    }

    async fn make(&self, name: &Name) -> Result<bool, StoreError> {
        let made = self.ask(&self.statements.make, arguments![self.prefix(), name.as_str()]).await?;
        Ok(!made.is_empty())
    }

    async fn note(&self, claim: &Claim, token: Token) -> Result<bool, StoreError> {
        let Claim { id, name, holder, .. } = claim;
        let arguments = arguments![
            self.prefix(),
            name.as_str(),
            id.to_string(),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
            token.as_i64(),
        ];
        Ok(!self.ask(&self.statements.note, arguments).await?.is_empty())
    }

    async fn is_unnoted(&self, from: &str, beyond: Option<&str>) -> Result<bool, StoreError> {
        let arguments = range(self.prefix(), from, beyond);
        Ok(!self.ask(self.statements.unnoted.before(beyond), arguments).await?.is_empty())
    }

    async fn lives(&self, claim: ClaimId) -> Result<bool, StoreError> {
        let found = self.ask(&self.statements.lives, arguments![application(claim)]).await?;
        Ok(!found.is_empty())
    }

    async fn interrupt(&self, claim: ClaimId) -> Result<(), StoreError> {
        self.ask(&self.statements.interrupt, arguments![application(claim)]).await.map(drop)
    }

    async fn was_forced(&self, Grant { name, claim, .. }: &Grant) -> Result<bool, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
        Ok(!self.ask(&self.statements.was_forced, arguments).await?.is_empty())
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.tell(&self.ask(&self.statements.holders, arguments![self.prefix(), name.as_str()]).await?)
    }

    async fn list(&self, from: &str, beyond: Option<&str>) -> Result<Vec<Holder>, StoreError> {
        let arguments = range(self.prefix(), from, beyond);
        self.tell(&self.ask(self.statements.list.before(beyond), arguments).await?)
    }

    /// Writes the note first, so that the holder finds out why.
    async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let forced = arguments![self.prefix(), name.as_str()];
        let holders = self.tell(&self.ask(&self.statements.force, forced).await?)?;
        for claim in holders.iter().filter_map(|holder| holder.claim) {
            let terminate = arguments![self.prefix(), name.as_str(), application(claim)];
            self.ask(&self.statements.terminate, terminate).await?;
        }
        Ok(holders)
    }

    /// No name is in this range: this only shows that the table is readable.
    async fn open(&self) -> Result<(), StoreError> {
        self.desk.open().await?;
        SessionRequests::list(self, "", Some("")).await.map(drop)
    }

    async fn close(&self) {
        self.desk.close().await;
    }
}
