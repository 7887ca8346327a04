//! The statements, each of which commits by itself.

use crate::{
    statement::{Ranged, Statement},
    table::TablePath,
};
use tenure_core::Error;

/// All statements for one table. Each raises the versions of the rows that it changes. Durations are in milliseconds.
/// Where the server could infer another type for a parameter, the type is written out.
///
/// A lease is valid while `expires_at >= now`. Because `now` is cut to whole milliseconds, a strict comparison would
/// let another claim in up to a millisecond before the lease expires.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` lease, `$5` label, `$6` host, `$7` pid, `$8` mode, unless exclusive,
    /// `$9` how many more tokens to reserve. Returns a row with the last token if granted; none if another holds the
    /// name or the columns do not say everything.
    pub(super) acquire: Statement,
    /// Like `acquire`, but always returns a row like that of `read`, which is empty unless there is a record, followed
    /// by the token.
    pub(super) acquire_or_read: Statement,
    /// `$1` prefix, `$2` objects with name, claim, lease and label, `$3` host, `$4` pid. Returns a row with token and name
    /// for each; none at all if `acquire` would not grant one of them.
    pub(super) acquire_all: Statement,
    /// `$1` prefix, `$2` objects with name, claim, lease, label, host, pid and how many `more` tokens to reserve, each for
    /// an exclusive lock. Returns a row with token and name for each that was granted. Leaves out rows that are missing, or
    /// that another has locked.
    pub(super) acquire_many: Statement,
    /// `$1` prefix, `$2` objects with name and claim. Returns a row for each that was released: whether the name is
    /// awaited, and the name. Leaves out rows that another has locked.
    pub(super) release_many: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` channel. Returns a row if released, which tells whether the name is
    /// awaited.
    pub(super) release: Statement,
    /// Like `release`, but always returns a row like that of `read`, which is empty unless there is a record, followed
    /// by whether the name is awaited, or null.
    pub(super) release_or_read: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` channel. Returns a row if the columns say everything.
    pub(super) withdraw: Statement,
    /// `$1` prefix, `$2` objects with name, claim, lease and mode. Returns the renewed claims. Leaves out rows that another
    /// has locked.
    pub(super) renew: Statement,
    /// `$1` prefix, `$2` name. Returns one row: the time, the floor of a new row's token, and the row, or nulls.
    pub(super) read: Statement,
    /// `$1` prefix, `$2` names. Returns rows like those of `read`, with their names.
    pub(super) read_all: Statement,
    /// `$1` prefix, `$2` name, `$3` to `$13` the columns `token` to `record`, `$14` the announcement, or null, `$15`
    /// channel, `$16` version, `$17` and `$18` the time, from and to, `$19` 1 if a crash must not undo it. Returns a
    /// row when written.
    pub(super) swap: Statement,
    /// Like `swap`, for a missing row, without the arguments after the channel.
    pub(super) insert: Statement,
    /// `$1` prefix, `$2` objects with name, the version that it `was`, the `latest` time to write it, and the columns
    /// from `token` on. Returns the names that were written. Leaves out rows that another has locked.
    pub(super) swap_all: Statement,
    /// `$1` prefix, `$2` the first name. Returns rows like those of `read`, with their names.
    pub(super) list: Ranged,
    /// Returns how long ago the idle rows were swept.
    pub(super) last_sweep: Statement,
    /// `$1` how long ago the last sweep must be. Returns a row if it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// `$1` and `$2` prefix and name to continue after, `$3` for how long a row must have been idle, `$4` how many rows.
    pub(super) find_idle: Statement,
    /// `$1` a token.
    pub(super) raise_floor: Statement,
    /// `$1` objects with prefix and name, `$2` for how long a row must have been idle. A row for each deleted.
    pub(super) delete_idle: Statement,
}

/// The DDL of the table `table`, which may be `schema.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::postgres_schema("app.tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"app\".\"tenure_locks\""));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn postgres_schema(table: &str) -> Result<String, Error> {
    TablePath::new(table).map(|table| schema(&table))
}

