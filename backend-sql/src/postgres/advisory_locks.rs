//! Advisory locks: requests to the server.

use super::{
    advisory_statements::AdvisoryStatements,
    errors,
    options::{AdvisoryKey, Own},
    server::{LONGEST_LEASE, Postgres, arguments},
    values::{Values, beside, written},
};
use crate::{
    lane::{Again, Lane, Server},
    server::{Checked, in_time},
    session_locks::{
        issue::Issue,
        requests::{Found, SessionRequests},
        rows::date,
    },
    statement::Statement,
    values::millis,
};
use sqlx::{
    AssertSqlSafe, FromRow, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Claim, ClaimId, Error, Grant, Holder, HolderInfo, Mode, Name, StoreError, Token,
    url::{decode, encode},
};
use tokio::time::{sleep, timeout};

/// The server's own named locks.
///
/// A lock has no row. Its holder is a session that has an advisory lock. The session shows its claim and its token in its
/// `application_name`, which every user sees, and the rest in a comment of its last statement. The server's views list all
/// of that.
pub(crate) struct PostgresAdvisoryLocks {
    server: Arc<Postgres>,
    statements: AdvisoryStatements,
    /// Looks after the sessions that hold and wait.
    desk: Lane<Postgres>,
    /// The beginning of the comments of this store's locks.
    comment: String,
}

impl PostgresAdvisoryLocks {
    pub(super) fn new(options: Checked<Own>, connect: PgConnectOptions) -> Result<Self, Error> {
        if options.own.pooled() {
            let allowed = "false for advisory locks, which are kept by sessions";
            return Err(Error::invalid_option("pooler", "true", allowed));
        }
        let (key, prefix) = (options.own.key, options.prefix.clone());
        if key != AdvisoryKey::Own {
            options.refuse_prefix(key)?;
        }
        let tokens = options.table.of_tokens()?;
        let statements = AdvisoryStatements::new(&options.table, &tokens, (key, &prefix));
        let table = options.table.to_string();
        let comment = format!("/*tenure {key} {table} {} ", escaped(&prefix, false));
        let (create, shape_check) = (statements.create.clone(), statements.was_forced.clone());
        let server = Arc::new(Postgres::new(options, connect, create, shape_check));
        Ok(Self { desk: Lane::new(&server), server, statements, comment })
    }

    /// The claim for people, before each statement of its session.
    fn comment(&self, Claim { name, holder, .. }: &Claim) -> String {
        let HolderInfo { label, host, pid } = &**holder;
        let escaped = |text| escaped(text, self.server.has_all_characters());
        let label = label.as_deref().map_or_else(String::new, |label| format!("={}", escaped(label)));
        format!("{}{} {pid} {} {label} */", self.comment, escaped(name.as_str()), escaped(host))
    }

    async fn ask(&self, statement: &Statement, arguments: Values) -> Result<Vec<PgRow>, StoreError> {
        self.desk.run(statement, arguments, Again::Safe).await
    }

    async fn say(&self, connection: &mut PgConnection, text: String) -> Result<(), StoreError> {
        sqlx::raw_sql(AssertSqlSafe(text))
            .execute(connection)
            .await
            .map(drop)
            .map_err(|error| self.server.explain(error))
    }

    /// Ends the session of such a grant, and notes that first.
    async fn end_session(
        &self,
        name: &Name,
        claim: ClaimId,
        token: Token,
        pid: i32,
    ) -> Result<(), StoreError> {
        let forced = arguments![claim.to_string(), token.as_i64()];
        self.ask(&self.statements.force, forced).await?;
        let session = format!("{} {token}", application(claim));
        let terminate = arguments![name.as_str(), session, i64::from(pid)];
        self.ask(&self.statements.terminate, terminate).await.map(drop)
    }

