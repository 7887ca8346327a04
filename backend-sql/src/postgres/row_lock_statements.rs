//! The statements of row locks.

use crate::{
    patience::in_millis,
    statement::{Ranged, Statement},
    table::TablePath,
};
use std::time::Duration;
use tenure_core::Error;

/// All statements for one table. Only those that lock belong in a transaction; each of the others commits by itself.
pub(super) struct RowStatements {
    pub(super) create: Statement,
    /// Lets a connection plan its repeated statements once, and lets them wait for as long as each says.
    pub(super) prepare: Statement,
    /// `$1` prefix, `$2` name, `$3` an application's name, `$4` a lease in milliseconds. See [`take`].
    pub(super) wait: Statement,
    /// Like `wait`, but does not wait for the row.
    pub(super) at_once: Statement,
    /// `$1` prefix, `$2` name. A row once it is locked; none if there is none.
    pub(super) lock: Statement,
    /// Like `lock`, but none if it is already locked.
    pub(super) try_lock: Statement,
    /// `$1` prefix, `$2` name. A row if it exists, locked or not.
    pub(super) exists: Statement,
    /// `$1` prefix, `$2` name. A row if it was missing and was made.
    pub(super) make: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` label, `$5` host, `$6` pid, `$7` token. A row if it was noted, now or
    /// before.
    pub(super) note: Statement,
    /// `$1` prefix, `$2` the first name. A row if one of these names is held by a claim without a note.
    pub(super) unnoted: Ranged,
    /// `$1` an application's name. A row if one of our connections has it.
    pub(super) lives: Statement,
    /// `$1` an application's name. Ends the wait of our connection with that name.
    pub(super) interrupt: Statement,
    /// `$1` prefix, `$2` name, `$3` an application's name. Ends the connection with that name that has locked the row.
    pub(super) terminate: Statement,
    /// `$1` prefix, `$2` name, `$3` claim. A row if it was released by force.
    pub(super) was_forced: Statement,
    /// `$1` prefix, `$2` name.
    pub(super) holders: Statement,
    /// `$1` prefix, `$2` the first name.
    pub(super) list: Ranged,
    /// `$1` prefix, `$2` name.
    pub(super) force: Statement,
}

/// The DDL of the table `table` of row locks, which may be `schema.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::postgres_row_schema("app.tenure_row_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"app\".\"tenure_row_locks\""));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn postgres_row_schema(table: &str) -> Result<String, Error> {
    TablePath::new(table).map(|table| schema(&table))
}

/// A name has two rows: no other client can change the one that its holder has locked, and the holder's own changes
/// would be undone with its transaction.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('"');
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
  prefix      text COLLATE "C" NOT NULL, -- the namespace
  name        text COLLATE "C" NOT NULL, -- the lock's name
  part        smallint         NOT NULL, -- 0: the row that the holder locks; 1: the note of the last grant
  token       bigint,                    -- the fencing token of the last grant
  claim       text,                      -- the claim of the last grant; it holds the lock while a connection is named after it
  acquired_at timestamptz,               -- when it was granted, by the server's clock
  forced      text,                      -- the last claims that were released by force
  label       text,                      -- the holder's label, for people
  host        text,
  pid         bigint,
  PRIMARY KEY (prefix, name, part)
) WITH (fillfactor = 50);
"#
    )
}

