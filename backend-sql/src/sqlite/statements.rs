//! The statements, each of which commits by itself.

use crate::{statement::Statement, table::TableName};
use tenure_core::Error;

/// SQLite's clock, in milliseconds since 1970: that is as far as it tells. Cutting the fraction off would lose a
/// millisecond now and then, because the seconds come as a floating-point number.
const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// All of them, for one table.
///
/// A lease stands while `expires_at >= now`: `now` is cut to whole milliseconds, so a strict comparison would let
/// another in up to a millisecond before the lease is over.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// Compiles `acquire` without running it: an error tells that the table has another shape.
    pub(super) check: Statement,
    /// `?1` prefix, `?2` name, `?3` claim, `?4` lease in ms, `?5` label, `?6` host, `?7` pid. A row with the token
    /// when granted, none when another holds the name.
    pub(super) acquire: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. A row when released; it tells whether the name is awaited.
    pub(super) release: Statement,
    /// `?1` prefix, `?2` name, `?3` claim.
    pub(super) withdraw: Statement,
    /// `?1` prefix, `?2` a JSON array of `[name, claim, lease in ms]`. The claims that were renewed.
    pub(super) renew: Statement,
    /// `?1` prefix, `?2` a JSON array of names. What stands in their rows.
    pub(super) look: Statement,
    /// `?1` prefix, `?2` name, `?3` claim, `?4` for how many ms the mark stands.
    pub(super) await_release: Statement,
    /// `?1` prefix, `?2` name.
    pub(super) holders: Statement,
    /// `?1` prefix, `?2` the first name, `?3` the first name beyond the last.
    pub(super) list: Statement,
    /// `?1` prefix, `?2` name.
    pub(super) force: Statement,
    /// How long ago the idle rows were swept, in ms.
    pub(super) last_sweep: Statement,
    /// `?1` how many ms ago the last sweep must be. A row when it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// `?1` and `?2` prefix and name to go on after, `?3` for how many ms a row must have been idle, `?4` how many.
    pub(super) find_idle: Statement,
    /// `?1` a token.
    pub(super) raise_floor: Statement,
    /// `?1` a JSON array of `[prefix, name]`, `?2` for how many ms a row must have been idle. A row for each deleted.
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

/// `TEXT` compares bytes unless it is told otherwise, so `A` is not `a` and a trailing space counts. The row whose name
/// is empty, which no lock has, keeps the greatest token of all rows that were swept, and when.
fn schema(table: &TableName) -> String {
    let table = table.as_str();
    format!(
        r#"CREATE TABLE IF NOT EXISTS "{table}" (
  prefix        TEXT    NOT NULL, -- the namespace
  name          TEXT    NOT NULL, -- what is locked
  token         INTEGER NOT NULL, -- the fencing token of the last grant; stays when the lock is released
  claim         TEXT,             -- who holds it; NULL when it is free
  acquired_at   INTEGER NOT NULL, -- since when; all times are milliseconds since 1970, by SQLite's clock
  expires_at    INTEGER NOT NULL, -- until when, unless renewed
  awaited_until INTEGER NOT NULL, -- until then somebody is known to wait for it
  forced        TEXT,             -- the claim that was last put out by force
  label         TEXT,             -- what people are told about the holder
  host          TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  PRIMARY KEY (prefix, name)
) STRICT, WITHOUT ROWID;
"#
    )
}

