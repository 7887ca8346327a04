//! The statements, each of which commits by itself, and messages of several that commit together.

use crate::{statement::Statement, table::TablePath};
use tenure_core::Error;

/// All statements for one table. Each raises the versions of the rows that it changes. Durations are in milliseconds.
/// Parameters (`?`) are in the order given.
///
/// A lease is valid while `expires_at >= now`. Because `now` is cut to whole milliseconds, a strict comparison would
/// let another claim in up to a millisecond before the lease expires.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// Prefix, name, how many more tokens to reserve, claim, mode, unless exclusive, lease, label, host, pid, and by
    /// how much the token rises at least. The last insert id is the last token, or 0 if another holds the name or the
    /// columns do not say everything.
    pub(super) acquire: Statement,
    /// How many more tokens to reserve, claim, mode, lease, label, host, pid, prefix, name, mode. Like `acquire`, on a
    /// free row.
    pub(super) take_free: Statement,
    /// `@tenure_prefix`, and in `@tenure_asked` objects with name, claim, lease, label, host, pid and how many `more`
    /// tokens to reserve, each for an exclusive lock. Name and last token of each that `take_free` grants, except those
    /// whose rows another has locked.
    pub(super) take_many: Statement,
    /// `@tenure_prefix`, and in `@tenure_asked` objects with name and claim. The name of each that `release` releases,
    /// and its last insert id, except those whose rows another has locked.
    pub(super) release_many: Statement,
    /// Prefix, name, claim. One row if released. The last insert id is 0 without a waiter for the name, 1 for one
    /// without a bell, and otherwise the bell to ring.
    pub(super) release: Statement,
    /// Five times the claim, prefix, name. One row if the columns say everything; the last insert id is as for `release`.
    pub(super) withdraw: Statement,
    /// Objects with name, prefix. Those whose rows are not locked at the moment, and the time.
    pub(super) unlocked: Statement,
    /// Objects with name, claim, lease and mode, prefix. As many rows as were renewed.
    pub(super) renew: Statement,
    /// Prefix, name. One row: the time, the floor of a new row's token, and the row, or nulls.
    pub(super) read: Statement,
    /// Objects with name, prefix. Rows like those of `read`, with their names.
    pub(super) read_all: Statement,
    /// The columns `token` to `record`, prefix, name, version. One row when written.
    pub(super) swap: Statement,
    /// Prefix, name, the columns `token` to `record`. The last insert id is not 0 if there was no row and now there is
    /// one.
    pub(super) insert: Statement,
    /// Objects with name, the version that it `was`, the `latest` time to write it, and the columns from `token` on,
    /// prefix. As many rows as were written.
    pub(super) swap_all: Statement,
    /// Objects with name, prefix. Name and version of those rows that are not held by one alone, or have no mark.
    pub(super) changed: Statement,
    /// Prefix, the first name, the first name beyond the last. Rows like those of `read`, with their names.
    pub(super) list: Statement,
    /// How long ago the idle rows were swept.
    pub(super) last_sweep: Statement,
    /// Makes the row that records the last sweep.
    pub(super) prepare_sweep: Statement,
    /// How long ago the last sweep must be. One row if it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// Prefix, prefix, name to continue after, for how long a row must have been idle, how many.
    pub(super) find_idle: Statement,
    /// A token.
    pub(super) raise_floor: Statement,
    /// Objects with prefix and name, for how long a row must have been idle. As many rows as were deleted.
    pub(super) delete_idle: Statement,
}

/// The DDL of the table `table`, which may be `database.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::mysql_schema("app.tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS `app`.`tenure_locks`"));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn mysql_schema(table: &str) -> Result<String, Error> {
    TablePath::new(table).map(|table| schema(&table))
}

