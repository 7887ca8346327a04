//! The statements, each of which commits by itself.

use crate::{statement::Statement, table::TablePath};
use tenure_core::Error;

/// All of them, for one table. Durations are in milliseconds; `?` stand in the order that is told.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// Prefix, name, claim, lease, label, host, pid. The last insert id is the token, or 0 when another holds the name.
    pub(super) acquire: Statement,
    /// Prefix, name, claim. One row when released; the last insert id is not 0 when the name was awaited.
    pub(super) release: Statement,
    /// Prefix, name, claim.
    pub(super) withdraw: Statement,
    /// A JSON array of `[name, claim, lease]`, prefix. As many rows as were renewed.
    pub(super) renew: Statement,
    /// A JSON array of names, prefix. What stands in their rows.
    pub(super) look: Statement,
    /// For how long the mark stands, prefix, name, claim, the same again. Marks the row, unless it is marked for long enough.
    pub(super) mark: Statement,
    /// Prefix, name.
    pub(super) holders: Statement,
    /// Prefix, the first name, the first name beyond the last.
    pub(super) list: Statement,
    /// Prefix, name, claim. One row when its claim was ended.
    pub(super) force: Statement,
    /// How long ago the idle rows were swept.
    pub(super) last_sweep: Statement,
    /// Makes the row that tells it.
    pub(super) prepare_sweep: Statement,
    /// How long ago the last sweep must be. One row when it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// Prefix, prefix, name to go on after, for how long a row must have been idle, how many.
    pub(super) find_idle: Statement,
    /// A token.
    pub(super) raise_floor: Statement,
    /// A JSON array of `[prefix, name]`, for how long a row must have been idle. As many rows as were deleted.
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

/// Keys are binary, because every collation of MySQL's would take some different names for the same: by case, by accents, or
/// by spaces at the end. The row whose name is empty, which no lock has, keeps the greatest token of all rows that were swept,
/// and when. `InnoDB`, because only rows that are locked one by one and survive a crash are of use.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('`');
    format!(
        r"CREATE TABLE IF NOT EXISTS {table} (
  prefix        VARBINARY(200) NOT NULL, -- the namespace
  name          VARBINARY(200) NOT NULL, -- what is locked
  token         BIGINT         NOT NULL, -- the fencing token of the last grant; stays when the lock is released
  claim         VARBINARY(36),           -- who holds it; NULL when it is free
  acquired_at   DATETIME(6)    NOT NULL, -- since when; all times are UTC, by the server's clock
  expires_at    DATETIME(6)    NOT NULL, -- until when, unless renewed
  awaited_until DATETIME(6)    NOT NULL, -- until then somebody is known to wait for it
  forced        VARBINARY(36),           -- the claim that was last put out by force
  label         VARCHAR(200),            -- what people are told about the holder
  host          VARCHAR(255)   NOT NULL,
  pid           BIGINT         NOT NULL,
  PRIMARY KEY (prefix, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

impl Statements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('`');
        let fill = |text: &str| {
            let text = text.replace("{mine}", "claim = VALUES(claim) AND expires_at >= {now}");
            let text =
                text.replace("{free}", "(claim IS NULL OR claim = VALUES(claim) OR expires_at < {now})");
            let text = text.replace("{left}", "FLOOR(TIMESTAMPDIFF(MICROSECOND, {now}, expires_at) / 1000)");
            Statement::new(text.replace("{t}", &name).replace("{now}", "UTC_TIMESTAMP(6)"))
        };
        Self {
            create: Statement::new(schema(table)),
            acquire: fill(ACQUIRE),
            release: fill(RELEASE),
            withdraw: fill(
                "UPDATE {t} SET claim = NULL, expires_at = {now} WHERE prefix = ? AND name = ? AND claim = ?",
            ),
            renew: fill(RENEW),
            look: fill(LOOK),
            mark: fill(MARK),
            holders: fill(&format!("{TELL} WHERE prefix = ? AND name = ? AND {HELD}")),
            list: fill(&format!(
                "{TELL} WHERE prefix = ? AND name >= ? AND name < ? AND {HELD} ORDER BY name"
            )),
            force: fill(&format!(
                "UPDATE {{t}} SET forced = claim, claim = NULL WHERE prefix = ? AND name = ? AND claim = ? AND {HELD}"
            )),
            last_sweep: fill(
                "SELECT CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, expires_at, {now}) / 1000) AS SIGNED) FROM {t} \
                 WHERE prefix = '' AND name = ''",
            ),
            prepare_sweep: fill(PREPARE_SWEEP),
            begin_sweep: fill(
                "UPDATE {t} SET expires_at = {now} \
                 WHERE prefix = '' AND name = '' AND expires_at <= {now} - INTERVAL ? * 1000 MICROSECOND",
            ),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = GREATEST(token, ?) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// One upsert. `LAST_INSERT_ID(x)` is `x`, and the server sends it back with its answer: the token comes in the same round
/// trip, and 0 when another holds the name.
///
/// Assignments are made [from left to right](https://dev.mysql.com/doc/refman/8.0/en/insert-on-duplicate.html), and each sees
/// those before it. So whether the row is free is asked by all columns before `claim`; from then on the claim itself tells.
const ACQUIRE: &str = "
INSERT INTO {t} (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
VALUES (
  ?, ?,
  LAST_INSERT_ID(GREATEST(
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}),
    1 + COALESCE((SELECT token FROM (SELECT token FROM {t} WHERE prefix = '' AND name = '') AS floor), 0)
  )),
  ?, {now}, {now} + INTERVAL ? * 1000 MICROSECOND, '1970-01-01', ?, ?, ?
)
ON DUPLICATE KEY UPDATE
  token = IF({free}, LAST_INSERT_ID(IF({mine}, token, GREATEST(token + 1, VALUES(token)))), token + LAST_INSERT_ID(0)),
  acquired_at = IF({free}, IF({mine}, acquired_at, VALUES(acquired_at)), acquired_at),
  awaited_until = IF({free}, VALUES(awaited_until), awaited_until),
  label = IF({free}, VALUES(label), label),
  host = IF({free}, VALUES(host), host),
  pid = IF({free}, VALUES(pid), pid),
  claim = IF({free}, VALUES(claim), claim),
  expires_at = IF(claim = VALUES(claim), VALUES(expires_at), expires_at)";

const RELEASE: &str = "
UPDATE {t} SET
  awaited_until = IF(LAST_INSERT_ID(awaited_until >= {now}), awaited_until, awaited_until),
  claim = NULL,
  expires_at = {now}
WHERE prefix = ? AND name = ? AND claim = ? AND expires_at >= {now}";

const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
  name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$[0]',
  claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$[1]',
  lease BIGINT PATH '$[2]'
)) AS asked
STRAIGHT_JOIN {t} AS held
  ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY) AND held.claim = CAST(asked.claim AS BINARY)
