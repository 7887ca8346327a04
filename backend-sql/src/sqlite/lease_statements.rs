//! The statements, each of which commits by itself.

use crate::{statement::Statement, table::TableName};
use tenure_core::Error;

/// SQLite's clock, in milliseconds since 1970, which is its precision. Cutting off the fraction would sometimes lose a
/// millisecond, because the seconds are a floating-point number.
const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// All statements for one table. Each raises the versions of the rows that it changes.
///
/// A lease is valid while `expires_at >= now`. Because `now` is cut to whole milliseconds, a strict comparison would
/// let another claim in up to a millisecond before the lease expires.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// Compiles `acquire` without running it: an error means that the table has another shape.
    pub(super) check: Statement,
    /// `?1` prefix, `?2` name, `?3` claim, `?4` lease in ms, `?5` label, `?6` host, `?7` pid, `?8` mode, unless
    /// exclusive, `?9` how many more tokens to reserve. Returns a row with the last token if granted; none if another
    /// holds the name or the columns do not say everything.
    pub(super) acquire: Statement,
    /// `?1` prefix, `?2` name, `?3` claim, `?4` mode, unless exclusive. Returns a row like that of `read` if `acquire`
    /// would return none. Only reads.
    pub(super) look: Statement,
    /// `?1` prefix, `?2` as for `acquire_all`. Returns a row if that would return none. Only reads.
    pub(super) look_at_all: Statement,
    /// `?1` prefix, `?2` a JSON array of objects with name, claim, lease and label, `?3` host, `?4` pid. Returns a row
    /// with token and name for each; none at all if `acquire` would not grant one of them.
    pub(super) acquire_all: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. Returns a row if released, which tells whether the name is awaited.
    pub(super) release: Statement,
    /// Like `release`, but if the columns do not say everything, returns a row like that of `read`.
    pub(super) release_or_read: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. Returns a row if the columns say everything.
    pub(super) withdraw: Statement,
    /// `?1` prefix, `?2` a JSON array of objects with name, claim, lease in ms and mode. Returns the renewed
    /// claims.
    pub(super) renew: Statement,
    /// `?1` prefix, `?2` name. Returns one row: the time, the floor of a new row's token, and the row, or nulls.
    pub(super) read: Statement,
    /// `?1` prefix, `?2` name, `?3` version, `?4` to `?14` the columns `token` to `record`, `?15` the latest time to
    /// change a row. Returns a row when written.
    pub(super) swap: Statement,
    /// `?1` prefix, `?2` the first name, `?3` the first name beyond the last. Returns rows like those of `read`, with
    /// their names.
    pub(super) list: Statement,
    /// Returns how long ago the idle rows were swept, in ms.
    pub(super) last_sweep: Statement,
    /// `?1` how many ms ago the last sweep must be. Returns a row if it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// `?1` and `?2` prefix and name to continue after, `?3` how many ms a row must have been idle, `?4` how many rows.
    pub(super) find_idle: Statement,
    /// `?1` a token.
    pub(super) raise_floor: Statement,
    /// `?1` a JSON array of objects with prefix and name, `?2` how many ms a row must have been idle. A row for each deleted.
    pub(super) delete_idle: Statement,
}

/// The DDL of the table `table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless `table` is 1 to 63 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::sqlite_schema("tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"tenure_locks\""));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn sqlite_schema(table: &str) -> Result<String, Error> {
    TableName::new(table).map(|table| schema(&table))
}

/// `TEXT` compares bytes by default, so `A` is not `a`, and a trailing space counts. The row with the empty name, which
/// no lock has, keeps the greatest token of all swept rows, and when they were swept.
fn schema(table: &TableName) -> String {
    let table = table.as_str();
    format!(
        r#"CREATE TABLE IF NOT EXISTS "{table}" (
  prefix        TEXT    NOT NULL, -- the namespace
  name          TEXT    NOT NULL, -- the lock's name; a latch's name begins with a control character
  version       INTEGER NOT NULL, -- rises with every change
  token         INTEGER NOT NULL, -- the fencing token of the last grant; kept after the release
  claim         TEXT,             -- the holder's claim; NULL if the lock is free, or if record lists the holders
  mode          TEXT,             -- the holder's mode; NULL if exclusive
  since         INTEGER NOT NULL, -- when it was acquired; all times are milliseconds since 1970, by SQLite's clock
  expires_at    INTEGER NOT NULL, -- when the lease ends, unless renewed; if the lock is free, its last use
  awaited_until INTEGER NOT NULL, -- until then, a client counts as waiting for the lock
  awaited_by    TEXT,             -- a claim that waits for exclusive mode; until it is granted, no claim joins the holders
  label         TEXT,             -- the holder's label, for people
  host          TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  record        TEXT,             -- JSON for what the columns from claim on cannot express: several holders, a queue, a latch
  PRIMARY KEY (prefix, name)
) STRICT, WITHOUT ROWID;
"#
    )
}