    /// The sessions that hold the name's key, each with its process in the server; and whether another is about to hold it,
    /// or to end.
    async fn sessions(&self, name: &Name) -> Result<(Vec<(Holder, i32)>, bool), StoreError> {
        let rows = self.ask(&self.statements.holders, arguments![name.as_str()]).await?;
        let sessions = self.server.rows::<Session>(&rows)?.into_iter();
        let known: Vec<_> =
            sessions.map(|session| self.holder(name, session)).collect::<Result<_, StoreError>>()?;
        let is_pending = known.iter().any(Option::is_none);
        Ok((known.into_iter().flatten().collect(), is_pending))
    }

    /// These sessions, once none is about to hold the key: others are refused already. That takes a moment, unless the disk
    /// or the sequence is busy.
    async fn settled_sessions(&self, name: &Name) -> Result<Vec<(Holder, i32)>, StoreError> {
        let patience = self.response_timeout();
        let settled = async {
            loop {
                match self.sessions(name).await? {
                    (sessions, false) => return Ok(sessions),
                    (_, true) => sleep(LOOK_AGAIN).await,
                }
            }
        };
        let late = |_| {
            StoreError::unavailable("a session has the lock, but no fencing token yet, or it does not end")
        };
        timeout(patience, settled).await.map_err(late)?
    }

    /// Describes the holder; `None` while the session has no token yet, or is ending. If its comment can be read, the holder
    /// has the name that stands there: several names may have this key.
    fn holder(&self, name: &Name, session: Session) -> Result<Option<(Holder, i32)>, StoreError> {
        let (application, query, pid, shared, now, client, is_ending) = session;
        if is_ending {
            return Ok(None);
        }
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let mut words = application.strip_prefix("tenure ").unwrap_or_default().split(' ');
        let claim = words.next().and_then(|claim| claim.parse::<ClaimId>().ok());
        let token =
            words.next().map(|token| token.parse::<i64>().ok().and_then(|token| Token::try_from(token).ok()));
        let (claim, token) = match (claim, token) {
            (Some(_), None) => return Ok(None),
            (Some(claim), Some(Some(token))) => (claim, token),
            _ => {
                let label = format!("{application:?}, process {pid} of the server");
                let info = HolderInfo { label: Some(label), host: client, pid: 0 };
                return Ok(Some((Holder::of(name.clone()).mode(mode).info(info), pid)));
            }
        };
        let (name, info) = self.read_comment(&query).unwrap_or_else(|| (name.clone(), HolderInfo::default()));
        // A token is the time at which it was given, or up to 10 ms earlier, unless the clock was set back.
        let since = Duration::from_micros(token.get());
        let age = Duration::from_micros(u64::try_from(now.saturating_sub(token.as_i64())).unwrap_or(0));
        Ok(Some((Holder::of(name).mode(mode).claim(claim, token).info(info).since(date(since)?, age), pid)))
    }

    /// Reads the comment of a query. The server may have cut the query's end, so a word is whole only if a space follows it.
    fn read_comment(&self, query: &str) -> Option<(Name, HolderInfo)> {
        let (name, mut rest) = query.strip_prefix(&*self.comment)?.split_once(' ')?;
        let mut word = || {
            let (word, after) = rest.split_once(' ')?;
            rest = after;
            decode(word).ok()
        };
        let pid = word().and_then(|pid| pid.parse().ok()).unwrap_or_default();
        let host = word().unwrap_or_default();
        let label = word().and_then(|label| label.strip_prefix('=').map(str::to_owned));
        Some((Name::new(decode(name).ok()?).ok()?, HolderInfo { label, host, pid }))
    }
}

/// The application's name of a session that waits for a claim's lock. A holder's goes on with its token and a tag.
fn application(claim: ClaimId) -> String {
    format!("tenure {}", claim.as_uuid().simple())
}