/// Texts are compared by their bytes. The fill factor leaves room for the next version of each row next to it, so that
/// no index has to change. The row with the empty name, which no lock has, keeps the greatest token of all swept rows,
/// and when they were swept.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('"');
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
  prefix        text COLLATE "C" NOT NULL, -- the namespace
  name          text COLLATE "C" NOT NULL, -- the lock's name; a latch's name begins with a control character
  version       bigint           NOT NULL, -- rises with every change
  token         bigint           NOT NULL, -- the fencing token of the last grant; kept after the release
  claim         text,                      -- the holder's claim; NULL if the lock is free, or if record lists the holders
  mode          text,                      -- the holder's mode; NULL if exclusive
  since         bigint           NOT NULL, -- when it was acquired; all times are milliseconds since 1970, by the server's clock
  expires_at    bigint           NOT NULL, -- when the lease ends, unless renewed; if the lock is free, its last use
  awaited_until bigint           NOT NULL, -- until then, a client counts as waiting for the lock
  awaited_by    text,                      -- a claim that waits for exclusive mode; until it is granted, no claim joins the holders
  label         text,                      -- the holder's label, for people
  host          text             NOT NULL,
  pid           bigint           NOT NULL,
  record        text,                      -- JSON for what the columns from claim on cannot express: several holders, a queue, a latch
  PRIMARY KEY (prefix, name)
) WITH (fillfactor = 50);
"#
    )
}

impl Statements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| {
            let text = text
                .replace("{take}", TAKE)
                .replace("{free}", FREE)
                .replace("{more}", "$9::bigint")
                .replace("{again}", "held.claim = excluded.claim AND held.expires_at >= excluded.since")
                .replace("{columns}", COLUMNS)
                .replace("{swapped}", SWAPPED)
                .replace("{announce}", "CASE WHEN $14::text IS NOT NULL THEN pg_notify($15, $14) END")
                .replace("{first}", FIRST)
                .replace("{at_once}", AT_ONCE)
                .replace("{anew}", ANEW)
                .replace("{now}", "floor(extract(epoch FROM now()) * 1000)::bigint")
                .replace("{us}", "(extract(epoch FROM now()) * 1000000)::bigint")
                .replace("{tell}", "pg_notify($4, $1 || E'\\n' || $2)")
                .replace("{channel}", table.table.as_str())
                .replace("{t}", &name);
            Statement::new(text)
        };
        let or_read = |statement: &str, answer: &str| {
            fill(&OR_READ.replace("{statement}", statement).replace("{answer}", answer))
        };
        Self {
            create: Statement::new(schema(table)),
            acquire: fill(ACQUIRE),
            acquire_or_read: or_read(ACQUIRE, "token"),
            acquire_all: fill(&ACQUIRE_ALL.replace("{take}", &TAKE.replace("{more}", "0"))),
            acquire_many: fill(ACQUIRE_MANY),
            release_many: fill(RELEASE_MANY),
            release: fill(RELEASE),
            release_or_read: or_read(RELEASE, "awaited"),
            withdraw: fill(WITHDRAW),
            renew: fill(RENEW),
            read: fill(READ),
            read_all: fill(READ_ALL),
            swap: fill(SWAP),
            insert: fill(INSERT),
            swap_all: fill(SWAP_ALL),
            list: Ranged::new(LIST, fill),
            last_sweep: fill("SELECT {now} - expires_at FROM {t} WHERE prefix = '' AND name = ''"),
            begin_sweep: fill(BEGIN_SWEEP),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = greatest(token, $1) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// The token of a new row.
const FIRST: &str = "greatest(
    {us},
    1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)
  )";

/// One upsert. In the update, `held` is the row as it is once it is locked, so its token is the last one granted. A
/// sequence in `VALUES` would be evaluated before that, and could give a later grant a smaller token.
///
/// A row that is seen to be held is not touched: its lock would be a write, which waits for the disk, and which keeps
/// the holder from renewing. Only a row that seems free is locked, and then decided on again.
///
/// `now()` is when the statement began. A statement that had to wait for the row sees leases as they were then, so
/// never as expired too early.
const ACQUIRE: &str = "
INSERT INTO {t} AS held
  (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, label, host, pid)
