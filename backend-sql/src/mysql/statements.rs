//! The statements, each of which commits by itself.

use super::queue::{self, words};
use crate::{statement::Statement, table::TablePath};
use tenure_core::Error;

/// All of them, for one table. Durations are in milliseconds; `?` stand in the order that is told.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// Prefix, name, claim, lease, label, host, pid. The last insert id is the token, or 0 when another holds the name.
    pub(super) acquire: Statement,
    /// Claim, lease, label, host, pid, prefix, name. As `acquire`, on a row that nobody holds.
    pub(super) take_free: Statement,
    /// Prefix, name, claim, lease, label, host, pid, how many permits to take, of how many. As `acquire`, beside others.
    pub(super) share: Statement,
    /// Claim, how many permits to take, of how many, lease, label, host, pid, lease, prefix, name. As `share`, on a row that
    /// nobody holds or waits for.
    pub(super) share_free: Statement,
    /// Prefix, name, claim. One row when it held the name alone and was released; the last insert id is not 0 when the name was
    /// awaited.
    pub(super) release: Statement,
    /// Twice the claim, prefix, name, twice the claim. As `release`, wherever in the row the claim stands.
    pub(super) release_share: Statement,
    /// Prefix, name, claim. As `release_share`, for one who has nobody beside it.
    pub(super) release_last: Statement,
    /// Five times the claim, prefix, name, three times the claim; in fair mode six times and four times.
    pub(super) withdraw: Statement,
    /// A JSON array of names, prefix. Those whose rows nobody has locked just now.
    pub(super) unlocked: Statement,
    /// A JSON array of `[name, leases by claim as a text of JSON]`, prefix. As many rows as have one who was renewed.
    pub(super) renew: Statement,
    /// Twice the claim, prefix, name, twice the claim. One row when its claim is a reader's now.
    pub(super) downgrade: Statement,
    /// Three times the claim, prefix, name, three times the claim. One row when its claim is a writer's now.
    pub(super) upgrade: Statement,
    /// A JSON array of names, prefix. What stands in their rows, and in fair mode the queue.
    pub(super) look: Statement,
    /// For how long the mark stands, whether it wants the name alone, claim, prefix, name, claim, whether it wants the name
    /// alone. One who does not leaves the mark of one who does as it is.
    pub(super) mark: Statement,
    /// Fair mode: claim, how many permits it wants, of how many, claim, for how long it keeps its place, prefix, name, twice the
    /// claim.
    pub(super) stand: Statement,
    /// Prefix, name.
    pub(super) holders: Statement,
    /// Prefix, the first name, the first name beyond the last.
    pub(super) list: Statement,
    /// Prefix, name, claim. One row when its claim was ended.
    pub(super) force: Statement,
    /// Prefix, name. One row when its shares were ended.
    pub(super) force_shares: Statement,
    /// Prefix, name. Who was put out last.
    pub(super) forced: Statement,
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
  claim         VARBINARY(36),           -- who holds it alone; NULL when nobody does
  shares        JSON,                    -- readers or holders of permits, by claim; NULL when there are none
  acquired_at   DATETIME(6)    NOT NULL, -- since when; all times are UTC, by the server's clock
  expires_at    DATETIME(6)    NOT NULL, -- until when, unless renewed; of several, the last
  awaited_until DATETIME(6)    NOT NULL, -- until then somebody is known to wait for it
  awaited_by    VARBINARY(36),           -- the claim of one who waits to hold it alone; nobody new shares it meanwhile
  queue         JSON,                    -- fair mode: those who wait, by claim
  forced        MEDIUMTEXT,              -- who was last put out by force: a claim, or shares
  label         VARCHAR(200),            -- what people are told about one who holds it alone
  host          VARCHAR(255)   NOT NULL,
  pid           BIGINT         NOT NULL,
  PRIMARY KEY (prefix, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

impl Statements {
    /// With a queue, or without.
    pub(super) fn new(table: &TablePath, fair: bool) -> Self {
        let name = table.quoted('`');
        let fill_for = |claim: &str, text: &str| {
            let text = text.replace("{admits}", ADMITS);
            let text = words(fair).iter().fold(text, |text, (word, meaning)| text.replace(word, meaning));
            let text = text.replace("{again}", "claim = VALUES(claim) AND expires_at >= {now}");
            let text = text.replace("{mine}", MINE);
            let text = text.replace("{others}", OTHERS).replace("{last}", LAST).replace("{own}", OWN);
            let text = text.replace("{each}", EACH).replace("{share}", SHARE_OF).replace("{held}", HELD_BY);
            let text = text.replace("{alone}", "CONCAT('$.\"', CONVERT(held.claim USING utf8mb4), '\"')");
            let text = text.replace("{left}", "FLOOR(TIMESTAMPDIFF(MICROSECOND, {now}, expires_at) / 1000)");
            let text = text.replace("{us}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})");
            let text = text.replace("{claim}", claim);
            Statement::new(text.replace("{t}", &name).replace("{now}", "UTC_TIMESTAMP(6)"))
        };
        // Where the claim is asked for, it is a parameter; the upserts have it by name.
        let fill = |text: &str| fill_for("?", text);
        Self {
            create: Statement::new(schema(table)),
            acquire: fill_for("CONVERT(VALUES(claim) USING utf8mb4)", ACQUIRE),
            share: fill_for("asked.me", SHARE),
            take_free: fill(TAKE_FREE),
            share_free: fill(SHARE_FREE),
            release: fill(RELEASE),
            release_share: fill(RELEASE_SHARE),
            release_last: fill(RELEASE_LAST),
            withdraw: fill(WITHDRAW),
            unlocked: fill(UNLOCKED),
            renew: fill(RENEW),
            downgrade: fill(DOWNGRADE),
            upgrade: fill(UPGRADE),
            look: fill(LOOK),
            mark: fill(MARK),
            stand: fill(queue::STAND),
            holders: fill(&format!("{TELL} WHERE prefix = ? AND name = ? AND {HELD}")),
            list: fill(&format!(
                "{TELL} WHERE prefix = ? AND name >= ? AND name < ? AND {HELD} ORDER BY name"
            )),
            force: fill(&format!(
                "UPDATE {{t}} SET forced = claim, claim = NULL WHERE prefix = ? AND name = ? AND claim = ? AND {HELD}"
            )),
            force_shares: fill(&format!(
                "UPDATE {{t}} SET forced = shares, shares = NULL \
                 WHERE prefix = ? AND name = ? AND shares IS NOT NULL AND {HELD}"
            )),
            forced: fill("SELECT forced FROM {t} WHERE prefix = ? AND name = ?"),
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
/// those before it. So whether the row is free is asked by all columns before `claim`; from then on the claim itself tells,
/// which costs the server a tenth of it.
const ACQUIRE: &str = "
INSERT INTO {t} (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
VALUES (
  ?, ?,
  LAST_INSERT_ID(GREATEST(
    {us},
    1 + COALESCE((SELECT token FROM (SELECT token FROM {t} WHERE prefix = '' AND name = '') AS floor), 0)
  )),
  ?, {now}, {now} + INTERVAL ? * 1000 MICROSECOND, '1970-01-01', ?, ?, ?
)
ON DUPLICATE KEY UPDATE
  token = IF({free}, LAST_INSERT_ID(IF({again}, token, GREATEST(token + 1, VALUES(token)))), token + LAST_INSERT_ID(0)),
  acquired_at = IF({free}, IF({again}, acquired_at, VALUES(acquired_at)), acquired_at),
  claim = IF({free}, VALUES(claim), claim),
  awaited_until = IF(claim = VALUES(claim), VALUES(awaited_until), awaited_until),
  awaited_by = IF(claim = VALUES(claim), NULL, awaited_by),
  label = IF(claim = VALUES(claim), VALUES(label), label),
  host = IF(claim = VALUES(claim), VALUES(host), host),
  pid = IF(claim = VALUES(claim), VALUES(pid), pid),
  shares = IF(claim = VALUES(claim), NULL, shares),
  expires_at = IF(claim = VALUES(claim), VALUES(expires_at), expires_at){leaves}";

/// The same where there is a row that nobody holds, and nobody queues for: less work for the server. The claim that holds the row
/// already, and asks again because the answer was lost, is left to the upsert, which has its token.
const TAKE_FREE: &str = "
UPDATE {t} SET
  token = LAST_INSERT_ID(GREATEST(token + 1, {us})),
  claim = ?,
  acquired_at = {now},
  expires_at = {now} + INTERVAL ? * 1000 MICROSECOND,
  awaited_until = '1970-01-01',
  awaited_by = NULL,
  label = ?,
  host = ?,
  pid = ?
WHERE prefix = ? AND name = ? AND {nobody} AND (claim IS NULL OR expires_at < {now})";

/// The path of the claim's share.
const OWN: &str = "CONCAT('$.\"', {claim}, '\"')";

/// Whether it has one whose time is not over. Shares have their times in microseconds.
const MINE: &str = "COALESCE(CAST(JSON_EXTRACT(shares, CONCAT({own}, '.until')) AS SIGNED) >= {us}, 0)";

/// The claims that have shares. (Not the shares themselves, because `JSON_TABLE` does not tell what their keys are.)
const EACH: &str = "JSON_TABLE(JSON_KEYS(shares), '$[*]' COLUMNS (claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS each_one";

/// The path of one of them.
const SHARE_OF: &str = "CONCAT('$.\"', each_one.claim, '\"')";

/// The shares but for the claim's own, and for those whose time is over; `NULL` when none are left.
const OTHERS: &str = "(
  SELECT JSON_OBJECTAGG(each_one.claim, JSON_EXTRACT(shares, {share})) FROM {each}
  WHERE each_one.claim <> {claim} AND CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED) >= {us}
)";

/// When the last of these is over.
const LAST: &str = "(
  SELECT TIMESTAMP'1970-01-01 00:00:00' + INTERVAL MAX(CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED)) MICROSECOND FROM {each}
  WHERE each_one.claim <> {claim} AND CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED) >= {us}
)";