SET held.expires_at = {now} + INTERVAL asked.lease * 1000 MICROSECOND
WHERE held.expires_at >= {now}";

const LOOK: &str = "
SELECT CONVERT(held.name USING utf8mb4), CONVERT(claim USING utf8mb4), token, CAST({left} AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, {now}, awaited_until) / 1000) AS SIGNED), CONVERT(forced USING utf8mb4)
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$')) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)";

const MARK: &str = "
UPDATE {t} SET awaited_until = {now} + INTERVAL ? * 1000 MICROSECOND
WHERE prefix = ? AND name = ? AND claim <> ? AND expires_at >= {now}
  AND awaited_until < {now} + INTERVAL ? * 500 MICROSECOND";

const TELL: &str = "
SELECT CONVERT(name USING utf8mb4), CONVERT(claim USING utf8mb4), token,
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) / 1000) AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, acquired_at, {now}) / 1000) AS SIGNED),
  CAST({left} AS SIGNED), label, host, pid
FROM {t}";

const HELD: &str = "claim IS NOT NULL AND expires_at >= {now}";

const PREPARE_SWEEP: &str = "
INSERT IGNORE INTO {t} (prefix, name, token, acquired_at, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, {now}, '1970-01-01', '1970-01-01', '', 0)";

const FIND_IDLE: &str = "
SELECT CONVERT(prefix USING utf8mb4), CONVERT(name USING utf8mb4), token FROM {t}
WHERE (prefix > ? OR (prefix = ? AND name > ?)) AND name <> ''
  AND expires_at < {now} - INTERVAL ? * 1000 MICROSECOND
ORDER BY prefix, name LIMIT ?";

/// The greatest token of them was noted before, so it needs not be compared here.
const DELETE_IDLE: &str = "
DELETE idle FROM JSON_TABLE(?, '$[*]' COLUMNS (
  prefix VARCHAR(200) CHARACTER SET utf8mb4 PATH '$[0]',
  name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$[1]'
)) AS found
STRAIGHT_JOIN {t} AS idle ON idle.prefix = CAST(found.prefix AS BINARY) AND idle.name = CAST(found.name AS BINARY)
WHERE idle.expires_at < {now} - INTERVAL ? * 1000 MICROSECOND";