SELECT * FROM (
  VALUES ($1, $2, {us}, {first} + {more}, $3::text, $8::text, {now}, {now} + $4::bigint, 0, $5, $6, $7::bigint)
) AS excluded (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, label, host, pid)
WHERE NOT EXISTS (
  SELECT FROM {t} AS held WHERE held.prefix = excluded.prefix AND held.name = excluded.name AND NOT ({free})
)
{take}";

/// For several names: for all of them, or for none if one is held. If another client acquires one of them between the
/// look and the upsert, a division by zero undoes the rest.
const ACQUIRE_ALL: &str = "
WITH asked AS (
  SELECT * FROM json_to_recordset($2::json) AS asked (name text, claim text, lease bigint, label text)
), taken AS (
  INSERT INTO {t} AS held (prefix, name, version, token, claim, since, expires_at, awaited_until, label, host, pid)
  SELECT $1, name, {us}, {first}, claim, {now}, {now} + lease, 0, label, $3::text, $4::bigint
  FROM asked
  WHERE NOT EXISTS (
    SELECT FROM asked JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name
    WHERE held.record IS NOT NULL
      OR held.claim IS NOT NULL AND held.claim <> asked.claim AND held.expires_at >= {now}
  )
  ORDER BY name COLLATE \"C\"
  {take}
)
SELECT token, name FROM taken, (SELECT count(*) FROM taken) AS all_taken (number)
WHERE CASE WHEN number IN (0, (SELECT count(*) FROM asked)) THEN true ELSE 1 / (number - number) = 0 END";

/// The change of `TAKE` for a free row, for many rows. A claim that asks again, because the answer was lost, is left to
/// the statement for one. So is a row that is locked: no request waits for another's row.
const ACQUIRE_MANY: &str = "
WITH free AS (
  SELECT asked.*
  FROM json_to_recordset($2::json) AS asked (
    name text, claim text, lease bigint, label text, host text, pid bigint, more bigint
  )
  JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name
  WHERE held.record IS NULL AND (held.claim IS NULL OR held.expires_at < {now})
  FOR NO KEY UPDATE OF held SKIP LOCKED
)
UPDATE {t} AS held SET
  version = held.version + 1,
  token = greatest(held.token + 1, {us}) + free.more,
  mode = NULL,
  since = {now},
  claim = free.claim,
  expires_at = {now} + free.lease,
  awaited_until = 0,
  awaited_by = NULL,
  label = free.label,
  host = free.host,
  pid = free.pid
FROM free
WHERE held.prefix = $1 AND held.name = free.name
  AND held.record IS NULL AND (held.claim IS NULL OR held.expires_at < {now})
RETURNING held.token, held.name";

/// Whether a claim may have an existing row.
const FREE: &str = "held.record IS NULL AND (
  {again}
  OR (held.claim IS NULL OR held.expires_at < excluded.since) AND (
    excluded.mode IS NULL OR held.awaited_by IS NULL OR held.awaited_by = excluded.claim
    OR held.awaited_until < excluded.since
  )
)";

/// The update of an existing row. A claim that can share the name does not touch the mark of an exclusive waiter. If
/// another client was faster, only the lock of the row was written, and nothing waits for the disk.
const TAKE: &str = "ON CONFLICT (prefix, name) DO UPDATE SET
  version = held.version + 1,
  token = CASE WHEN {again} THEN held.token ELSE greatest(held.token + 1 + {more}, excluded.token) END,
  mode = CASE WHEN {again} THEN held.mode ELSE excluded.mode END,
  since = CASE WHEN {again} THEN held.since ELSE excluded.since END,
  claim = excluded.claim,
  expires_at = CASE WHEN {again} THEN greatest(held.expires_at, excluded.expires_at) ELSE excluded.expires_at END,
  awaited_until = CASE WHEN excluded.mode IS NULL OR held.awaited_by = excluded.claim THEN 0 ELSE held.awaited_until END,
  awaited_by = CASE WHEN excluded.mode IS NOT NULL THEN nullif(held.awaited_by, excluded.claim) END,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE CASE WHEN {free} THEN true ELSE {at_once} IS NULL END