impl RowStatements {
    /// `limit`: how long to wait for the table, if each transaction has to say so. Without it, transactions are for
    /// connections that were prepared.
    pub(super) fn new(table: &TablePath, limit: Option<Duration>) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| {
            let text = text.replace("{live}", LIVE).replace("{owners}", OWNERS).replace("{ours}", OURS);
            Statement::new(text.replace("{t}", &name))
        };
        Self {
            create: Statement::new(schema(table)),
            prepare: fill(
                &PREPARE
                    .replace("{wait}", &locking(true))
                    .replace("{try}", &locking(false))
                    .replace("{last}", LAST),
            ),
            wait: fill(&take(true, limit)),
            at_once: fill(&take(false, limit)),
            lock: fill(&format!("{ROW} FOR UPDATE")),
            try_lock: fill(&format!("{ROW} FOR UPDATE SKIP LOCKED")),
            exists: fill(ROW),
            make: fill(
                "INSERT INTO {t} (prefix, name, part) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING RETURNING 1",
            ),
            note: fill(NOTE),
            unnoted: Ranged::new(UNNOTED, fill),
            lives: fill("SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND {ours}"),
            interrupt: fill(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND {ours}",
            ),
            terminate: fill(
                "SELECT pg_terminate_backend(holder.pid) FROM {owners} JOIN {t} AS held ON xmax = own.transactionid \
                 WHERE prefix = $1 AND name = $2 AND part = 0 AND holder.application_name = $3",
            ),
            was_forced: fill(
                "SELECT 1 FROM {t} WHERE prefix = $1 AND name = $2 AND part = 1 AND strpos(forced, $3) > 0",
            ),
            holders: fill(&format!(
                "SELECT {HOLDER} FROM {{t}} AS last WHERE prefix = $1 AND name = $2 AND {{live}}"
            )),
            list: Ranged::new(
                &format!(
                    "SELECT {HOLDER} FROM {{t}} AS last WHERE prefix = $1 AND name >= $2 {{end}} AND {{live}} ORDER BY name"
                ),
                fill,
            ),
            force: fill(&format!(
                "UPDATE {{t}} AS last SET forced = {FORCED} WHERE prefix = $1 AND name = $2 AND {{live}} RETURNING {HOLDER}"
            )),
        }
    }
}

/// Begins a transaction, locks the row, and then returns the parts of its
/// [`Issue`](crate::session_locks::issue::Issue): one more row if it was locked. All of it is one message, so no
/// transaction is ever idle without a limit. But each statement sees what was committed before it, so the last one sees
/// the note of the previous holder.
///
/// Statements that were planned before the wait need no planning between it and the answer.
fn take(waits: bool, limit: Option<Duration>) -> String {
    let locks = match limit {
        None if waits => "EXECUTE tenure_wait($1, $2, $3, $4); EXECUTE tenure_last($1, $2)".to_owned(),
        None => "EXECUTE tenure_try($1, $2, $3, $4); EXECUTE tenure_last($1, $2)".to_owned(),
        Some(limit) => format!(
            "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = 0; {}; {LAST}",
            in_millis(limit),
            locking(waits)
        ),
    };
    format!("BEGIN ISOLATION LEVEL READ COMMITTED; {locks}")
}

/// Locks the row, in a transaction that first shows its claim and limits how long it may be idle, and how long it waits
/// for the row, where 0 would mean for ever. These are settings of this transaction only, so that a pooler in
/// transaction mode keeps them together. A condition makes them, which is evaluated once and before any row is locked:
/// each as a statement of its own would cost as much as the lock. From version 17 on, the server can also limit how long
/// a transaction lasts.
fn locking(waits: bool) -> String {
    let (limit, lock) =
        if waits { (", set_config('lock_timeout', '1h', true)", "") } else { ("", " SKIP LOCKED") };
    format!(
        "{ROW} AND (SELECT concat(set_config('application_name', $3, true), \
         set_config('idle_in_transaction_session_timeout', $4, true), \
         CASE WHEN current_setting('transaction_timeout', true) <> '0' \
         THEN set_config('transaction_timeout', '0', true) END{limit})) <> '' FOR UPDATE{lock}"
    )
}

/// The application name of a claim's connection.
pub(super) fn application(claim: tenure_core::ClaimId) -> String {
    format!("tenure {claim}")
}

const ROW: &str = "SELECT 1 FROM {t} WHERE prefix = $1 AND name = $2 AND part = 0";

const PREPARE: &str = "
PREPARE tenure_wait(text, text, text, text) AS {wait};
PREPARE tenure_try(text, text, text, text) AS {try};
PREPARE tenure_last(text, text) AS {last};
SET statement_timeout = 0";