/// Keys are binary, because every MySQL collation treats some different names as equal: by case, by accents, or by
/// trailing spaces. The row with the empty name, which no lock has, keeps the greatest token of all swept rows, and
/// when they were swept. `InnoDB`, because rows must be locked one by one and survive a crash.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('`');
    format!(
        r"CREATE TABLE IF NOT EXISTS {table} (
  prefix        VARBINARY(200) NOT NULL, -- the namespace
  name          VARBINARY(201) NOT NULL, -- the lock's name; a latch's name begins with a control character
  version       BIGINT         NOT NULL, -- rises with every change
  token         BIGINT         NOT NULL, -- the fencing token of the last grant; kept after the release
  claim         VARBINARY(36),           -- the holder's claim; NULL if the lock is free, or if record lists the holders
  mode          VARCHAR(100),            -- the holder's mode; NULL if exclusive
  since         BIGINT         NOT NULL, -- when it was acquired; all times are milliseconds since 1970, by the server's clock
  expires_at    BIGINT         NOT NULL, -- when the lease ends, unless renewed; if the lock is free, its last use
  awaited_until BIGINT         NOT NULL, -- until then, a client counts as waiting for the lock
  awaited_by    VARBINARY(36),           -- a claim that waits for exclusive mode; until it is granted, no claim joins the holders
  awaited_bell  BIGINT,                  -- the bell of a waiter's process, which holds the user-level lock tenure.bell.…
  label         VARCHAR(200),            -- the holder's label, for people
  host          VARCHAR(255)   NOT NULL,
  pid           BIGINT         NOT NULL,
  record        LONGTEXT,                -- JSON for what the columns from claim on cannot express: several holders, a queue, a latch
  PRIMARY KEY (prefix, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

impl Statements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('`');
        let fill = |text: &str| {
            let text = text
                .replace("{free}", FREE)
                .replace("{vacant}", VACANT)
                .replace("{own}", OWN)
                .replace("{awaited}", AWAITED)
                .replace("{bell}", BELL)
                .replace("{rows}", ROWS)
                .replace("{again}", "claim = VALUES(claim) AND expires_at >= VALUES(since)")
                .replace("{columns}", COLUMNS)
                .replace("{asked}", ASKED)
                .replace("{first}", FIRST)
                .replace("{now}", "({us} DIV 1000)")
                .replace("{us}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
                .replace("{t}", &name);
            Statement::new(text)
        };
        let many = |which: &str, change: &str, told: &str| {
            fill(&MANY.replace("{which}", which).replace("{change}", change).replace("{told}", told))
        };
        Self {
            create: Statement::new(schema(table)),
            acquire: fill(ACQUIRE),
            take_free: fill(TAKE_FREE),
            take_many: many("{vacant}", TAKE_EACH, "held.token"),
            release_many: many("{own}", RELEASE_EACH, "{awaited}"),
            release: fill(RELEASE),
            withdraw: fill(WITHDRAW),
            unlocked: fill(UNLOCKED),
            renew: fill(RENEW),
            read: fill(READ),
            read_all: fill(READ_ALL),
            swap: fill(SWAP),
            insert: fill(INSERT),
            swap_all: fill(SWAP_ALL),
            changed: fill(CHANGED),
            list: fill(LIST),
            last_sweep: fill("SELECT {now} - expires_at FROM {t} WHERE prefix = '' AND name = ''"),
            prepare_sweep: fill(PREPARE_SWEEP),
            begin_sweep: fill(
                "UPDATE {t} SET expires_at = {now} WHERE prefix = '' AND name = '' AND expires_at <= {now} - ?",
            ),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = GREATEST(token, ?) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// The token of a new row.
const FIRST: &str = "GREATEST(
    {us},
    1 + COALESCE((SELECT token FROM (SELECT token FROM {t} WHERE prefix = '' AND name = '') AS floor), 0)
  )";

/// Whether the columns say that the claim may have the name. A claim that has just held it may have it again, even past
/// another's mark: then `claim` alone tells whether it was granted.
const FREE: &str = "record IS NULL AND (
    claim = VALUES(claim)
    OR (claim IS NULL OR expires_at < VALUES(since)) AND (
      VALUES(mode) IS NULL OR awaited_by IS NULL OR awaited_by = VALUES(claim) OR awaited_until < VALUES(since)
    )
  )";

/// One upsert. `LAST_INSERT_ID(x)` is `x`, and the server sends it back with its answer: the token comes in the same round
/// trip, and 0 when another holds the name.
///
/// Assignments are made [from left to right](https://dev.mysql.com/doc/refman/8.0/en/insert-on-duplicate.html), and
/// each sees those before it. So all columns before `claim` test whether the row is free; from then on the claim itself
/// tells, which costs the server a tenth of that. Another `since` tells that it held the row before.
const ACQUIRE: &str = "
INSERT INTO {t} (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, label, host, pid)
VALUES (?, ?, {us}, LAST_INSERT_ID({first} + ?), ?, ?, {now}, {now} + ?, 0, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  token = IF({free}, LAST_INSERT_ID(IF({again}, token, GREATEST(token + ?, VALUES(token)))), token + LAST_INSERT_ID(0)),
  mode = IF({free}, IF({again}, mode, VALUES(mode)), mode),
  since = IF({free}, IF({again}, since, VALUES(since)), since),
  claim = IF({free}, VALUES(claim), claim),
  awaited_until = IF(claim = VALUES(claim) AND (VALUES(mode) IS NULL OR awaited_by = VALUES(claim)), 0, awaited_until),
  awaited_by = IF(claim = VALUES(claim) AND (VALUES(mode) IS NULL OR awaited_by = VALUES(claim)), NULL, awaited_by),
  label = IF(claim = VALUES(claim), VALUES(label), label),
  host = IF(claim = VALUES(claim), VALUES(host), host),
  pid = IF(claim = VALUES(claim), VALUES(pid), pid),
  version = IF(claim = VALUES(claim), version + 1, version),
  expires_at = IF(claim = VALUES(claim),
    IF(since <> VALUES(since), GREATEST(expires_at, VALUES(expires_at)), VALUES(expires_at)), expires_at)";

/// For a free row: less work for the server. A claim that already holds the row, and asks again because the answer was
/// lost, is left to the record, which has its token. A claim that can share the name does not touch the mark of an
/// exclusive waiter.
const TAKE_FREE: &str = "
UPDATE {t} AS held SET
  version = version + 1,
  token = LAST_INSERT_ID(GREATEST(token + 1, {us}) + ?),
  claim = ?,
  mode = ?,
  since = {now},
  expires_at = {now} + ?,
  awaited_until = IF(mode IS NULL, 0, awaited_until),
  awaited_by = IF(mode IS NULL, NULL, awaited_by),
  label = ?,
  host = ?,
  pid = ?
WHERE prefix = ? AND name = ? AND {vacant} AND (? IS NULL OR awaited_by IS NULL OR awaited_until < {now})";

/// Whether the row is free. A claim that wants it exclusively may have it then.
const VACANT: &str = "held.record IS NULL AND (held.claim IS NULL OR held.expires_at < {now})";

/// The change of `TAKE_FREE` for an exclusive claim, for each row.
const TAKE_EACH: &str = "
  held.version = held.version + 1,
  held.token = GREATEST(held.token + 1, {us}) + asked.more,
  held.claim = asked.claim,
  held.mode = NULL,
  held.since = {now},
  held.expires_at = {now} + asked.lease,
  held.awaited_until = 0,
  held.awaited_by = NULL,
  held.label = asked.label,
  held.host = asked.host,
  held.pid = asked.pid";

/// Many rows in one transaction, which never waits for a row. An update cannot skip locked rows, and returns nothing.
/// So a look that locks comes before it, and another look after it: no other client changes a locked row. All of that
/// is one message, which the server carries out to its end: a client that freezes meanwhile leaves no row locked. An
/// error ends the message, and the client must end the transaction.
const MANY: &str = "
START TRANSACTION;
SELECT GROUP_CONCAT(asked.number) INTO @tenure_found FROM {rows} WHERE {which}
FOR UPDATE /*!80000 OF held */ SKIP LOCKED;
UPDATE {rows} SET {change} WHERE FIND_IN_SET(asked.number, @tenure_found);
SELECT asked.name, CAST({told} AS UNSIGNED) FROM {rows} WHERE FIND_IN_SET(asked.number, @tenure_found);
COMMIT";

/// The requests, numbered, each with its row.
const ROWS: &str = "JSON_TABLE(@tenure_asked, '$[*]' COLUMNS (
  number FOR ORDINALITY,
  {asked},
  claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$.claim',
  lease BIGINT PATH '$.lease',
  label VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.label',
  host VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.host',
  pid BIGINT PATH '$.pid',
  more BIGINT PATH '$.more'
)) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = @tenure_prefix AND held.name = CAST(asked.name AS BINARY)";

/// 0 without a waiter, and otherwise the bell.
const AWAITED: &str = "IF(awaited_until >= {now}, {bell}, 0)";

/// A waiter's bell. 1 is no bell.
const BELL: &str = "COALESCE(IF(awaited_bell > 1, awaited_bell, NULL), 1)";

const RELEASE: &str = "
UPDATE {t} SET
  version = version + 1,
  awaited_until = IF(LAST_INSERT_ID({awaited}), awaited_until, awaited_until),
  expires_at = {now},
  claim = NULL
WHERE prefix = ? AND name = ? AND claim = ? AND expires_at >= {now} AND record IS NULL";

/// The change of `RELEASE`, for each row. The mark stays as it is.
const RELEASE_EACH: &str = "held.version = held.version + 1, held.expires_at = {now}, held.claim = NULL";

/// Whether the claim that asks holds the row.
const OWN: &str =
    "held.claim = CAST(asked.claim AS BINARY) AND held.expires_at >= {now} AND held.record IS NULL";

/// Whether or not the claim has expired. If it waited for exclusive mode, it no longer keeps others out. The name still
/// counts as awaited, because others may have left no mark beside its own. The version is raised in any case, so that a
/// late write of the claim changes nothing.
const WITHDRAW: &str = "
UPDATE {t} SET
  version = version + 1,
  awaited_until = IF(
    LAST_INSERT_ID(IF(awaited_until >= {now} AND (claim = ? OR awaited_by = ?), {bell}, 0)), awaited_until, awaited_until
  ),
  expires_at = IF(claim = ?, {now}, expires_at),
  claim = NULLIF(claim, ?),
  awaited_by = NULLIF(awaited_by, ?)
WHERE prefix = ? AND name = ? AND record IS NULL";

/// A string of a JSON object, as a column.
const ASKED: &str = "name VARCHAR(201) CHARACTER SET utf8mb4 PATH '$.name'";

/// The locks end with the statement. An update itself cannot skip locked rows. (MySQL must be told not to lock rows of
/// the list of names; for MariaDB, which does not know these words, they are a comment.)
const UNLOCKED: &str = "
SELECT CONVERT(held.name USING utf8mb4), {now}
FROM JSON_TABLE(?, '$[*]' COLUMNS ({asked})) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
FOR UPDATE /*!80000 OF held */ SKIP LOCKED";

const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
  {asked}, claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$.claim', lease BIGINT PATH '$.lease',
  mode VARCHAR(100) CHARACTER SET utf8mb4 PATH '$.mode'
)) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
SET held.version = held.version + 1, held.expires_at = {now} + asked.lease
WHERE {own} AND (held.mode IS NULL OR held.mode = CAST(asked.mode AS BINARY))";

