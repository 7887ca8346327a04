//! The statements, each of which commits by itself.

use super::queue::{self, words};
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
    /// `?1` prefix, `?2` a JSON array of objects with name, claim, lease and label, `?3` host, `?4` pid. A row with token and
    /// name for each; none at all when another holds one of them.
    pub(super) acquire_all: Statement,
    /// As `acquire`, beside others: and `?8` how many permits to take, `?9` of how many.
    pub(super) share: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. A row when released; it tells whether the name is awaited.
    pub(super) release: Statement,
    /// `?1` prefix, `?2` name, `?3` claim.
    pub(super) withdraw: Statement,
    /// `?1` prefix, `?2` a JSON object of leases in ms by claim, by name. Of each row that was changed, who holds the name.
    pub(super) renew: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. A row when its claim is a reader's now.
    pub(super) downgrade: Statement,
    /// `?1` prefix, `?2` name, `?3` claim. A row when its claim is a writer's now.
    pub(super) upgrade: Statement,
    /// `?1` prefix, `?2` a JSON array of names. What stands in their rows.
    pub(super) look: Statement,
    /// `?1` prefix, `?2` name, `?3` claim, `?4` for how many ms the mark stands, `?5` whether it wants the name alone.
    pub(super) await_release: Statement,
    /// Fair mode: `?1` prefix, `?2` name, `?3` claim, `?4` for how many ms it keeps its place, `?5` how many permits it wants,
    /// `?6` of how many.
    pub(super) stand: Statement,
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
  claim         TEXT,             -- who holds it alone; NULL when nobody does
  shares        TEXT,             -- readers or holders of permits, a JSON object by claim; NULL when there are none
  acquired_at   INTEGER NOT NULL, -- since when; all times are milliseconds since 1970, by SQLite's clock
  expires_at    INTEGER NOT NULL, -- until when, unless renewed; of several, the last
  awaited_until INTEGER NOT NULL, -- until then somebody is known to wait for it
  awaited_by    TEXT,             -- the claim of one who waits to hold it alone, before whom nobody gets in beside others
  queue         TEXT,             -- fair mode: those who wait, a JSON object by claim
  forced        TEXT,             -- who was last put out by force: a claim, or shares
  label         TEXT,             -- what people are told about one who holds it alone
  host          TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  PRIMARY KEY (prefix, name)
) STRICT, WITHOUT ROWID;
"#
    )
}

