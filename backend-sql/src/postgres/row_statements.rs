//! The statements of row locks.

use crate::{rows::hexadecimal, statement::Statement, table::TablePath};
use tenure_core::Error;

/// All statements for one table. Only those that lock belong in a transaction; each of the others commits by itself.
pub(super) struct RowStatements {
    pub(super) create: Statement,
    /// Lets a connection plan its repeated statements once.
    pub(super) prepare: Statement,
    /// See [`take`](Self::take).
    take: Take,
    /// `$1` prefix, `$2` name. A row once it is locked; none if there is none.
    pub(super) lock: Statement,
    /// The same, and none if it is already locked.
    pub(super) try_lock: Statement,
    /// The same, and a row whether or not it is locked.
    pub(super) exists: Statement,
    /// `$1` prefix, `$2` name. A row if it was missing and was made.
    pub(super) make: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` label, `$5` host, `$6` pid, `$7` token. A row if it was noted, now or
    /// before.
    pub(super) note: Statement,
    /// `$1` prefix, `$2` the first name, `$3` the first name beyond the last. A row if one of these names is held by a
    /// claim without a note.
    pub(super) unnoted: Statement,
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
    /// `$1` prefix, `$2` the first name, `$3` the first name beyond the last.
    pub(super) list: Statement,
    /// `$1` prefix, `$2` name.
    pub(super) force: Statement,
}

/// The two statements that lock a row, with placeholders for prefix and name.
struct Take {
    wait: String,
    at_once: String,
    /// The same on a connection that was prepared.
    prepared_wait: String,
    prepared_at_once: String,
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

/// A name has two rows: nobody can change the one that its holder has locked, and the holder's own changes would be
/// undone with its transaction.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('"');
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
  prefix      text COLLATE "C" NOT NULL, -- the namespace
  name        text COLLATE "C" NOT NULL, -- what is locked
  part        smallint         NOT NULL, -- 0: the row that the holder locks; 1: what is told of the last grant
  token       bigint,                    -- its fencing token
  claim       text,                      -- who was granted it; the holder, if a connection is named after it
  acquired_at timestamptz,               -- since when, by the server's clock
  forced      text,                      -- the last claims that a forced release ended
  label       text,                      -- what people are told about the holder
  host        text,
  pid         bigint,
  PRIMARY KEY (prefix, name, part)
) WITH (fillfactor = 50);
"#
    )
}

impl RowStatements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| {
            let text = text.replace("{live}", LIVE).replace("{owners}", OWNERS).replace("{ours}", OURS);
            Statement::new(text.replace("{t}", &name))
        };
        Self {
            create: Statement::new(schema(table)),
            prepare: fill(&PREPARE.replace("{row}", ROW).replace("{last}", &last("$1", "$2"))),
            take: Take::new(&name),
            lock: fill(&format!("{ROW} FOR UPDATE")),
            try_lock: fill(&format!("{ROW} FOR UPDATE SKIP LOCKED")),
            exists: fill(ROW),
            make: fill(
                "INSERT INTO {t} (prefix, name, part) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING RETURNING 1",
            ),
            note: fill(NOTE),
            unnoted: fill(UNNOTED),
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
            list: fill(&format!(
                "SELECT {HOLDER} FROM {{t}} AS last WHERE prefix = $1 AND name >= $2 AND name < $3 AND {{live}} \
                 ORDER BY name"
            )),
            force: fill(&format!(
                "UPDATE {{t}} AS last SET forced = {FORCED} WHERE prefix = $1 AND name = $2 AND {{live}} RETURNING {HOLDER}"
            )),
        }
    }

    /// Locks the row, and then returns what its [`Issue`](crate::issue::Issue) is made of: one more row if it was
    /// locked. Both are sent in one message, which has no parameters, but each statement sees what was committed before
    /// it, so the second sees the note of the previous holder.
    ///
    /// Statements that were planned before the wait need no planning between it and the answer. `prepared`: whether the
    /// connection was prepared.
    pub(super) fn take(&self, prefix: &str, name: &str, waits: bool, prepared: bool) -> String {
        let text = |text| format!("convert_from(decode('{}', 'hex'), 'UTF8')", hexadecimal(text));
        let take = match (waits, prepared) {
            (true, false) => &self.take.wait,
            (false, false) => &self.take.at_once,
            (true, true) => &self.take.prepared_wait,
            (false, true) => &self.take.prepared_at_once,
        };
        take.replace("{prefix}", &text(prefix)).replace("{name}", &text(name))
    }
}

impl Take {
    fn new(table: &str) -> Self {
        let last = last("{prefix}", "{name}");
        let row = ROW.replace("$1", "{prefix}").replace("$2", "{name}");
        let take = |lock: &str| format!("{row} {lock}; {last}").replace("{t}", table);
        let prepared = |row: &str| {
            format!("EXECUTE {row}({{prefix}}, {{name}}); EXECUTE tenure_last({{prefix}}, {{name}})")
        };
        Self {
            wait: take("FOR UPDATE"),
            at_once: take("FOR UPDATE SKIP LOCKED"),
            prepared_wait: prepared("tenure_wait"),
            prepared_at_once: prepared("tenure_try"),
        }
    }
}

/// The application name of a claim's connection.
pub(super) fn application(claim: tenure_core::ClaimId) -> String {
    format!("tenure {claim}")
}

const ROW: &str = "SELECT 1 FROM {t} WHERE prefix = $1 AND name = $2 AND part = 0";

const PREPARE: &str = "
PREPARE tenure_wait(text, text) AS {row} FOR UPDATE;
PREPARE tenure_try(text, text) AS {row} FOR UPDATE SKIP LOCKED;
PREPARE tenure_last(text, text) AS {last}";

/// The last noted token, if any, and the server's time.
fn last(prefix: &str, name: &str) -> String {
    format!(
        "SELECT (SELECT token FROM {{t}} WHERE prefix = {prefix} AND name = {name} AND part = 1), {MICROS}"
    )
}

/// The server's time in microseconds since 1970.
pub(super) const MICROS: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// It is not part of the holder's transaction, which is always rolled back. A note that arrives after a later holder's
/// changes nothing.
const NOTE: &str = "
INSERT INTO {t} AS last (prefix, name, part, token, claim, acquired_at, label, host, pid)
VALUES ($1, $2, 1, $7, $3, clock_timestamp(), $4, $5, $6)
ON CONFLICT (prefix, name, part) DO UPDATE SET
  token = excluded.token,
  claim = excluded.claim,
  acquired_at = excluded.acquired_at,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE coalesce(last.token, 0) < excluded.token OR last.claim = excluded.claim
RETURNING 1";

/// Connections with the numbers of their transactions. The row itself records who has locked it, as such a number,
/// `xmax`.
///
/// Anybody can name a connection after a claim, but nobody can fake who has locked the row.
const OWNERS: &str = "
pg_stat_activity AS holder
JOIN pg_locks AS own ON own.pid = holder.pid AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock'
  AND own.granted";

/// A waiter has locked nothing yet, so its connection is recognized by our user and our database, where nobody else
/// logs in.
const OURS: &str = "usename = session_user AND datname = current_database()";

/// Both conditions use the same snapshot of the connections: whatever is named twice is computed once.
///
/// `(… IN …) IS TRUE` keeps the planner from joining: it does not know how many connections there are, and would look
/// at every connection for every name. This way they are hashed once.
const UNNOTED: &str = "
WITH owner AS (
  SELECT own.transactionid::text AS number, application_name AS name FROM {owners}
  WHERE application_name LIKE 'tenure %'
)
SELECT 1 FROM {t} AS held
WHERE prefix = $1 AND name >= $2 AND name < $3 AND part = 0
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