impl Statements {
    pub(super) fn new(table: &TableName) -> Self {
        let fill = |text: &str| {
            let text = text
                .replace("{take}", TAKE)
                .replace("{held}", HELD)
                .replace("{free}", FREE)
                .replace("{more}", "?9")
                .replace("{columns}", COLUMNS)
                .replace("{first}", FIRST)
                .replace("{us}", "({now} * 1000)")
                .replace("{now}", NOW)
                .replace("{t}", &format!("\"{}\"", table.as_str()));
            Statement::new(text)
        };
        Self {
            create: Statement::new(schema(table)),
            check: fill(&format!("EXPLAIN {ACQUIRE}")),
            acquire: fill(ACQUIRE),
            look: fill(LOOK),
            look_at_all: fill(HELD),
            acquire_all: fill(&ACQUIRE_ALL.replace("{take}", &TAKE.replace("{more}", "0"))),
            release: fill(RELEASE),
            release_or_read: fill(&format!("{RELEASE};{READ_RECORD}")),
            withdraw: fill(WITHDRAW),
            renew: fill(RENEW),
            read: fill(READ),
            swap: fill(SWAP),
            list: fill(LIST),
            last_sweep: fill("SELECT {now} - expires_at FROM {t} WHERE prefix = '' AND name = ''"),
            begin_sweep: fill(BEGIN_SWEEP),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = max(token, ?1) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// The token of a new row.
const FIRST: &str = "max({us}, 1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0))";

/// One upsert. In the update, a bare column is the old row's, and `excluded` is the row that would be inserted.
const ACQUIRE: &str = "
INSERT INTO {t} AS held
  (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, label, host, pid)
VALUES (?1, ?2, {us}, {first} + {more}, ?3, ?8, {now}, {now} + ?4, 0, ?5, ?6, ?7)
{take}";

/// For several names: for all of them, or for none if one is held. No other client writes in the meantime.
const ACQUIRE_ALL: &str = "
INSERT INTO {t} AS held (prefix, name, version, token, claim, since, expires_at, awaited_until, label, host, pid)
SELECT
  ?1, value ->> '$.name', {us}, {first},
  value ->> '$.claim', {now}, {now} + (value ->> '$.lease'), 0, value ->> '$.label', ?3, ?4
FROM json_each(?2)
WHERE NOT EXISTS ({held})
{take}";

/// One of several names that is held. `CROSS`, because otherwise SQLite would walk all rows of the prefix.
const HELD: &str = "
SELECT 1 FROM json_each(?2) AS asked CROSS JOIN {t} AS held ON held.prefix = ?1 AND held.name = asked.value ->> '$.name'
WHERE held.record IS NOT NULL
  OR held.claim IS NOT NULL AND held.claim <> asked.value ->> '$.claim' AND held.expires_at >= {now}";

/// Comes before the upsert, which takes the lock of the file even if it changes nothing: a claim that is refused waits
/// for no other client that writes, and keeps none waiting.
const LOOK: &str = "
SELECT {now}, 0, {columns}
FROM {t} AS held CROSS JOIN (SELECT ?3 AS claim, ?4 AS mode, {now} AS since) AS excluded
WHERE held.prefix = ?1 AND held.name = ?2 AND NOT ({free})";

/// Whether a claim may have an existing row.
const FREE: &str = "held.record IS NULL AND (
  held.claim = excluded.claim AND held.expires_at >= excluded.since
  OR (held.claim IS NULL OR held.expires_at < excluded.since) AND (
    excluded.mode IS NULL OR held.awaited_by IS NULL OR held.awaited_by = excluded.claim
    OR held.awaited_until < excluded.since
  )
)";

/// The update of an existing row. A claim that can share the name does not touch the mark of an exclusive waiter.
const TAKE: &str = "ON CONFLICT (prefix, name) DO UPDATE SET
  version = version + 1,
  token = iif(claim = excluded.claim AND expires_at >= excluded.since, token, max(token + 1 + {more}, excluded.token)),
  mode = iif(claim = excluded.claim AND expires_at >= excluded.since, mode, excluded.mode),
  since = iif(claim = excluded.claim AND expires_at >= excluded.since, since, excluded.since),
  claim = excluded.claim,
  expires_at = iif(claim = excluded.claim AND expires_at >= excluded.since, max(expires_at, excluded.expires_at),
    excluded.expires_at),
  awaited_until = iif(excluded.mode IS NULL OR awaited_by = excluded.claim, 0, awaited_until),
  awaited_by = iif(excluded.mode IS NULL OR awaited_by = excluded.claim, NULL, awaited_by),
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE {free}
RETURNING token, name";

const RELEASE: &str = "
UPDATE {t} SET version = version + 1, claim = NULL, expires_at = {now}
WHERE prefix = ?1 AND name = ?2 AND claim = ?3 AND expires_at >= {now} AND record IS NULL
RETURNING awaited_until >= {now}";

/// Whether or not the claim has expired. If it waited for exclusive mode, it no longer keeps others out. The name still
/// counts as awaited, because others may have left no mark beside its own. The version is raised in any case, so that a
/// late write of the claim changes nothing.
const WITHDRAW: &str = "
UPDATE {t} SET
  version = version + 1,
  expires_at = iif(claim = ?3, {now}, expires_at),
  claim = nullif(claim, ?3),
  awaited_by = nullif(awaited_by, ?3)
WHERE prefix = ?1 AND name = ?2 AND record IS NULL
RETURNING 1";

/// `MATERIALIZED`, and with the prefix, because otherwise SQLite would walk the whole table for the prefix alone.
const RENEW: &str = "
WITH asked AS MATERIALIZED (
  SELECT
    ?1 AS prefix, value ->> '$.name' AS name, value ->> '$.claim' AS claim, value ->> '$.lease' AS lease,
    value ->> '$.mode' AS mode
  FROM json_each(?2)
)
UPDATE {t} AS held SET version = version + 1, expires_at = {now} + asked.lease
FROM asked
WHERE held.prefix = asked.prefix AND held.name = asked.name AND held.claim = asked.claim
  AND held.expires_at >= {now} AND held.record IS NULL AND (held.mode IS NULL OR held.mode = asked.mode)
RETURNING claim";

/// The columns of a row that are read.
const COLUMNS: &str =
    "held.version, held.token, held.claim, held.mode, held.since, held.expires_at, held.awaited_until,
  held.awaited_by, held.label, held.host, held.pid, held.record";

const READ: &str = "
SELECT {now}, coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0), {columns}
FROM (SELECT 1) LEFT JOIN {t} AS held ON held.prefix = ?1 AND held.name = ?2";

/// Reads a row whose columns do not say everything; nothing for any other. Sent along with another statement, it saves
/// a round trip for shared names.
const READ_RECORD: &str = "
SELECT {now}, 0, {columns} FROM {t} AS held
WHERE held.prefix = ?1 AND held.name = ?2 AND held.record IS NOT NULL";

/// No version is null, so null means that there was no row. A row that was swept after it was read is not created
/// again: its token may now be below the floor.
const SWAP: &str = "
INSERT INTO {t} (
  prefix, name, version, token, claim, mode, since, expires_at, awaited_until, awaited_by, label, host, pid, record
)
SELECT ?1, ?2, {us}, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14
WHERE ?3 IS NULL OR EXISTS (SELECT 1 FROM {t} AS there WHERE there.prefix = ?1 AND there.name = ?2)
ON CONFLICT (prefix, name) DO UPDATE SET
  version = version + 1,
  token = excluded.token,
  claim = excluded.claim,
  mode = excluded.mode,
  since = excluded.since,
  expires_at = excluded.expires_at,
  awaited_until = excluded.awaited_until,
  awaited_by = excluded.awaited_by,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid,
  record = excluded.record
WHERE version = ?3 AND {now} <= ?15
RETURNING 1";

/// Leaves out latches and the floor: their keys sort before all names.
const LIST: &str = "
SELECT {now}, 0, {columns}, held.name FROM {t} AS held
WHERE held.prefix = ?1 AND held.name >= ?2 AND held.name < ?3
  AND (held.claim IS NOT NULL AND held.expires_at >= {now} OR held.record IS NOT NULL)
ORDER BY held.name";

const BEGIN_SWEEP: &str = "
INSERT INTO {t} (prefix, name, version, token, since, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, 0, {now}, {now}, 0, '', 0)
ON CONFLICT (prefix, name) DO UPDATE SET expires_at = excluded.expires_at
WHERE expires_at <= excluded.expires_at - ?1
RETURNING 1";

/// Only reads, so it does not block writers while it searches the table.
///
/// Leaves out rows whose tokens no clock has reached, because another program damaged them: once they were swept, all
/// new names would have to come after them.
const FIND_IDLE: &str = "
SELECT prefix, name, token FROM {t}
WHERE (prefix, name) > (?1, ?2) AND name <> '' AND expires_at < {now} - ?3
  AND token < 4611686018427387904
ORDER BY prefix, name LIMIT ?4";

const DELETE_IDLE: &str = "
DELETE FROM {t}
WHERE (prefix, name) IN (SELECT value ->> '$.prefix', value ->> '$.name' FROM json_each(?1))
  AND expires_at < {now} - ?2
  AND token <= (SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = '')
RETURNING 1";

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{AssertSqlSafe, Connection, Row, Sqlite, SqliteConnection};