RETURNING token, name";

/// A notification is sent when the statement commits. It costs the server a lock, so it is sent only if the name is
/// awaited.
///
/// A release does not wait for the disk: `docs/contributing/decisions.md` says why.
const RELEASE: &str = "
UPDATE {t} SET version = {anew}, claim = NULL, expires_at = {now}
WHERE prefix = $1 AND name = $2 AND claim = $3::text AND expires_at >= {now} AND record IS NULL
RETURNING awaited_until >= {now} AS awaited, CASE WHEN awaited_until >= {now} THEN {tell} END, {at_once}";

/// Releases many rows.
const RELEASE_MANY: &str = "
WITH own AS (
  SELECT asked.*
  FROM json_to_recordset($2::json) AS asked (name text, claim text)
  JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name AND held.claim = asked.claim
  FOR NO KEY UPDATE OF held SKIP LOCKED
)
UPDATE {t} AS held SET version = {anew}, claim = NULL, expires_at = {now}
FROM own
WHERE held.prefix = $1 AND held.name = own.name AND held.claim = own.claim
  AND held.expires_at >= {now} AND held.record IS NULL
RETURNING held.awaited_until >= {now} AS awaited, held.name,
  CASE WHEN held.awaited_until >= {now} THEN pg_notify('{channel}', $1 || E'\\n' || held.name) END, {at_once}";

/// Makes the statement's commit not wait for the disk. The setting ends with the statement.
const AT_ONCE: &str = "set_config('synchronous_commit', 'off', true)";

/// The version of a write that a crash may undo. It must never come again, so it jumps further than others could count
/// meanwhile, by a random step.
const ANEW: &str = "version + 1000 + (random() * 1000000)::bigint";

/// Also reads the row if the columns were not enough to decide: that saves a round trip for shared names and queues.
/// The row is read as it was when the statement began. If it has changed since, the version shows that when it is
/// written back.
const OR_READ: &str = "
WITH done AS ({statement})
SELECT {now}, 0::bigint, {columns}, done.{answer}
FROM (SELECT) AS one
LEFT JOIN done ON true
LEFT JOIN {t} AS held ON done.{answer} IS NULL AND held.prefix = $1 AND held.name = $2 AND held.record IS NOT NULL";

/// Whether or not the claim has expired. If it waited for exclusive mode, it no longer keeps others out. The name still
/// counts as awaited, because others may have left no mark beside its own. The version is raised in any case, so that a
/// late write of the claim changes nothing.
const WITHDRAW: &str = "
UPDATE {t} SET
  version = version + 1,
  expires_at = CASE WHEN claim = $3::text THEN {now} ELSE expires_at END,
  claim = nullif(claim, $3),
  awaited_by = nullif(awaited_by, $3)
WHERE prefix = $1 AND name = $2 AND record IS NULL
RETURNING 1, CASE WHEN claim IS NULL OR mode IS NOT NULL THEN {tell} END";

/// Skips locked rows, so that no lease waits for another's row.
const RENEW: &str = "
WITH free AS (
  SELECT asked.*
  FROM json_to_recordset($2::json) AS asked (name text, claim text, lease bigint, mode text)
  JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name AND held.claim = asked.claim
  FOR NO KEY UPDATE OF held SKIP LOCKED
)
UPDATE {t} AS held SET version = held.version + 1, expires_at = {now} + free.lease
FROM free
WHERE held.prefix = $1 AND held.name = free.name AND held.claim = free.claim
  AND held.expires_at >= {now} AND held.record IS NULL AND (held.mode IS NULL OR held.mode = free.mode)
