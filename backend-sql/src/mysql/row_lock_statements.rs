//! The statements of row locks and advisory locks.

use crate::{
    session_locks::{requests::QUEUES_FOR, rows::hexadecimal},
    statement::Statement,
    table::TablePath,
};
use std::time::Duration;
use tenure_core::{Claim, ClaimId, Error};

/// What keeps other claims out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row.
    Row,
    /// A user-level lock whose name is made from database, table, prefix and name.
    Hashed,
    /// The user-level lock of the same name.
    Named,
}

/// All statements for one table. Parameters (`?`) are in the order given. Only those that lock belong in a transaction;
/// each of the others commits by itself.
pub(super) struct RowStatements {
    pub(super) create: Statement,
    /// Sent once on each connection for transactions, so that nothing is parsed between a wait and its answer.
    pub(super) prepare: String,
    /// A row with the table's secret, empty if it has none. Sent after [`prepare`](Self::prepare) in one message.
    pub(super) secret: String,
    /// A new secret. Changes nothing if there is one.
    pub(super) make_secret: Statement,
    /// See [`take`](Self::take).
    take: String,
    /// Prefix, name. A row once it is locked; none if there is none.
    pub(super) lock: Statement,
    /// Like `lock`, but an error if it is already locked. (`SKIP LOCKED` would look further, and lock the gap after the
    /// row.)
    pub(super) try_lock: Statement,
    /// Prefix, name. A row if it exists, locked or not.
    pub(super) exists: Statement,
    /// How long to wait, in seconds. Only one client at a time makes rows.
    pub(super) begin_making: Statement,
    /// Prefix, name.
    pub(super) make: Statement,
    pub(super) end_making: Statement,
    /// Prefix, name, token, claim, label, host, pid. The last insert id is the token if it was noted, now or before;
    /// otherwise 0, and always 0 if the table has triggers.
    pub(super) note: Statement,
    /// Prefix, name, claim. A row if it was noted, and no other after it.
    pub(super) noted: Statement,
    /// Prefix, the first name, the first name beyond the last. A row if one of these names is held by a claim without a
    /// note.
    pub(super) unnoted: Statement,
    /// The name of a user-level lock. The connection that has it, if one does.
    pub(super) used: Statement,
    /// A mark. Whether a connection has it.
    pub(super) marked: Statement,
    /// Prefix, name, claim. A row if it was released by force.
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

/// A name has two rows: no other client can change the one that its holder has locked, and the holder's own changes
/// would be undone with its transaction.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('`');
    format!(
        r"CREATE TABLE IF NOT EXISTS {table} (
  prefix      VARBINARY(200) NOT NULL, -- the namespace
  name        VARBINARY(200) NOT NULL, -- the lock's name
  part        TINYINT        NOT NULL, -- 0: the row that the holder locks; 1: the note of the last grant; 2: the secret
  token       BIGINT,                  -- the fencing token of the last grant
  claim       VARBINARY(36),           -- the claim of the last grant; it holds the lock while a connection has its mark; in part 2, the secret
  acquired_at DATETIME(6),             -- when it was granted, in UTC, by the server's clock
  forced      VARBINARY(369),          -- the last claims that were released by force
  label       VARCHAR(200),            -- the holder's label, for people
  host        VARCHAR(255),
  pid         BIGINT,
  PRIMARY KEY (prefix, name, part)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

/// The name of the user-level lock that a claim's connection holds from before its transaction until after it. It shows
/// others that the claim's transaction is alive, and on which connection.
pub(super) fn mark(claim: ClaimId) -> String {
    format!("tenure/{claim}")
}

/// The name of a second user-level lock, which the holder's connection holds from when the row is locked until shortly
/// before it is unlocked. It shows others that a name is held even if its holder is not noted yet. Two names may have
/// the same digest; then a claim may wait in vain for a moment.
fn held(table: &TablePath, secret: &str) -> String {
    let schema = table.schema().map_or_else(|| "DATABASE()".to_owned(), |schema| format!("'{schema}'"));
    let place = format!("CONCAT({schema}, '/{}')", table.table.as_str());
    format!(
        "CONCAT('tenure+', SHA2(CONCAT({secret}, '/', IF(@@lower_case_table_names = 0, {place}, LOWER({place})), \
         '/', HEX({{prefix}}), '/', HEX({{name}})), 224))"
    )
}

/// User-level locks belong to the whole server, and any user who knows a name can take its lock. So names that do not
/// contain a claim contain a secret that only readers of the table know: a random text, in a row of its own.
const SECRET: &str = "COALESCE((SELECT CONVERT(claim USING utf8mb4) FROM {t} \
    WHERE prefix = X'' AND name = X'' AND part = 2), '')";

/// Ends the connection that has the claim's mark when the statement is carried out. One that had it before may hold
/// another lock by now. If none has it, that is an error: no connection has the number -1. The mark is part of the text,
/// because MySQL 9 takes no parameter there.
pub(super) fn kill(claim: ClaimId) -> Statement {
    Statement::new(format!("KILL COALESCE(IS_USED_LOCK('{}'), -1)", mark(claim)))
}

impl RowStatements {
    pub(super) fn new(table: &TablePath, kind: Kind) -> Self {
        // Not even a secret of the table may change the lock's name while it is held.
        let key = |secret| match kind {
            Kind::Row => held(table, secret),
            Kind::Hashed => held(table, "''"),
            Kind::Named => NAMED.to_owned(),
        };
        let (take, unnoted, locked) = match kind {
            Kind::Row => (BEGIN_AND_TAKE, UNNOTED, "IS NOT NULL"),
            Kind::Hashed | Kind::Named => (BEGIN_AND_LOCK, UNNOTED_LOCK, "= 1"),
        };
        let name = table.quoted('`');
        let fill =
            |text: &str| Statement::new(text.replace("{t}", &name).replace("{now}", "UTC_TIMESTAMP(6)"));
        let prepare = |called: &str, text: &str| {
            let text = text.replace("{t}", &name).replace("{us}", MICROS).replace('\'', "''");
            format!("PREPARE {called} FROM '{text}';")
        };
        let of_row = key(SECRET).replace("{prefix}", "held.prefix").replace("{name}", "held.name");
        let unnoted = unnoted.replace("{held}", &of_row);
        let live = match kind {
            Kind::Row => LIVE.to_owned(),
            // A claim that was noted may wait again.
            _ => format!(
                "{LIVE} AND IS_USED_LOCK({}) <=> IS_USED_LOCK(CONCAT('tenure/', CONVERT(claim USING utf8mb4)))",
                key("''").replace("{prefix}", "prefix").replace("{name}", "name")
            ),
        };
        let making = format!("CONCAT('tenure/making/', {SECRET})");
        Self {
            create: Statement::new(schema(table)),
            prepare: [
                PARAMETERS,
                &prepare("tenure_wait", &format!("{TAKE} FOR UPDATE")),
                &prepare("tenure_try", &format!("{TAKE} FOR UPDATE NOWAIT")),
                &prepare("tenure_last", &LAST.replace("{locked}", locked)),
                &prepare("tenure_end", GIVE_BACK),
            ]
            .concat(),
            secret: format!("SET @tenure_secret = {SECRET}; SELECT @tenure_secret").replace("{t}", &name),
            make_secret: fill("INSERT IGNORE INTO {t} (prefix, name, part, claim) VALUES (X'', X'', 2, ?)"),
            take: take.replace("{held}", &key("@tenure_secret")).replace("{us}", MICROS),
            lock: fill(&format!("{ROW} FOR UPDATE")),
            try_lock: fill(&format!("{ROW} FOR UPDATE NOWAIT")),
            exists: fill(ROW),
            begin_making: fill(&format!("SELECT GET_LOCK({making}, ?)")),
            make: fill("INSERT IGNORE INTO {t} (prefix, name, part) VALUES (?, ?, 0)"),
            end_making: fill("SELECT RELEASE_ALL_LOCKS()"),
            note: fill(&NOTE.replace("{later}", LATER)),
            noted: fill("SELECT 1 FROM {t} WHERE prefix = ? AND name = ? AND part = 1 AND claim = ?"),
            unnoted: fill(&unnoted),
            used: fill("SELECT CAST(IS_USED_LOCK(?) AS SIGNED)"),
            marked: fill("SELECT IS_USED_LOCK(?) IS NOT NULL"),
            was_forced: fill(
                "SELECT 1 FROM {t} WHERE prefix = ? AND name = ? AND part = 1 AND LOCATE(?, forced) > 0",
            ),
            holders: fill(&format!("{TELL} WHERE prefix = ? AND name = ? AND {live}")),
            list: fill(&format!(
                "{TELL} WHERE prefix = ? AND name >= ? AND name < ? AND {live} ORDER BY name"
            )),
            force: fill(&format!(
                "UPDATE {{t}} SET forced = {FORCED} WHERE prefix = ? AND name = ? AND part = 1 AND claim = ?"
            )),
            version: fill("SELECT VERSION()"),
        }
    }

    /// Begins a transaction that shows its claim, locks the row, and then returns the parts of its
    /// [`Issue`](crate::session_locks::issue::Issue): a row if it was locked. All of it is one message, but each
    /// statement sees what was committed before it, so the last one sees the note of the previous holder. The server
    /// counts the lease in whole seconds.
    pub(super) fn take(&self, prefix: &str, claim: &Claim, lease: Duration, waits: bool) -> String {
        let text = |text| format!("X'{}'", hexadecimal(text));
        self.take
            .replace("{lease}", &lease.as_millis().div_ceil(1000).to_string())
            .replace("{mark}", &mark(claim.id))
            .replace("{prefix}", &text(prefix))
            .replace("{name}", &text(claim.name.as_str()))
            .replace("{how}", if waits { "wait" } else { "try" })
            .replace("{seconds}", &if waits { QUEUES_FOR.as_secs() } else { 0 }.to_string())
    }
}

const ROW: &str = "SELECT 1 FROM {t} WHERE prefix = ? AND name = ? AND part = 0";

/// The parameters of the server's prepared statements take the types of these.
const PARAMETERS: &str =
    "SET @tenure_prefix = X'', @tenure_name = X'', @tenure_held = '', @tenure_locked = 1, @tenure_begun = 0;";

/// The transaction begins with the first statement that needs one, and ends with the mode. If the claim waited before, on
/// a connection that was killed, that one may have the mark for a moment longer.
const BEGIN_AND_TAKE: &str = "\
SET SESSION wait_timeout = {lease}, SESSION autocommit = 0, @tenure_mark = GET_LOCK('{mark}', 1), \
@tenure_begun = {us}, @tenure_prefix = {prefix}, @tenure_name = {name}, @tenure_held = {held}, @tenure_locked = NULL; \
EXECUTE tenure_{how} USING @tenure_held, @tenure_prefix, @tenure_name; \
EXECUTE tenure_last USING @tenure_prefix, @tenure_name";

/// Takes the second user-level lock, which keeps others out here, where no row does. The table has the note of the last
/// grant.
const BEGIN_AND_LOCK: &str = "\
SET SESSION wait_timeout = {lease}, @tenure_mark = GET_LOCK('{mark}', 1), @tenure_begun = {us}, \
@tenure_prefix = {prefix}, @tenure_name = {name}, @tenure_held = {held}; \
SET @tenure_locked = GET_LOCK(@tenure_held, {seconds}); \
EXECUTE tenure_last USING @tenure_prefix, @tenure_name";

/// The name under which programs without tenure take the user-level lock.
const NAMED: &str = "CONVERT({name} USING utf8mb4)";

/// The previous holder released the mark before it ended its transaction. One that was killed may have it for a moment
/// longer; then the row is locked without a mark.
const TAKE: &str = "
SELECT GET_LOCK(?, 1) INTO @tenure_locked
FROM {t} WHERE prefix = ? AND name = ? AND part = 0";

/// One row, whether or not there was a note, and one column, because the server describes each column to the client:
/// the time, how long before that the transaction began, whether the server or its `InnoDB` is read-only (that one locks
/// no row), and the last token, if there was one.
const LAST: &str = "
SELECT CONCAT_WS(' ', {us}, {us} - CAST(@tenure_begun AS SIGNED), IF(@@GLOBAL.innodb_read_only, 1, @@GLOBAL.read_only), MAX(token))
FROM {t} WHERE prefix = ? AND name = ? AND part = 1 HAVING @tenure_locked {locked}";

/// Releases the marks and then ends the transaction, in which nothing was written. The marks are released first,
/// because all values are evaluated before any is set: the next holder gets the row at once and needs one of them.
const GIVE_BACK: &str = "
SET SESSION wait_timeout = DEFAULT, @tenure_marks = RELEASE_ALL_LOCKS(), SESSION autocommit = 1";

/// Ends the transaction, and what belongs to it.
pub(super) const END: &str = "EXECUTE tenure_end";

/// The server's time when it began the statement, in microseconds since 1970.
const MICROS: &str = "CAST(@@timestamp * 1000000 AS SIGNED)";

/// It is not part of the holder's transaction, which is always rolled back. A note that arrives after a later holder's
/// changes nothing: assignments are made from left to right, so all but the last two compare with the old values. If an
/// earlier grant of the claim was ended by force, that is not true of this one.
const NOTE: &str = "
INSERT INTO {t} (prefix, name, part, token, claim, acquired_at, label, host, pid)
VALUES (?, ?, 1, LAST_INSERT_ID(?), ?, {now}, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  acquired_at = IF({later}, VALUES(acquired_at), acquired_at),
  label = IF({later}, VALUES(label), label),
  host = IF({later}, VALUES(host), host),
  pid = IF({later}, VALUES(pid), pid),
  forced = IF(token < VALUES(token), REPLACE(forced, VALUES(claim), ''), forced),
  claim = IF({later}, VALUES(claim), claim),
  token = IF(claim <=> VALUES(claim), LAST_INSERT_ID(VALUES(token)), token + LAST_INSERT_ID(0))";

const LATER: &str = "(COALESCE(token, 0) < VALUES(token) OR claim <=> VALUES(claim))";

const UNNOTED: &str = "
SELECT 1 FROM {t} AS held
LEFT JOIN {t} AS last ON last.prefix = held.prefix AND last.name = held.name AND last.part = 1
WHERE held.prefix = ? AND held.name >= ? AND held.name < ? AND held.part = 0
  AND IS_USED_LOCK({held}) IS NOT NULL
  AND NOT IS_USED_LOCK({held}) <=> IS_USED_LOCK(CONCAT('tenure/', COALESCE(CONVERT(last.claim USING utf8mb4), '')))
LIMIT 1";

const UNNOTED_LOCK: &str = "
SELECT 1 FROM {t} AS held
WHERE held.prefix = ? AND held.name >= ? AND held.name < ? AND held.part = 1
  AND IS_USED_LOCK({held}) IS NOT NULL
  AND NOT IS_USED_LOCK({held}) <=> IS_USED_LOCK(CONCAT('tenure/', COALESCE(CONVERT(held.claim USING utf8mb4), '')))
LIMIT 1";

const TELL: &str = "
SELECT CONVERT(name USING utf8mb4), CONVERT(claim USING utf8mb4), token,
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) / 1000) AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, acquired_at, {now}) / 1000) AS SIGNED),
  label, host, pid