    /// Such as the renewal of a lease that has expired since the row was read.
    #[tokio::test]
    async fn row_is_not_changed_after_its_latest_time() {
        let statements = Statements::new(&TableName::new("t").unwrap());
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::query(statements.create.sql()).execute(&mut connection).await.unwrap();
        let null = None::<&str>;
        // A new row has none.
        for (latest, written) in [(1, 1), (1, 0), (i64::MAX, 1)] {
            let version: Option<i64> =
                sqlx::query_scalar("SELECT max(version) FROM t").fetch_one(&mut connection).await.unwrap();
            let swap = sqlx::query::<Sqlite>(statements.swap.sql()).bind("").bind("a").bind(version);
            let swap = swap.bind(1).bind(null).bind(null).bind(1).bind(1).bind(1);
            let swap = swap.bind(null).bind(null).bind("host").bind(1).bind(null).bind(latest);
            assert_eq!(swap.fetch_all(&mut connection).await.unwrap().len(), written, "{version:?} {latest}");
        }
    }

    /// Rows are found by their key. Only the sweep, which is rare and only reads, looks at every row.
    #[tokio::test]
    async fn rows_are_found_by_key() {
        let statements = Statements::new(&TableName::new("t").unwrap());
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::query(statements.create.sql()).execute(&mut connection).await.unwrap();
        let (one, all) =
            ("USING PRIMARY KEY (prefix=? AND name=?)", "USING PRIMARY KEY (prefix=? AND name>? AND name<?)");
        for (statement, by) in [
            (&statements.acquire, one),
            (&statements.acquire_all, one),
            (&statements.look, one),
            (&statements.look_at_all, one),
            (&statements.release, one),
            (&statements.withdraw, one),
            (&statements.renew, one),
            (&statements.read, one),
            (&statements.swap, one),
            (&statements.list, all),
            (&statements.last_sweep, one),
            (&statements.raise_floor, one),
            (&statements.delete_idle, one),
        ] {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.text()));
            let plan = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
            let steps: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
            let on_table = |step: &&String| step.contains("PRIMARY KEY") || step.starts_with("SCAN t");
            let walks: Vec<_> = steps.iter().filter(on_table).collect();
            // A statement that replaces a row knows where it is.
            let replaces = statement.text().contains("ON CONFLICT") && walks.is_empty();
            assert!(
                replaces || !walks.is_empty() && walks.iter().all(|step| step.contains(by)),
                "{}: {steps:#?}",
                statement.text()
            );
        }
    }
}