/// Escapes the characters that would end a word or the comment, and in a database that lacks characters all but ASCII.
fn escaped(text: &str, has_all_characters: bool) -> String {
    let is_plain = |c: char| match c {
        '%' | '*' | '/' | ' ' => false,
        c => !c.is_control() && (c.is_ascii() || has_all_characters),
    };
    text.chars().map(|c| if is_plain(c) { c.to_string() } else { encode(&c.to_string()) }).collect()
}

/// A session that has an advisory lock: its application's name, its last statement, its process, whether it is a reader,
/// the server's time in microseconds of 1970, its client's address, and whether it is ending.
type Session = (String, String, i32, bool, i64, String, bool);

impl SessionRequests for PostgresAdvisoryLocks {
    type Connection = PgConnection;

    fn store(&self) -> &str {
        self.server.store()
    }

    /// The server's queue is fair, but a waiter leaves it every [`QUEUES_FOR`](crate::session_locks::requests::QUEUES_FOR).
    fn fair(&self) -> bool {
        false
    }

    fn shared(&self) -> bool {
        true
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
        let connecting = self.server.session_for_locks(&self.statements.prepare, self.open());
        in_time(self.server.options.connect_timeout, connecting).await
    }

    async fn take(
        &self,
        connection: &mut PgConnection,
        claim: &Claim,
        waits: bool,
    ) -> Result<Found<Issue>, StoreError> {
        let take = self.statements.take(claim.mode, waits);
        let lease = millis(self.lease(claim)).to_string();
        let arguments = arguments![claim.name.as_str(), application(claim.id), lease];
        let take = format!("{}{}", self.comment(claim), written(take.text(), &arguments));
        let row = sqlx::raw_sql(AssertSqlSafe(take)).fetch_one(connection).await;
        match row.and_then(|row| <(Option<i64>, i64)>::from_row(&row)) {
            Err(error) if !waits && errors::is_lock_timeout(&error) => {
                Ok(Found::Blocked(self.server.explain(error)))
            }
            drawn => {
                let issue = drawn.map(|(token, after)| token.map(|token| Issue::drawn(token, after)));
                self.server.found(issue)
            }
        }
    }

    async fn lock(
        &self,
        connection: &mut PgConnection,
        name: &Name,
        waits: bool,
    ) -> Result<Found<()>, StoreError> {
        let AdvisoryStatements { lock, try_lock, .. } = &self.statements;
        let arguments = beside(arguments![name.as_str()]).map_err(|error| self.server.explain(error))?;
        let asked = sqlx::query_with(if waits { lock } else { try_lock }.sql(), arguments);
        self.server.found(asked.fetch_optional(connection).await.map(|row| row.map(drop)))
    }

    async fn beat(&self, connection: &mut PgConnection, claim: Option<&Claim>) -> Result<(), StoreError> {
        let comment = claim.map(|claim| self.comment(claim)).unwrap_or_default();
        self.say(connection, format!("{comment}SELECT 1")).await
    }

    async fn convert(
        &self,
        connection: &mut PgConnection,
        claim: &Claim,
        to: Mode,
    ) -> Result<bool, StoreError> {
        let statement = match (claim.mode, to) {
            (Mode::Exclusive, Mode::Shared) => &self.statements.downgrade,
            (Mode::Shared, Mode::Exclusive) => &self.statements.upgrade,
            _ => return Ok(true),
        };
        let convert = written(statement.text(), &arguments![claim.name.as_str()]);
        let convert = format!("{}{convert}", self.comment(claim));
        match sqlx::raw_sql(AssertSqlSafe(convert)).fetch_one(&mut *connection).await {
            // The lock may have come just as the server gave up.
            Err(error) if errors::is_lock_timeout(&error) => {
                let unlock = written(self.statements.unlock.text(), &arguments![claim.name.as_str()]);
                self.say(connection, unlock).await.map(|()| false)
            }
            Err(error) => Err(self.server.explain(error)),
            Ok(row) => self.server.row::<(bool,)>(&row).map(|(converted,)| converted),
        }
    }

    async fn end(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        self.say(connection, self.statements.end.to_owned()).await
    }