FROM {t}";

/// Whether the last grant's transaction is alive.
const LIVE: &str = "part = 1 AND IS_USED_LOCK(CONCAT('tenure/', CONVERT(claim USING utf8mb4))) IS NOT NULL";

/// Keeps the last ten, because earlier ones may not have looked yet.
const FORCED: &str = "IF(LOCATE(claim, forced) > 0, forced, LEFT(CONCAT_WS(' ', claim, forced), 369))";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::{HolderInfo, Mode, Name};

    /// A hand-off takes two more: the note, and the end of the transaction.
    #[test]
    fn lock_takes_three_statements() {
        let claim = Claim {
            id: ClaimId::new(),
            name: Name::new("a; b {name}").unwrap(),
            mode: Mode::Exclusive,
            lease: Duration::from_millis(1001),
            waits: true,
            reserve: 0,
            holder: Arc::new(HolderInfo::here(None)),
        };
        let table = TablePath::new("t").unwrap();
        for kind in [Kind::Row, Kind::Hashed, Kind::Named] {
            let statements = RowStatements::new(&table, kind);
            for waits in [true, false] {
                let message = statements.take("", &claim, claim.lease, waits);
                assert_eq!(message.split(';').count(), 3, "{message}");
                assert!(!message.contains('{') && message.contains("wait_timeout = 2,"), "{message}");
            }
        }
    }
}