/// Whether one who holds the name beside others is admitted: when nobody holds it alone or waits to, and when all others have
/// its number of permits, and leave enough of them; readers take none of none. Another program may have written anything: who
/// wrote that holds the name in a way that leaves no room.
const ADMITS: &str = "(claim IS NULL OR expires_at < {now}) AND CASE
    WHEN {mine} THEN 1
    WHEN awaited_by IS NOT NULL AND awaited_until >= {now} THEN 0
    WHEN {nobody} THEN 1
    ELSE (
      SELECT COALESCE(SUM(other.take), 0) + asked.take <= asked.total
        AND COALESCE(MIN(COALESCE(other.total = asked.total AND other.take >= 0, 0)), 1)
      FROM {beside}
    )
  END";

/// The same upsert for one who holds the name beside others. It was admitted when its share stands there afterwards, which all
/// columns but the first ask. The mark of those who wait stays: they may wait for more than this one took.
///
/// `JSON_EXTRACT` of everything, because MariaDB takes what comes out of `IF` for a text.
const SHARE: &str = "
INSERT INTO {t} (prefix, name, token, shares, acquired_at, expires_at, awaited_until, host, pid)
SELECT asked.in_prefix, asked.to_name, LAST_INSERT_ID(asked.fresh),
  JSON_OBJECT(asked.me, JSON_OBJECT(
    'take', asked.take, 'of', asked.total, 'token', asked.fresh, 'since', {us}, 'until', {us} + asked.lease * 1000,
    'label', asked.words, 'host', asked.machine, 'pid', asked.process
  )),
  {now}, {now} + INTERVAL asked.lease * 1000 MICROSECOND, '1970-01-01', '', 0