/// The columns of a row that are read.
const COLUMNS: &str = "held.version, held.token, held.claim, held.mode, held.since, held.expires_at,
  held.awaited_until, held.awaited_by, held.awaited_bell, held.label, held.host, held.pid, held.record";

const READ: &str = "
SELECT {now}, COALESCE((SELECT floor.token FROM {t} AS floor WHERE floor.prefix = '' AND floor.name = ''), 0), {columns}
FROM (SELECT 1) AS one LEFT JOIN {t} AS held ON held.prefix = ? AND held.name = ?";

const READ_ALL: &str = "
SELECT {now}, 0, {columns}, CONVERT(held.name USING utf8mb4)
FROM JSON_TABLE(?, '$[*]' COLUMNS ({asked})) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)";

const SWAP: &str = "
UPDATE {t} SET
  version = version + 1,
  token = ?,
  claim = ?,
  mode = ?,
  since = ?,
  expires_at = ?,
  awaited_until = ?,
  awaited_by = ?,
  awaited_bell = ?,
  label = ?,
  host = ?,
  pid = ?,
  record = ?
WHERE prefix = ? AND name = ? AND version = ?";

/// A row that was created meanwhile stays as it is.
const INSERT: &str = "
INSERT INTO {t} (
  prefix, name, version, token, claim, mode, since, expires_at, awaited_until, awaited_by, awaited_bell, label,
  host, pid, record
)
VALUES (?, ?, LAST_INSERT_ID({us}), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE version = version + LAST_INSERT_ID(0)";

const SWAP_ALL: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
  {asked},
  was BIGINT PATH '$.was',
  latest BIGINT PATH '$.latest',
  token BIGINT PATH '$.token',
  claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$.claim',
  mode VARCHAR(100) CHARACTER SET utf8mb4 PATH '$.mode',
  since BIGINT PATH '$.since',
  expires_at BIGINT PATH '$.expires_at',
  awaited_until BIGINT PATH '$.awaited_until',
  awaited_by VARCHAR(36) CHARACTER SET utf8mb4 PATH '$.awaited_by',
  awaited_bell BIGINT PATH '$.awaited_bell',
  label VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.label',
  host VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.host',
  pid BIGINT PATH '$.pid',
  record LONGTEXT CHARACTER SET utf8mb4 PATH '$.record'
)) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
SET
  held.token = asked.token,
  held.claim = asked.claim,
  held.mode = asked.mode,
  held.since = asked.since,
  held.expires_at = asked.expires_at,
  held.awaited_until = asked.awaited_until,
  held.awaited_by = asked.awaited_by,
  held.awaited_bell = asked.awaited_bell,
  held.label = asked.label,
  held.host = asked.host,
  held.pid = asked.pid,
  held.record = asked.record,
  held.version = held.version + 1