impl Statements {
    pub(super) fn new(table: &TableName) -> Self {
        let fill = |text: &str| {
            Statement::new(text.replace("{t}", &format!("\"{}\"", table.as_str())).replace("{now}", NOW))
        };
        Self {
            create: Statement::new(schema(table)),
            check: fill(&format!("EXPLAIN {ACQUIRE}")),
            acquire: fill(ACQUIRE),
            release: fill(RELEASE),
            withdraw: fill(WITHDRAW),
            renew: fill(RENEW),
            look: fill(LOOK),
            await_release: fill(AWAIT_RELEASE),
            holders: fill(&format!("{TELL} WHERE prefix = ?1 AND name = ?2 AND {HELD}")),
            list: fill(&format!(
                "{TELL} WHERE prefix = ?1 AND name >= ?2 AND name < ?3 AND {HELD} ORDER BY name"
            )),
            force: fill(FORCE),
            last_sweep: fill("SELECT {now} - expires_at FROM {t} WHERE prefix = '' AND name = ''"),
            begin_sweep: fill(BEGIN_SWEEP),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = max(token, ?1) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// One upsert. In the update, a bare column is the row as it was, and `excluded` is the row as it would be new.
const ACQUIRE: &str = "
INSERT INTO {t} (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
VALUES (
  ?1, ?2,
  max({now} * 1000, 1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)),
  ?3, {now}, {now} + ?4, 0, ?5, ?6, ?7
)
ON CONFLICT (prefix, name) DO UPDATE SET
  token = iif(claim = excluded.claim AND expires_at >= excluded.acquired_at, token, max(token + 1, excluded.token)),
  acquired_at =
    iif(claim = excluded.claim AND expires_at >= excluded.acquired_at, acquired_at, excluded.acquired_at),
  claim = excluded.claim,
  expires_at = excluded.expires_at,
  awaited_until = 0,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE claim IS NULL OR claim = excluded.claim OR expires_at < excluded.acquired_at
RETURNING token";

const RELEASE: &str = "
UPDATE {t} SET claim = NULL, expires_at = {now}
WHERE prefix = ?1 AND name = ?2 AND claim = ?3 AND expires_at >= {now}
RETURNING awaited_until >= expires_at";

const WITHDRAW: &str = "
UPDATE {t} SET claim = NULL, expires_at = {now} WHERE prefix = ?1 AND name = ?2 AND claim = ?3";

/// `MATERIALIZED`, and with the prefix, because SQLite would otherwise walk the whole table for the prefix alone.
const RENEW: &str = "
WITH asked AS MATERIALIZED (
  SELECT ?1 AS prefix, value ->> 0 AS name, value ->> 1 AS claim, value ->> 2 AS lease FROM json_each(?2)
)
UPDATE {t} AS held SET expires_at = {now} + asked.lease
FROM asked
WHERE held.prefix = asked.prefix AND held.name = asked.name AND held.claim = asked.claim
  AND held.expires_at >= {now}
RETURNING claim";

const LOOK: &str = "
SELECT name, claim, token, expires_at - {now}, awaited_until - {now}, forced FROM {t}
WHERE prefix = ?1 AND name IN (SELECT value FROM json_each(?2))";

const AWAIT_RELEASE: &str = "
UPDATE {t} SET awaited_until = {now} + ?4
WHERE prefix = ?1 AND name = ?2 AND claim IS NOT NULL AND claim <> ?3";

const TELL: &str = "
SELECT name, claim, token, acquired_at, {now} - acquired_at, expires_at - {now}, label, host, pid FROM {t}";

const HELD: &str = "claim IS NOT NULL AND expires_at >= {now}";

/// Leaves the rest of the row as it was, so that it can be told whom this put out.
const FORCE: &str = "
UPDATE {t} SET forced = claim, claim = NULL
WHERE prefix = ?1 AND name = ?2 AND claim IS NOT NULL AND expires_at >= {now}
RETURNING name, forced, token, acquired_at, {now} - acquired_at, expires_at - {now}, label, host, pid";

const BEGIN_SWEEP: &str = "
INSERT INTO {t} (prefix, name, token, acquired_at, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, {now}, {now}, 0, '', 0)
ON CONFLICT (prefix, name) DO UPDATE SET expires_at = excluded.expires_at
WHERE expires_at <= excluded.expires_at - ?1
RETURNING 1";

/// Reads only, so nobody is kept from writing while the table is looked through.
const FIND_IDLE: &str = "
SELECT prefix, name, token FROM {t}
WHERE (prefix, name) > (?1, ?2) AND name <> '' AND expires_at < {now} - ?3
ORDER BY prefix, name LIMIT ?4";

const DELETE_IDLE: &str = "
DELETE FROM {t}
WHERE (prefix, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
  AND expires_at < {now} - ?2
  AND token <= (SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = '')
RETURNING 1";

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

    /// A table is walked by its key, or not at all: only the sweep, which is rare and only reads, looks at every row.
    #[tokio::test]
    async fn rows_are_found_by_key() {
        let statements = Statements::new(&TableName::new("t").unwrap());
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::query(statements.create.sql()).execute(&mut connection).await.unwrap();
        let (one, all) =
            ("USING PRIMARY KEY (prefix=? AND name=?)", "USING PRIMARY KEY (prefix=? AND name>? AND name<?)");
        for (statement, by) in [
            (&statements.acquire, one),
            (&statements.release, one),
            (&statements.withdraw, one),
            (&statements.renew, one),
            (&statements.look, one),
            (&statements.await_release, one),
            (&statements.holders, one),
            (&statements.list, all),
            (&statements.force, one),
            (&statements.last_sweep, one),
            (&statements.raise_floor, one),
            (&statements.delete_idle, one),
        ] {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.text()));
            let plan = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
            let steps: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
            let on_table = |step: &&String| step.contains("PRIMARY KEY") || step.starts_with("SCAN t");
            let walks: Vec<_> = steps.iter().filter(on_table).collect();
            assert!(
                !walks.is_empty() && walks.iter().all(|step| step.contains(by)),
                "{}: {steps:#?}",
                statement.text()
            );
        }
    }
}