    /// A lock has no row.
    async fn make(&self, _: &Name) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The token was noted when it was given.
    async fn note(&self, _: &Claim, _: Token) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn is_unnoted(&self, _: &str, _: Option<&str>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn lives(&self, claim: ClaimId) -> Result<bool, StoreError> {
        let found = self.ask(&self.statements.lives, arguments![application(claim)]).await?;
        Ok(!found.is_empty())
    }

    async fn interrupt(&self, claim: ClaimId) -> Result<(), StoreError> {
        self.ask(&self.statements.interrupt, arguments![application(claim)]).await.map(drop)
    }

    async fn was_forced(&self, Grant { claim, token, .. }: &Grant) -> Result<bool, StoreError> {
        let forced = arguments![claim.to_string(), token.as_i64()];
        Ok(!self.ask(&self.statements.was_forced, forced).await?.is_empty())
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        Ok(self.sessions(name).await?.0.into_iter().map(|(holder, _)| holder).collect())
    }

    async fn list(&self, from: &str, beyond: Option<&str>) -> Result<Vec<Holder>, StoreError> {
        let rows = self.ask(&self.statements.list, Values::new()).await?;
        let mut holders = Vec::new();
        for session in self.server.rows::<Session>(&rows)? {
            let query = &*session.1;
            let name = match self.read_comment(query) {
                Some((name, _)) => name,
                None if query == HIDDEN => {
                    let user = self.server.connect.get_username();
                    return Err(StoreError::failed(format!(
                        "user {user} may not see what other users of the server hold; GRANT pg_read_all_stats TO {user}"
                    )));
                }
                // The server has cut it too early, or shows none.
                None if self.comment.starts_with(query) || query.starts_with(&*self.comment) => {
                    return Err(StoreError::failed(
                        "the server does not show whole statements in pg_stat_activity; set track_activities = on, and \
                         track_activity_query_size to 4096",
                    ));
                }
                None => continue,
            };
            if name.as_str() >= from && beyond.is_none_or(|beyond| name.as_str() < beyond) {
                holders.extend(self.holder(&name, session)?.map(|(holder, _)| holder));
            }
        }
        Ok(holders)
    }

    /// Writes first that it was forced, so that the holder finds out why. Sessions of other programs stay, and those of
    /// another name with this key. What fails for one reader is reported once the others are ended.
    async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (mut ended, mut failed) = (Vec::new(), None);
        for (holder, pid) in self.settled_sessions(name).await? {
            // Where several names have one key, only the comment tells which of them a session holds, and a user may lack
            // the right to see it.
            let sees_name = self.server.options.own.key == AdvisoryKey::Own || !holder.info.host.is_empty();
            let is_known = holder.name == *name && sees_name;
            let (true, Some(claim), Some(token)) = (is_known, holder.claim, holder.token) else {
                let other = format!(
                    "{holder} has this advisory lock; to end its session, SELECT pg_terminate_backend({pid})"
                );
                failed = failed.or(Some(StoreError::failed(other)));
                continue;
            };
            match self.end_session(name, claim, token, pid).await {
                Ok(()) => ended.push(holder),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(ended), Err)
    }

    /// The check makes the table, should it be gone.
    async fn open(&self) -> Result<(), StoreError> {
        self.desk.open().await?;
        let may = self.ask(&self.statements.check, Values::new()).await?;
        if self.server.rows::<(bool,)>(&may)?.contains(&(true,)) {
            return Ok(());
        }
        let (user, table) = (self.server.connect.get_username(), self.server.options.table.to_string());
        Err(StoreError::failed(errors::no_tokens(user, &table, "it lacks USAGE or UPDATE of their sequence")))
    }

    async fn close(&self) {
        self.desk.close().await;
    }
}

/// How soon to look again at a session that waits for its token.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The query that the server shows for another user's session.
const HIDDEN: &str = "<insufficient privilege>";