FROM (
  SELECT ? AS in_prefix, ? AS to_name, ? AS me, ? AS lease, ? AS words, ? AS machine, ? AS process, ? AS take, ? AS total,
    GREATEST(
      {us},
      1 + COALESCE((SELECT token FROM (SELECT token FROM {t} WHERE prefix = '' AND name = '') AS floor), 0)
    ) AS fresh
) AS asked
ON DUPLICATE KEY UPDATE
  shares = IF({admits},
    IF(shares IS NULL AND token < VALUES(token), VALUES(shares), JSON_SET(
      COALESCE({others}, '{}'),
      {own},
      JSON_EXTRACT(IF({mine},
        JSON_SET(JSON_EXTRACT(shares, {own}), '$.until', {us} + asked.lease * 1000),
        JSON_SET(JSON_EXTRACT(VALUES(shares), {own}), '$.token', GREATEST(token + 1, VALUES(token)))
      ), '$')
    )),
    shares),
  claim = IF({mine}, NULL, claim),
  token = IF({mine},
    GREATEST(token, LAST_INSERT_ID(CAST(JSON_EXTRACT(shares, CONCAT({own}, '.token')) AS SIGNED))),
    token + LAST_INSERT_ID(0)),
  expires_at = IF({mine},
    IF(JSON_LENGTH(shares) > 1, GREATEST(VALUES(expires_at), COALESCE({last}, VALUES(expires_at))), VALUES(expires_at)),
    expires_at){leaves_beside}";