WHERE held.version = asked.was AND {now} <= asked.latest";

/// A mark goes with the next grant. A claim that had it, or waited beside it, must leave another: without a mark, no
/// waiter is told of the next release.
const CHANGED: &str = "
SELECT CONVERT(held.name USING utf8mb4), held.version
FROM JSON_TABLE(?, '$[*]' COLUMNS ({asked})) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
WHERE held.claim IS NULL OR held.expires_at < {now} OR held.mode IS NOT NULL OR held.record IS NOT NULL
  OR held.awaited_by IS NULL";

/// Leaves out latches and the floor: their keys sort before all names.
const LIST: &str = "
SELECT {now}, 0, {columns}, CONVERT(held.name USING utf8mb4) FROM {t} AS held
WHERE held.prefix = ? AND held.name >= ? AND held.name < ?
  AND (held.claim IS NOT NULL AND held.expires_at >= {now} OR held.record IS NOT NULL)
ORDER BY held.name";

const PREPARE_SWEEP: &str = "
INSERT IGNORE INTO {t} (prefix, name, version, token, since, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, 0, {now}, 0, 0, '', 0)";

/// Leaves out rows whose tokens no clock has reached, because another program damaged them: once they were swept, all
/// new names would have to come after them.
const FIND_IDLE: &str = "
SELECT CONVERT(prefix USING utf8mb4), CONVERT(name USING utf8mb4), token FROM {t}
WHERE (prefix > ? OR (prefix = ? AND name > ?)) AND name <> '' AND expires_at < {now} - ?
  AND token < 4611686018427387904
ORDER BY prefix, name LIMIT ?";

/// Their greatest token was noted before, so it need not be compared here.
const DELETE_IDLE: &str = "
DELETE idle FROM JSON_TABLE(?, '$[*]' COLUMNS (
  prefix VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.prefix', {asked}
)) AS found
STRAIGHT_JOIN {t} AS idle ON idle.prefix = CAST(found.prefix AS BINARY) AND idle.name = CAST(found.name AS BINARY)
WHERE idle.expires_at < {now} - ?";