/// The last noted token, if any; the server's time in microseconds since 1970; and how long before that the transaction
/// began.
const LAST: &str = "\
SELECT (SELECT token FROM {t} WHERE prefix = $1 AND name = $2 AND part = 1), \
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
(extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint";

/// It is not part of the holder's transaction, which is always rolled back. A note that arrives after a later holder's
/// changes nothing. If an earlier grant of the claim was ended by force, that is not true of this one.
const NOTE: &str = "
INSERT INTO {t} AS last (prefix, name, part, token, claim, acquired_at, label, host, pid)
VALUES ($1, $2, 1, $7, $3, clock_timestamp(), $4, $5, $6)
ON CONFLICT (prefix, name, part) DO UPDATE SET
  token = excluded.token,
  claim = excluded.claim,
  acquired_at = excluded.acquired_at,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid,
  forced = CASE WHEN last.token < excluded.token THEN replace(last.forced, excluded.claim, '') ELSE last.forced END
WHERE coalesce(last.token, 0) < excluded.token OR last.claim = excluded.claim
RETURNING 1";

/// Connections with the numbers of their transactions. The row itself records its locker, as such a number, `xmax`.
///
/// Any user can name a connection after a claim, but no user can fake the row's locker.
const OWNERS: &str = "
pg_stat_activity AS holder
JOIN pg_locks AS own ON own.pid = holder.pid AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock'
  AND own.granted";

/// A waiter has locked nothing yet, so its connection is recognized by our user and our database, where no others log
/// in.
const OURS: &str = "usename = session_user AND datname = current_database()";

/// Both conditions use the same snapshot of the connections: a query that is named twice is computed once.
///
/// `(… IN …) IS TRUE` keeps the planner from joining: it does not know how many connections there are, and would look
/// at every connection for every name. This way they are hashed once.
const UNNOTED: &str = "
WITH owner AS (
  SELECT own.transactionid::text AS number, application_name AS name FROM {owners}
  WHERE application_name LIKE 'tenure %'
)
SELECT 1 FROM {t} AS held
WHERE prefix = $1 AND name >= $2 {end} AND part = 0
  AND (xmax::text IN (SELECT number FROM owner)) IS TRUE
  AND (xmax || ' tenure ' || (
    SELECT claim FROM {t} AS last WHERE last.prefix = held.prefix AND last.name = held.name AND last.part = 1
  ) IN (SELECT number || ' ' || name FROM owner)) IS NOT TRUE
LIMIT 1";

/// Whether the last grant's transaction is alive. Not a join either.
const LIVE: &str = "part = 1 AND ((
    SELECT xmax || ' tenure ' || last.claim FROM {t} AS held
    WHERE held.prefix = last.prefix AND held.name = last.name AND held.part = 0
  ) IN (SELECT own.transactionid || ' ' || holder.application_name FROM {owners})) IS TRUE";

/// Keeps the last ten, because earlier ones may not have looked yet.
const FORCED: &str =
    "CASE WHEN strpos(forced, claim) > 0 THEN forced ELSE left(concat_ws(' ', claim, forced), 369) END";

const HOLDER: &str = "
name, claim, token, floor(extract(epoch FROM acquired_at) * 1000)::bigint,
floor(extract(epoch FROM clock_timestamp() - acquired_at) * 1000)::bigint, label, host, pid";

#[cfg(test)]
mod tests {
    use super::*;

    /// A hand-off takes two more: the note, and the end of the transaction.
    #[test]
    fn lock_takes_three_statements_or_five_behind_a_pooler() {
        let table = TablePath::new("t").unwrap();
        for (limit, number) in [(None, 3), (Some(Duration::from_secs(4)), 5)] {
            let RowStatements { wait, at_once, .. } = RowStatements::new(&table, limit);
            for message in [wait, at_once] {
                assert_eq!(message.text().split(';').count(), number, "{}", message.text());
            }
        }
    }
}