/// The same where it is simple, which is nearly always: a lone reader costs hardly more than a lock then.
const SHARE_FREE: &str = "
UPDATE {t} SET
  token = LAST_INSERT_ID(GREATEST(token + 1, {us})),
  shares = JSON_OBJECT(?, JSON_OBJECT(
    'take', ?, 'of', ?, 'token', token, 'since', {us}, 'until', {us} + ? * 1000, 'label', ?, 'host', ?, 'pid', ?
  )),
  expires_at = {now} + INTERVAL ? * 1000 MICROSECOND
WHERE prefix = ? AND name = ? AND claim IS NULL AND {nobody} AND (awaited_by IS NULL OR awaited_until < {now})";

/// Who holds the name alone has nobody beside it. The other statement would do too, but servers prepare for its JSON each time,
/// also where there is none.
const RELEASE: &str = "
UPDATE {t} SET
  awaited_until = IF(LAST_INSERT_ID(awaited_until >= {now}), awaited_until, awaited_until),
  expires_at = {now},
  claim = NULL
WHERE prefix = ? AND name = ? AND claim = ? AND expires_at >= {now}";

/// Also those whose time was over go; what is left holds the name for as long as the last of them.
const RELEASE_SHARE: &str = "
UPDATE {t} SET
  awaited_until = IF(LAST_INSERT_ID(awaited_until >= {now}), awaited_until, awaited_until),
  expires_at = IF(JSON_LENGTH(shares) > 1, COALESCE({last}, {now}), {now}),
  claim = NULL,
  shares = IF(JSON_LENGTH(shares) > 1, {others}, NULL)
WHERE prefix = ? AND name = ? AND (claim = ? AND expires_at >= {now} OR {mine})";

/// The same where it is simple: the row has the time of its only share, which the object's text begins with.
const RELEASE_LAST: &str = "
UPDATE {t} SET
  awaited_until = IF(LAST_INSERT_ID(awaited_until >= {now}), awaited_until, awaited_until),
  expires_at = {now},
  shares = NULL
WHERE prefix = ? AND name = ? AND expires_at >= {now}
  AND JSON_LENGTH(shares) = 1 AND shares LIKE CONCAT('{\"', ?, '\"%')";

/// Whether or not its time is over. One that waited to hold the name alone keeps nobody out any more.
const WITHDRAW: &str = "
UPDATE {t} SET
  expires_at = CASE
    WHEN claim = ? THEN {now} WHEN shares IS NULL THEN expires_at ELSE COALESCE({last}, {now})
  END,
  shares = IF(shares IS NULL, NULL, {others}),
  awaited_by = NULLIF(awaited_by, ?),
  claim = NULLIF(claim, ?){withdrawn}
WHERE prefix = ? AND name = ? AND (
  claim = ? OR awaited_by = ? OR JSON_CONTAINS_PATH(shares, 'one', {own}){waited}
)";

/// The locks go with the statement. An update itself cannot leave out what is locked. (MySQL wants to be told that the list of
/// names is no table of which rows are to be locked; MariaDB does not know those words, and takes them for a comment.)
const UNLOCKED: &str = "
SELECT CONVERT(held.name USING utf8mb4)
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$')) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
FOR UPDATE /*!80000 OF held */ SKIP LOCKED";