RETURNING held.claim";

/// The columns of a row that are read.
const COLUMNS: &str =
    "held.version, held.token, held.claim, held.mode, held.since, held.expires_at, held.awaited_until,
  held.awaited_by, held.label, held.host, held.pid, held.record";

const READ: &str = "
SELECT {now}, coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0), {columns}
FROM (SELECT) AS one LEFT JOIN {t} AS held ON held.prefix = $1 AND held.name = $2";

const READ_ALL: &str = "
SELECT {now}, 0::bigint, {columns}, held.name
FROM json_to_recordset($2::json) AS asked (name text)
JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name";

const SWAP: &str = "
UPDATE {t} SET
  version = CASE $19::bigint WHEN 1 THEN version + 1 ELSE {anew} END,
  token = $3,
  claim = $4,
  mode = $5,
  since = $6,
  expires_at = $7,
  awaited_until = $8,
  awaited_by = $9,
  label = $10,
  host = $11,
  pid = $12,
  record = $13
WHERE prefix = $1 AND name = $2 AND version = $16 AND {now} BETWEEN $17 AND $18
RETURNING 1, {announce}, CASE WHEN $19 <> 1 THEN {at_once} END";

const INSERT: &str = "
INSERT INTO {t} (
  prefix, name, version, token, claim, mode, since, expires_at, awaited_until, awaited_by, label, host, pid, record
)
VALUES ($1, $2, {us}, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT DO NOTHING
RETURNING 1, {announce}";

/// The columns of a row that are written.
const SWAPPED: &str =
    "token bigint, claim text, mode text, since bigint, expires_at bigint, awaited_until bigint,
    awaited_by text, label text, host text, pid bigint, record text";

const SWAP_ALL: &str = "
WITH free AS (
  SELECT asked.*
  FROM json_to_recordset($2::json) AS asked (name text, was bigint, latest bigint, {swapped})
  JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name AND held.version = asked.was
  WHERE {now} <= asked.latest
  FOR NO KEY UPDATE OF held SKIP LOCKED
)
UPDATE {t} AS held SET
  version = held.version + 1,
  token = free.token,
  claim = free.claim,
  mode = free.mode,
  since = free.since,
  expires_at = free.expires_at,
  awaited_until = free.awaited_until,
  awaited_by = free.awaited_by,
  label = free.label,
  host = free.host,
  pid = free.pid,
  record = free.record
FROM free
WHERE held.prefix = $1 AND held.name = free.name AND held.version = free.was
RETURNING held.name";

/// Leaves out latches and the floor: their keys sort before all names.
const LIST: &str = "
SELECT {now}, 0::bigint, {columns}, held.name FROM {t} AS held
WHERE held.prefix = $1 AND held.name >= $2 {end}
  AND (held.claim IS NOT NULL AND held.expires_at >= {now} OR held.record IS NOT NULL)
ORDER BY held.name";

const BEGIN_SWEEP: &str = "
INSERT INTO {t} AS swept (prefix, name, version, token, since, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, 0, {now}, {now}, 0, '', 0)
ON CONFLICT (prefix, name) DO UPDATE SET expires_at = excluded.expires_at
WHERE swept.expires_at <= excluded.expires_at - $1::bigint
RETURNING 1";

/// Leaves out rows whose tokens no clock has reached, because another program damaged them: once they were swept, all
/// new names would have to come after them.
const FIND_IDLE: &str = "
SELECT prefix, name, token FROM {t}
WHERE (prefix, name) > ($1, $2) AND name <> '' AND expires_at < {now} - $3::bigint
  AND token < 4611686018427387904
ORDER BY prefix, name LIMIT $4";

const DELETE_IDLE: &str = "
DELETE FROM {t} AS idle USING json_to_recordset($1::json) AS found (prefix text, name text)
WHERE idle.prefix = found.prefix AND idle.name = found.name
  AND idle.expires_at < {now} - $2::bigint
  AND idle.token <= (SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = '')
RETURNING 1";