impl Statements {
    /// With a queue, or without.
    pub(super) fn new(table: &TableName, fair: bool) -> Self {
        let fill = |text: &str| {
            let text =
                words(fair).iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning));
            let text = text
                .replace("{first}", FIRST)
                .replace("{sole}", SOLE)
                .replace("{mine}", MINE)
                .replace("{others}", OTHERS)
                .replace("{fits}", FITS)
                .replace("{last}", LAST);
            let text = text.replace("{live}", LIVE).replace("{own}", OWN).replace("{us}", "({now} * 1000)");
            Statement::new(text.replace("{t}", &format!("\"{}\"", table.as_str())).replace("{now}", NOW))
        };
        Self {
            create: Statement::new(schema(table)),
            check: fill(&format!("EXPLAIN {ACQUIRE} {TAKE}")),
            acquire: fill(&format!("{ACQUIRE} {TAKE}")),
            acquire_all: fill(&format!("{ACQUIRE_ALL} {TAKE}")),
            share: fill(SHARE),
            release: fill(RELEASE),
            withdraw: fill(WITHDRAW),
            renew: fill(RENEW),
            downgrade: fill(DOWNGRADE),
            upgrade: fill(UPGRADE),
            look: fill(LOOK),
            await_release: fill(AWAIT_RELEASE),
            stand: fill(queue::STAND),
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

/// A new row's token.
const FIRST: &str = "max({us}, 1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0))";

/// One upsert. In the update, a bare column is the row as it was, and `excluded` is the row as it would be new.
const ACQUIRE: &str = "
INSERT INTO {t} (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
VALUES (
  ?1, ?2, {first}, ?3, {now}, {now} + ?4, 0, ?5, ?6, ?7
)";

/// The same for several names: for all of them, or for none where one is held. Nobody writes meanwhile.
const ACQUIRE_ALL: &str = "
INSERT INTO {t} (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
SELECT
  ?1, value ->> '$.name', {first},
  value ->> '$.claim', {now}, {now} + (value ->> '$.lease'), 0, value ->> '$.label', ?3, ?4
FROM json_each(?2)
WHERE NOT EXISTS (
  SELECT 1 FROM json_each(?2) AS asked JOIN {t} AS held ON held.prefix = ?1 AND held.name = asked.value ->> '$.name'
  WHERE (held.claim IS NOT NULL OR held.shares IS NOT NULL)
    AND held.claim IS NOT asked.value ->> '$.claim' AND held.expires_at >= {now}
)";

/// What becomes of a row that there is already, unless another holds the name.
const TAKE: &str = "
ON CONFLICT (prefix, name) DO UPDATE SET{leaves}
  token = iif(claim = excluded.claim AND expires_at >= excluded.acquired_at, token, max(token + 1, excluded.token)),
  acquired_at =
    iif(claim = excluded.claim AND expires_at >= excluded.acquired_at, acquired_at, excluded.acquired_at),
  claim = excluded.claim,
  shares = NULL,
  expires_at = excluded.expires_at,
  awaited_until = 0,
  awaited_by = NULL,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE {free}
RETURNING token, name";

/// The path of the claim's share.
const OWN: &str = "'$.\"' || ?3 || '\"'";

/// Whether the claim has a share. Shares have their times in microseconds.
const MINE: &str = "coalesce(shares ->> ({own} || '.until') >= {us}, 0)";

/// What a share's time has to be, in a walk through all of them.
const LIVE: &str = "value ->> '$.until' >= {us}";

/// Whether so many permits can be taken, of those that there are. Another program may have written anything: who wrote that
/// leaves none.
const FITS: &str = "coalesce(value ->> '$.take' BETWEEN 0 AND ?9, false)";

/// Whether there is no other, also none whose time is over: so it is most often, and quicker to tell.
const SOLE: &str = "shares IS NULL OR json_remove(shares, {own}) = '{}'";

/// The shares but for the claim's own, and for those whose time is over; `NULL` when none are left.
const OTHERS: &str = "
  (SELECT nullif(json_group_object(key, json(value)), '{}') FROM json_each(shares) WHERE key <> ?3 AND {live})";

/// When the last of these is over.
const LAST: &str = "
  (SELECT max(value ->> '$.until') / 1000 FROM json_each(shares) WHERE key <> ?3 AND {live})";

/// The same upsert for one who holds the name beside others. It is admitted when nobody holds the name alone or waits to, and
/// when all others have its number of permits, and leave enough of them; readers take none of none. The mark of those who
/// wait stays: they may wait for more than this one took. `VALUES`, because `INSERT … SELECT` from the same table goes through
/// a temporary one, which takes longer than all the rest. No label can look like the token that is replaced: its quotes are
/// escaped.
const SHARE: &str = "
INSERT INTO {t} (prefix, name, token, shares, acquired_at, expires_at, awaited_until, host, pid)
VALUES (
  ?1, ?2, {first},
  json_object(?3, json_object(
    'take', ?8, 'of', ?9, 'token', {first}, 'since', {us}, 'until', {us} + ?4 * 1000, 'label', ?5, 'host', ?6, 'pid', ?7
  )),
  {now}, {now} + ?4, 0, '', 0
)
ON CONFLICT (prefix, name) DO UPDATE SET{leaves}
  token = iif(shares IS NOT NULL AND {mine}, token, max(token + 1, excluded.token)),
  claim = NULL,
  shares = CASE
    WHEN shares IS NULL
    THEN replace(excluded.shares, '\"token\":' || excluded.token || ',', '\"token\":' || max(token + 1, excluded.token) || ',')
    WHEN {mine} THEN json_set(coalesce({others}, '{}'), {own}, json_set(shares -> ({own}), '$.until', {us} + ?4 * 1000))
    ELSE json_set(
      coalesce({others}, '{}'), {own}, json_set(excluded.shares -> ({own}), '$.token', max(token + 1, excluded.token))
    )
  END,
  expires_at = iif(shares IS NULL, excluded.expires_at, max(excluded.expires_at, coalesce({last}, 0)))
WHERE (claim IS NULL OR expires_at < {now}) AND CASE
  WHEN shares IS NOT NULL AND {mine} THEN true
  WHEN awaited_by IS NOT NULL AND awaited_until >= {now} THEN false
  WHEN {nobody} THEN true
  ELSE (
    SELECT coalesce(sum(iif({fits}, value ->> '$.take', ?9 + 1)), 0) + ?8 <= ?9
      AND coalesce(min(coalesce(value ->> '$.of' = ?9, false)), true)
    FROM {beside}
  )
END
RETURNING shares ->> ({own} || '.token')";

/// Also those whose time was over go; what is left holds the name for as long as the last of them.
const RELEASE: &str = "
UPDATE {t} SET
  claim = NULL,
  shares = iif({sole}, NULL, {others}),
  expires_at = iif({sole}, {now}, coalesce({last}, {now}))
WHERE prefix = ?1 AND name = ?2 AND (claim IS ?3 AND expires_at >= {now} OR {mine})
RETURNING awaited_until >= {now}";

/// Whether or not its time is over. One that waited to hold the name alone keeps nobody out any more.
const WITHDRAW: &str = "
UPDATE {t} SET{withdrawn}
  claim = nullif(claim, ?3),
  shares = iif(shares IS NULL, NULL, {others}),
  expires_at = CASE
    WHEN claim = ?3 THEN {now} WHEN shares IS NULL THEN expires_at ELSE coalesce({last}, {now})
  END,
  awaited_by = nullif(awaited_by, ?3)
WHERE prefix = ?1 AND name = ?2 AND (claim = ?3 OR awaited_by = ?3 OR shares -> ({own}) IS NOT NULL{waited})";

/// Of those who share a name, each has its own new lease, or goes on with the old one. `MATERIALIZED`, and with the prefix,
/// because SQLite would otherwise walk the whole table for the prefix alone.
const RENEW: &str = "
WITH asked AS MATERIALIZED (SELECT ?1 AS prefix, key AS name, value AS leases FROM json_each(?2))
UPDATE {t} AS held SET
  shares = iif(shares IS NULL, NULL, (
    SELECT json_group_object(key, json(iif(lease IS NULL, value, json_set(value, '$.until', {us} + lease * 1000))))
    FROM (SELECT key, value, asked.leases ->> ('$.\"' || key || '\"') AS lease FROM json_each(held.shares))
    WHERE {live}
  )),
  expires_at = iif(shares IS NULL, {now} + (asked.leases ->> ('$.\"' || claim || '\"')), (
    SELECT max(coalesce({now} + (asked.leases ->> ('$.\"' || key || '\"')), (value ->> '$.until') / 1000))
    FROM json_each(held.shares) WHERE {live}
  ))
FROM asked
WHERE held.prefix = asked.prefix AND held.name = asked.name AND held.expires_at >= {now}
  AND (shares IS NOT NULL OR asked.leases ->> ('$.\"' || claim || '\"') IS NOT NULL)
RETURNING coalesce(claim, shares)";

/// What a downgrade has done already is done again. Waiters keep their mark.
const DOWNGRADE: &str = "
UPDATE {t} SET
  claim = NULL,
  shares = iif(claim IS NULL, json_set(shares, {own} || '.of', 0), json_object(?3, json_object(
    'take', 0, 'of', 0, 'token', token, 'since', acquired_at * 1000, 'until', expires_at * 1000,
    'label', label, 'host', host, 'pid', pid
  )))
WHERE prefix = ?1 AND name = ?2 AND (claim = ?3 AND expires_at >= {now} OR {mine})
RETURNING 1";

/// It stays among the shares, with its token: the row's may be that of a reader that has come and gone. No other is
/// compatible with it. Whoever holds the name alone already keeps it.
const UPGRADE: &str = "
UPDATE {t} SET
  shares = iif(shares IS NULL, NULL, json_object(?3, json_set(shares -> ({own}), '$.of', -1))),
  expires_at = iif(shares IS NULL, expires_at, (shares ->> ({own} || '.until')) / 1000)
WHERE prefix = ?1 AND name = ?2 AND (claim = ?3 AND expires_at >= {now} OR {mine} AND {others} IS NULL)
RETURNING 1";

const LOOK: &str = "
SELECT name, coalesce(claim, shares), token, expires_at - {now}, awaited_until - {now}, awaited_by, forced, {us},
  {queue}
FROM {t}
WHERE prefix = ?1 AND name IN (SELECT value FROM json_each(?2))";

/// One who can share the name leaves the mark of one who wants it alone as it is.
const AWAIT_RELEASE: &str = "
UPDATE {t} SET awaited_until = {now} + ?4, awaited_by = iif(?5, ?3, NULL)
WHERE prefix = ?1 AND name = ?2 AND (claim <> ?3 OR shares IS NOT NULL)
  AND (?5 OR awaited_by IS NULL OR awaited_until < {now})";

const TELL: &str = "
SELECT name, coalesce(claim, shares), token, acquired_at, {now} - acquired_at, expires_at - {now}, label, host, pid, {us}
FROM {t}";

const HELD: &str = "(claim IS NOT NULL OR shares IS NOT NULL) AND expires_at >= {now}";

/// Leaves the rest of the row as it was, so that it can be told whom this put out.
const FORCE: &str = "
UPDATE {t} SET forced = coalesce(claim, shares), claim = NULL, shares = NULL
WHERE prefix = ?1 AND name = ?2 AND (claim IS NOT NULL OR shares IS NOT NULL) AND expires_at >= {now}
RETURNING name, forced, token, acquired_at, {now} - acquired_at, expires_at - {now}, label, host, pid, {us}";

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
        for fair in [false, true] {
            are_found_by_key(&Statements::new(&TableName::new("t").unwrap(), fair)).await;
        }
    }

    async fn are_found_by_key(statements: &Statements) {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::query(statements.create.sql()).execute(&mut connection).await.unwrap();
        let (one, all) =
            ("USING PRIMARY KEY (prefix=? AND name=?)", "USING PRIMARY KEY (prefix=? AND name>? AND name<?)");
        for (statement, by) in [
            (&statements.acquire, one),
            (&statements.share, one),
            (&statements.downgrade, one),
            (&statements.upgrade, one),
            (&statements.release, one),
            (&statements.withdraw, one),
            (&statements.renew, one),
            (&statements.look, one),
            (&statements.await_release, one),
            (&statements.stand, one),
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