/// Of those who share a name, each has its own new lease, or goes on with the old one. Either column is right whichever of
/// them is set first: nothing says in which order an update of several tables does it.
const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
  name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$[0]',
  leases LONGTEXT CHARACTER SET utf8mb4 PATH '$[1]'
)) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)
SET
  held.shares = IF(shares IS NULL, NULL, (
    SELECT JSON_OBJECTAGG(each_one.claim, JSON_EXTRACT(IF(
      JSON_CONTAINS_PATH(asked.leases, 'one', {share}),
      JSON_SET(JSON_EXTRACT(shares, {share}), '$.until', {us} + CAST(JSON_EXTRACT(asked.leases, {share}) AS SIGNED) * 1000),
      JSON_EXTRACT(shares, {share})
    ), '$'))
    FROM {each} WHERE CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED) >= {us}
  )),
  held.expires_at = IF(shares IS NULL,
    {now} + INTERVAL CAST(JSON_EXTRACT(asked.leases, {alone}) AS SIGNED) * 1000 MICROSECOND,
    (
      SELECT TIMESTAMP'1970-01-01 00:00:00' + INTERVAL MAX(COALESCE(
        {us} + CAST(JSON_EXTRACT(asked.leases, {share}) AS SIGNED) * 1000,
        CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED)
      )) MICROSECOND
      FROM {each} WHERE CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED) >= {us}
    ))
WHERE held.expires_at >= {now} AND IF(shares IS NULL,
  JSON_CONTAINS_PATH(asked.leases, 'one', {alone}),
  EXISTS (
    SELECT 1 FROM {each}
    WHERE JSON_CONTAINS_PATH(asked.leases, 'one', {share})
      AND CAST(JSON_EXTRACT(shares, CONCAT({share}, '.until')) AS SIGNED) >= {us}
  ))";

/// What a downgrade has done already is done again. Waiters keep their mark.
const DOWNGRADE: &str = "
UPDATE {t} SET
  shares = IF(claim IS NULL, JSON_SET(shares, CONCAT({own}, '.of'), 0), JSON_OBJECT(?, JSON_OBJECT(
    'take', 0, 'of', 0, 'token', token, 'since', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at),
    'until', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at), 'label', label, 'host', host, 'pid', pid
  ))),
  claim = NULL
WHERE prefix = ? AND name = ? AND (claim = ? AND expires_at >= {now} OR {mine})";

/// It stays among the shares, with its token: the row's may be that of a reader that has come and gone. No other is
/// compatible with it. Whoever holds the name alone already keeps it.
const UPGRADE: &str = "
UPDATE {t} SET
  shares = IF(shares IS NULL, NULL, JSON_OBJECT(?, JSON_SET(JSON_EXTRACT(shares, {own}), '$.of', -1))),
  expires_at = IF(shares IS NULL, expires_at,
    TIMESTAMP'1970-01-01 00:00:00' + INTERVAL CAST(JSON_EXTRACT(shares, CONCAT({own}, '.until')) AS SIGNED) MICROSECOND)
WHERE prefix = ? AND name = ? AND (claim = ? AND expires_at >= {now} OR {mine} AND {others} IS NULL)";

const LOOK: &str = "
SELECT CONVERT(held.name USING utf8mb4), {held}, token, CAST({left} AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, {now}, awaited_until) / 1000) AS SIGNED), CONVERT(awaited_by USING utf8mb4),
  forced, {us}, {queue}
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$')) AS asked
STRAIGHT_JOIN {t} AS held ON held.prefix = ? AND held.name = CAST(asked.name AS BINARY)";

const MARK: &str = "
UPDATE {t} SET awaited_until = {now} + INTERVAL ? * 1000 MICROSECOND, awaited_by = IF(?, ?, NULL)
WHERE prefix = ? AND name = ? AND (claim <> ? OR shares IS NOT NULL) AND expires_at >= {now}
  AND (? OR awaited_by IS NULL OR awaited_until < {now})";

/// Who holds a name: a claim, or shares.
const HELD_BY: &str = "COALESCE(CONVERT(claim USING utf8mb4), CAST(shares AS CHAR))";

const TELL: &str = "
SELECT CONVERT(name USING utf8mb4), {held}, token,
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) / 1000) AS SIGNED),
  CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, acquired_at, {now}) / 1000) AS SIGNED),
  CAST({left} AS SIGNED), label, host, pid, {us}
FROM {t}";

const HELD: &str = "(claim IS NOT NULL OR shares IS NOT NULL) AND expires_at >= {now}";

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
