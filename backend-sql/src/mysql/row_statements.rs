//! The statements of row locks.

use crate::{statement::Statement, table::TablePath};
use tenure_core::{ClaimId, Error};

/// All of them, for one table; `?` stand in the order that is told. Only `lock` and `try_lock` belong in a transaction; each
/// of the others commits by itself.
pub(super) struct RowStatements {
    pub(super) create: Statement,
    /// Prefix, name. A row once it is locked; none when there is none.
    pub(super) lock: Statement,
    /// The same, and an error when it is locked already. (`SKIP LOCKED` would look on behind the row, and lock that gap.)
    pub(super) try_lock: Statement,
    /// Prefix, name. A row when it is there, locked or not.
    pub(super) exists: Statement,
    /// How long to wait, in seconds. Whoever makes rows comes alone.
    pub(super) begin_making: Statement,
    /// Prefix, name.
    pub(super) make: Statement,
    pub(super) end_making: Statement,
    /// Prefix, name, claim, label, host, pid. The last insert id is the token.
    pub(super) note: Statement,
    /// A mark. The number of the connection that has it, if one has.
    pub(super) marked: Statement,
    /// A connection's number. Ends it.
    pub(super) kill: Statement,
    /// Prefix, name, claim. A row when it was put out by force.
    pub(super) was_forced: Statement,
    /// Prefix, name.
    pub(super) holders: Statement,
    /// Prefix, the first name, the first name beyond the last.
    pub(super) list: Statement,
    /// Prefix, name, claim.
    pub(super) force: Statement,
    /// The server's version.
    pub(super) version: Statement,
}

/// The DDL of the table `table` of row locks, which may be `database.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::mysql_row_schema("app.tenure_row_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS `app`.`tenure_row_locks`"));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn mysql_row_schema(table: &str) -> Result<String, Error> {
    TablePath::new(table).map(|table| schema(&table))
}

/// A name has two rows, because nobody can change the one that its holder has locked, and what the holder changed in its
/// own transaction would be undone with it.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('`');
    format!(
        r"CREATE TABLE IF NOT EXISTS {table} (
  prefix      VARBINARY(200) NOT NULL, -- the namespace
  name        VARBINARY(200) NOT NULL, -- what is locked
  part        TINYINT        NOT NULL, -- 0: the row that the holder locks; 1: what is told of the last grant
  token       BIGINT,                  -- its fencing token
  claim       VARBINARY(36),           -- who was granted it; the holder, if a connection has the mark of it
  acquired_at DATETIME(6),             -- since when, UTC, by the server's clock
  forced      VARBINARY(36),           -- the claim that was last put out by force
  label       VARCHAR(200),            -- what people are told about the holder
  host        VARCHAR(255),
  pid         BIGINT,
  PRIMARY KEY (prefix, name, part)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

/// The name of the user-level lock that a claim's connection has, from before its transaction until after it: others see
/// by it that the claim's transaction stands, and which connection has it.
pub(super) fn mark(claim: ClaimId) -> String {
    format!("tenure/{claim}")
}

impl RowStatements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('`');
        let fill =
            |text: &str| Statement::new(text.replace("{t}", &name).replace("{now}", "UTC_TIMESTAMP(6)"));
        Self {
            create: Statement::new(schema(table)),
            lock: fill(&format!("{ROW} FOR UPDATE")),
            try_lock: fill(&format!("{ROW} FOR UPDATE NOWAIT")),
            exists: fill(ROW),
            begin_making: fill("SELECT GET_LOCK('tenure/making', ?)"),
            make: fill("INSERT IGNORE INTO {t} (prefix, name, part) VALUES (?, ?, 0)"),
            end_making: fill("SELECT RELEASE_LOCK('tenure/making')"),
            note: fill(NOTE),
            marked: fill("SELECT CAST(IS_USED_LOCK(?) AS SIGNED)"),
            kill: fill("KILL ?"),
            was_forced: fill("SELECT 1 FROM {t} WHERE prefix = ? AND name = ? AND part = 1 AND forced = ?"),
            holders: fill(&format!("{TELL} WHERE prefix = ? AND name = ? AND {LIVE}")),
            list: fill(&format!(
                "{TELL} WHERE prefix = ? AND name >= ? AND name < ? AND {LIVE} ORDER BY name"
            )),
            force: fill(
                "UPDATE {t} SET forced = claim WHERE prefix = ? AND name = ? AND part = 1 AND claim = ?",
            ),
            version: fill("SELECT VERSION()"),
        }
    }
}

const ROW: &str = "SELECT 1 FROM {t} WHERE prefix = ? AND name = ? AND part = 0";

/// Asked once the row is locked, so each token of a name is greater than those before. It is no part of the holder's
/// transaction, whose end undoes all that it did.
const NOTE: &str = "
INSERT INTO {t} (prefix, name, part, token, claim, acquired_at, label, host, pid)
VALUES (?, ?, 1, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})), ?, {now}, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  token = LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))),
  claim = VALUES(claim),
  acquired_at = VALUES(acquired_at),
  label = VALUES(label),
  host = VALUES(host),
  pid = VALUES(pid)";

const TELL: &str = "
SELECT CONVERT(name USING utf8mb4), CONVERT(claim USING utf8mb4), token,
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) / 1000) AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, acquired_at, {now}) / 1000) AS SIGNED),
  label, host, pid
FROM {t}";

/// Whether the last grant's transaction stands.
const LIVE: &str = "part = 1 AND IS_USED_LOCK(CONCAT('tenure/', CONVERT(claim USING utf8mb4))) IS NOT NULL";
