//! Row locks and advisory locks: requests to the server.

use super::{
    errors,
    options::Own,
    row_lock_statements::{END, Kind, RowStatements, kill, mark},
    server::{Done, MySql, arguments},
};
use crate::{
    lane::{Again, Lane, Server},
    server::{Checked, in_time},
    session_locks::{
        issue::Issue,
        requests::{Found, SessionRequests},
        rows::{RowHolder, beyond_all_names, row_holder},
    },
    statement::Statement,
    strategy::Strategy,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Executor, MySqlConnection, Row,
    mysql::{MySqlArguments, MySqlConnectOptions},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tenure_core::{Claim, ClaimId, Grant, Holder, HolderInfo, Name, StoreError, Token};
use tokio::{sync::Mutex, time::timeout};

/// How long the server lets a transaction wait for a row. After that, the waiter asks again.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// Locked rows in MySQL or MariaDB; or, as advisory locks, user-level locks.
pub(crate) struct MySqlRowLocks {
    kind: Kind,
    server: Arc<MySql>,
    statements: RowStatements,
    /// Notes grants, and looks after the connections that hold and wait.
    desk: Lane<MySql>,
    /// Held while a row is made. The server's lock for that keeps sessions apart, but all keepers share one.
    making: Mutex<()>,
    is_mariadb: OnceLock<bool>,
}

impl MySqlRowLocks {
    pub(super) fn new(options: Checked<Own>, connect: MySqlConnectOptions) -> Self {
        let kind = match options.strategy {
            Strategy::Advisory if options.own.named => Kind::Named,
            Strategy::Advisory => Kind::Hashed,
            Strategy::LeaseRow | Strategy::RowLock => Kind::Row,
        };
        let statements = RowStatements::new(&options.table, kind);
        let (create, shape_check) = (statements.create.clone(), statements.note.clone());
        let server = Arc::new(MySql::new(options, connect, create, shape_check));
        Self {
            kind,
            desk: Lane::new(&server),
            server,
            statements,
            making: Mutex::new(()),
            is_mariadb: OnceLock::new(),
        }
    }

    fn prefix(&self) -> &str {
        &self.server.options.prefix
    }

    async fn ask(&self, statement: &Statement, arguments: MySqlArguments) -> Result<Done, StoreError> {
        self.desk.run(statement, arguments, Again::Safe).await
    }

    fn tell(&self, done: &Done) -> Result<Vec<Holder>, StoreError> {
        self.server.rows::<RowHolder>(done)?.into_iter().map(row_holder).collect()
    }

    /// The outcome of asking for a row's lock.
    fn found<V>(&self, asked: Result<Option<V>, sqlx::Error>, waits: bool) -> Result<Found<V>, StoreError> {
        match asked {
            Ok(Some(locked)) => Ok(Found::Locked(locked)),
            Ok(None) => Ok(Found::Nothing),
            Err(error) if errors::is_missing_table(&error) => Ok(Found::NoTable),
            Err(error) if !waits && errors::is_locked(&error) => Ok(Found::Nothing),
            Err(error) if errors::ended_the_wait(&error) => Ok(Found::Again),
            Err(error) => Err(self.server.explain(error)),
        }
    }

    /// Prepares a connection for transactions: it sees committed rows as they are, and locks no gaps between rows. None is
    /// open until `take`, even if the server's sessions begin without `autocommit`. Returns whether the table has a
    /// secret.
    async fn prepare(&self, connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let wait = LONGEST_WAIT.as_secs();
        let settings = format!(
            "SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = {wait}, {}; \
             SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; {}{}",
            self.server.table_bound(),
            self.statements.prepare,
            self.statements.secret
        );
        let told = sqlx::raw_sql(AssertSqlSafe(settings)).fetch_all(connection).await?;
        let secret = told.first().map(|row| row.try_get::<String, _>(0)).transpose()?;
        Ok(secret.is_some_and(|secret| !secret.is_empty()))
    }

    /// Gives the table a secret. If that fails, as on a read-only server, names are made without one.
    async fn make_secret(&self) -> Result<(), StoreError> {
        let secret = ClaimId::new().to_string();
        if let Err(error) = self.ask(&self.statements.make_secret, arguments![secret]).await {
            tracing::debug!(lock.store = %self.server.store, %error, "could not write the secret of the table");
        }
        Ok(())
    }

    async fn exists(&self, name: &Name) -> Result<bool, StoreError> {
        let found = self.ask(&self.statements.exists, arguments![self.prefix(), name.as_str()]).await?;
        Ok(!found.rows.is_empty())
    }
}

impl SessionRequests for MySqlRowLocks {
    type Connection = MySqlConnection;

    fn store(&self) -> &str {
        &self.server.store
    }

    /// MySQL prefers [transactions that many wait
    /// for](https://dev.mysql.com/doc/refman/8.0/en/innodb-transaction-scheduling.html). Claims leave the queue of a
    /// user-level lock from time to time.
    fn fair(&self) -> bool {
        self.kind == Kind::Row && self.is_mariadb.get().is_some_and(|mariadb| *mariadb)
    }

    fn connections(&self) -> usize {
        self.server.options.connections
    }

    fn response_timeout(&self) -> Duration {
        self.server.options.response_timeout
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn connect(&self) -> Result<MySqlConnection, StoreError> {
        let connecting = async {
            let connected = self.server.connect.connect().await;
            let mut connection = connected.map_err(|error| self.server.explain(error))?;
            // The address may lead to another server by now.
            self.server.refuse_several_writers(&mut connection).await?;
            let mut prepared = self.prepare(&mut connection).await;
            if prepared.as_ref().is_err_and(errors::is_missing_table) {
                // Creates the table.
                self.ask(&self.statements.list, arguments![self.prefix(), "", ""]).await?;
                prepared = self.prepare(&mut connection).await;
            }
            if self.kind == Kind::Row && matches!(prepared, Ok(false)) {
                self.make_secret().await?;
                prepared = self.prepare(&mut connection).await;
            }
            prepared.map_err(|error| self.server.explain(error))?;
            Ok(connection)
        };
        in_time(self.server.options.connect_timeout, connecting).await
    }

    async fn take(
        &self,
        connection: &mut MySqlConnection,
        claim: &Claim,
        waits: bool,
    ) -> Result<Found<Issue>, StoreError> {
        if self.kind == Kind::Named && claim.name.as_str().chars().count() > 64 {
            return Err(StoreError::failed(
                "GET_LOCK takes names of at most 64 characters; use a shorter name, or key=hash",
            ));
        }
        let take = self.statements.take(self.prefix(), claim, self.lease(claim), waits);
        let rows = sqlx::raw_sql(AssertSqlSafe(take)).fetch_all(connection).await;
        let told = rows.map(|rows| rows.into_iter().next());
        self.found(told, waits)?.try_map(|row| {
            let (told,): (String,) = self.server.row(&row)?;
            let issue = issue(&told).ok_or_else(|| {
                StoreError::failed(format!(
                    "the server gave an unexpected answer to a lock request: {told:?}"
                ))
            })?;
            // Only its note distinguishes such a holder from another program, so the note comes before the grant.
            Ok(Issue { writable: issue.writable && self.kind != Kind::Named, ..issue })
        })
    }

    async fn lock(
        &self,
        connection: &mut MySqlConnection,
        name: &Name,
        waits: bool,
    ) -> Result<Found<()>, StoreError> {
        if self.kind != Kind::Row {
            return Err(StoreError::failed(
                "GET_LOCK belongs to a session, and not to a transaction; use strategy=row-lock",
            ));
        }
        let RowStatements { lock, try_lock, .. } = &self.statements;
        let statement = if waits { lock } else { try_lock };
        let asked = sqlx::query_with(statement.sql(), arguments![self.prefix(), name.as_str()]);
        let asked = asked.fetch_optional(connection).await;
        self.found(asked.map(|row| row.map(drop)), waits)
    }

    async fn beat(&self, connection: &mut MySqlConnection, _: Option<&Claim>) -> Result<(), StoreError> {
        connection.execute("DO 1").await.map(drop).map_err(|error| self.server.explain(error))
    }

    /// One statement, because the next holder waits for everything that the server does around the end of the
    /// transaction.
    async fn end(&self, connection: &mut MySqlConnection) -> Result<(), StoreError> {
        connection.execute(END).await.map(drop).map_err(|error| self.server.explain(error))
    }

    /// One at a time, and only if it is missing: an insert would wait for a holder of the same row.
    async fn make(&self, name: &Name) -> Result<bool, StoreError> {
        if self.kind != Kind::Row || self.exists(name).await? {
            return Ok(false);
        }
        let RowStatements { begin_making, make, end_making, .. } = &self.statements;
        // Less than the connection's own timeout, which would otherwise come first.
        let patience = self.response_timeout().as_secs() / 2;
        // Not for ever: a runtime that is no longer polled may keep it.
        let _making = timeout(self.response_timeout() / 2, self.making.lock()).await;
        self.ask(begin_making, arguments![i64::try_from(patience).unwrap_or(1)]).await?;
        let made = async {
            let missing = !self.exists(name).await?;
            if missing {
                self.ask(make, arguments![self.prefix(), name.as_str()]).await?;
            }
            Ok(missing)
        };
        let made = made.await;
        let ended = self.ask(end_making, arguments![]).await;
        let missing = made?;
        ended.map(|_| missing)
    }

    async fn note(&self, claim: &Claim, token: Token) -> Result<bool, StoreError> {
        let Claim { id, name, holder, .. } = claim;
        let arguments = arguments![
            self.prefix(),
            name.as_str(),
            token.as_i64(),
            id.to_string(),
            holder.label.as_deref(),
            holder.host.as_str(),
            i64::from(holder.pid),
        ];
        if self.ask(&self.statements.note, arguments).await?.last_insert_id != 0 {
            return Ok(true);
        }
        let arguments = arguments![self.prefix(), name.as_str(), id.to_string()];
        Ok(!self.ask(&self.statements.noted, arguments).await?.rows.is_empty())
    }

    async fn is_unnoted(&self, from: &str, beyond: Option<&str>) -> Result<bool, StoreError> {
        if self.kind == Kind::Named {
            return Ok(false);
        }
        let beyond = beyond.map_or_else(beyond_all_names, str::to_owned);
        let done = self.ask(&self.statements.unnoted, arguments![self.prefix(), from, beyond]).await?;
        Ok(!done.rows.is_empty())
    }

    async fn lives(&self, claim: ClaimId) -> Result<bool, StoreError> {
        let done = self.ask(&self.statements.marked, arguments![mark(claim)]).await?;
        Ok(self.server.rows::<(bool,)>(&done)?.contains(&(true,)))
    }

    /// Ends the whole connection: the server may apply an interruption to the next statement.
    async fn interrupt(&self, claim: ClaimId) -> Result<(), StoreError> {
        match self.ask(&kill(claim), arguments![]).await {
            Err(error) if error.is_unavailable() => Err(error),
            // It may have ended by itself.
            Err(error) => {
                tracing::debug!(%error, "could not end a connection");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    async fn was_forced(&self, Grant { name, claim, .. }: &Grant) -> Result<bool, StoreError> {
        let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
        Ok(!self.ask(&self.statements.was_forced, arguments).await?.rows.is_empty())
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let asked = arguments![self.prefix(), name.as_str()];
        let holders = self.tell(&self.ask(&self.statements.holders, asked).await?)?;
        if self.kind != Kind::Named || !holders.is_empty() {
            return Ok(holders);
        }
        let used = self.ask(&self.statements.used, arguments![name.as_str()]).await?;
        let foreign =
            self.server.rows::<(Option<i64>,)>(&used)?.into_iter().filter_map(|(by,)| by).map(|by| {
                let label = Some(format!("another program, connection {by} of the server"));
                Holder::of(name.clone()).info(HolderInfo { label, ..HolderInfo::default() })
            });
        Ok(foreign.collect())
    }

    async fn list(&self, from: &str, beyond: Option<&str>) -> Result<Vec<Holder>, StoreError> {
        let beyond = beyond.map_or_else(beyond_all_names, str::to_owned);
        self.tell(&self.ask(&self.statements.list, arguments![self.prefix(), from, beyond]).await?)
    }

    /// Writes the note first, so that the holder finds out why.
    async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let holders = self.holders(name).await?;
        if let [Holder { claim: None, info, .. }] = &*holders {
            return Err(StoreError::failed(format!(
                "{} has this lock; KILL that connection to end its hold",
                info.label.as_deref().unwrap_or("another program")
            )));
        }
        for claim in holders.iter().filter_map(|holder| holder.claim) {
            let arguments = arguments![self.prefix(), name.as_str(), claim.to_string()];
            self.ask(&self.statements.force, arguments).await?;
            match self.ask(&kill(claim), arguments![]).await {
                // It may have ended by itself, or belong to another user.
                Err(error) if error.is_unavailable() || self.lives(claim).await? => return Err(error),
                _ => {}
            }
        }
        Ok(holders)
    }

    async fn open(&self) -> Result<(), StoreError> {
        self.desk.open().await?;
        let done = self.ask(&self.statements.version, arguments![]).await?;
        let versions = self.server.rows::<(String,)>(&done)?;
        let _ = self.is_mariadb.set(versions.iter().any(|(version,)| version.contains("MariaDB")));
        Ok(())
    }

    async fn close(&self) {
        self.desk.close().await;
    }
}

/// Reads the answer to a lock request: the time, how long the transaction has lasted, whether the server is read-only
/// (a number, or a word in later versions), and the last token.
fn issue(told: &str) -> Option<Issue> {
    let mut words = told.split(' ');
    let (now, after) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let writable = matches!(words.next()?, "0" | "OFF");
    let last = words.next().map(str::parse).transpose().ok()?;
    Some(Issue { last, now, after, writable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_is_read_from_the_servers_answer() {
        let read =
            |told: &str| issue(told).map(|Issue { last, now, after, writable }| (now, after, writable, last));
        assert_eq!(read("1795355176885080 3 0 17"), Some((1_795_355_176_885_080, 3, true, Some(17))));
        assert_eq!(read("1795355176885080 -3 OFF"), Some((1_795_355_176_885_080, -3, true, None)));
        for read_only in ["1", "ON", "READ_ONLY"] {
            let told = format!("5 3 {read_only} 4");
            assert_eq!(read(&told), Some((5, 3, false, Some(4))));
        }
        for nonsense in ["", "5", "5 3", "five 3 0 4", "5 three 0 4", "5 3 0 four"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
