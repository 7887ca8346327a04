//! The statements, each of which commits by itself.

use crate::{statement::Statement, table::TablePath};
use tenure_core::Error;

/// All of them, for one table. Durations are in milliseconds. Where the server could take a parameter for another type than
/// the one that is sent, its type is written out.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` lease, `$5` label, `$6` host, `$7` pid. A row with the token when
    /// granted, none when another holds the name.
    pub(super) acquire: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` channel. A row when released; it tells whether the name was awaited.
    pub(super) release: Statement,
    /// As `release`, but whether or not the lease has run out.
    pub(super) withdraw: Statement,
    /// `$1` prefix, `$2` names, `$3` claims, `$4` leases. The claims that were renewed.
    pub(super) renew: Statement,
    /// `$1` prefix, `$2` names. What stands in their rows.
    pub(super) look: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` for how long the mark stands. What is left of another's lease, and whether
    /// its row is marked as awaited.
    pub(super) stand_by: Statement,
    /// `$1` prefix, `$2` name.
    pub(super) holders: Statement,
    /// `$1` prefix, `$2` the first name, `$3` the first name beyond the last.
    pub(super) list: Statement,
    /// `$1` prefix, `$2` name, `$3` channel.
    pub(super) force: Statement,
    /// How long ago the idle rows were swept.
    pub(super) last_sweep: Statement,
    /// `$1` how long ago the last sweep must be. A row when it is this client's turn.
    pub(super) begin_sweep: Statement,
    /// `$1` and `$2` prefix and name to go on after, `$3` for how long a row must have been idle, `$4` how many.
    pub(super) find_idle: Statement,
    /// `$1` a token.
    pub(super) raise_floor: Statement,
    /// `$1` prefixes, `$2` names, `$3` for how long a row must have been idle. A row for each deleted.
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

/// Texts are compared by their bytes. The fill factor leaves room for the next version of each row beside it, so that no
/// index has to change. The row whose name is empty, which no lock has, keeps the greatest token of all rows that were
/// swept, and when.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('"');
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
  prefix        text COLLATE "C" NOT NULL, -- the namespace
  name          text COLLATE "C" NOT NULL, -- what is locked
  token         bigint           NOT NULL, -- the fencing token of the last grant; stays when the lock is released
  claim         text,                      -- who holds it; NULL when it is free
  acquired_at   timestamptz      NOT NULL, -- since when, by the server's clock
  expires_at    timestamptz      NOT NULL, -- until when, unless renewed
  awaited_until timestamptz      NOT NULL, -- until then somebody is known to wait for it
  forced        text,                      -- the claim that was last put out by force
  label         text,                      -- what people are told about the holder
  host          text             NOT NULL,
  pid           bigint           NOT NULL,
  PRIMARY KEY (prefix, name)
) WITH (fillfactor = 50);
"#
    )
}

impl Statements {
    pub(super) fn new(table: &TablePath) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| {
            let text = text.replace("{left}", LEFT).replace("{payload}", "$1 || E'\\n' || $2");
            Statement::new(text.replace("{t}", &name))
        };
        Self {
            create: Statement::new(schema(table)),
            acquire: fill(ACQUIRE),
            release: fill(&format!("{CLEAR} AND expires_at >= now() {AWAITED}")),
            withdraw: fill(&format!("{CLEAR} {AWAITED}")),
            renew: fill(RENEW),
            look: fill(LOOK),
            stand_by: fill(STAND_BY),
            holders: fill(&format!("SELECT {HOLDER} FROM {{t}} WHERE prefix = $1 AND name = $2 AND {HELD}")),
            list: fill(&format!(
                "SELECT {HOLDER} FROM {{t}} WHERE prefix = $1 AND name >= $2 AND name < $3 AND {HELD} ORDER BY name"
            )),
            force: fill(&format!("{FORCE} {HOLDER_RETURNED}")),
            last_sweep: fill(
                "SELECT floor(extract(epoch FROM now() - expires_at) * 1000)::bigint FROM {t} \
                 WHERE prefix = '' AND name = ''",
            ),
            begin_sweep: fill(BEGIN_SWEEP),
            find_idle: fill(FIND_IDLE),
            raise_floor: fill("UPDATE {t} SET token = greatest(token, $1) WHERE prefix = '' AND name = ''"),
            delete_idle: fill(DELETE_IDLE),
        }
    }
}

/// Rounded down, so that what is over is negative.
const LEFT: &str = "floor(extract(epoch FROM expires_at - now()) * 1000)::bigint";

/// One upsert. In the update, `held` is the row as it stands once it is locked, so its token is the last one that was
/// granted; a sequence in `VALUES` would be asked before that, and could give a later grant the smaller token.
///
/// `now()` is when the statement began. Whoever had to wait for the row sees leases as they were then: never as run out
/// too early.
const ACQUIRE: &str = "
INSERT INTO {t} AS held (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
VALUES (
  $1, $2,
  greatest(
    (extract(epoch FROM now()) * 1000000)::bigint,
    1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)
  ),
  $3::text, now(), now() + $4::bigint * interval '1 millisecond', 'epoch', $5, $6, $7
)
ON CONFLICT (prefix, name) DO UPDATE SET
  token = CASE WHEN held.claim = excluded.claim AND held.expires_at >= now() THEN held.token
          ELSE greatest(held.token + 1, excluded.token) END,
  acquired_at = CASE WHEN held.claim = excluded.claim AND held.expires_at >= now() THEN held.acquired_at
                ELSE excluded.acquired_at END,
  claim = excluded.claim,
  expires_at = excluded.expires_at,
  awaited_until = 'epoch',
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE held.claim IS NULL OR held.claim = excluded.claim OR held.expires_at < now()
RETURNING token";

const CLEAR: &str = "
UPDATE {t} SET claim = NULL, expires_at = now() WHERE prefix = $1 AND name = $2 AND claim = $3";

/// A notification is sent when the statement commits. It costs the server a lock, so it is sent only where somebody waits.
const AWAITED: &str = "
RETURNING awaited_until >= now(), CASE WHEN awaited_until >= now() THEN pg_notify($4, {payload}) END";

const RENEW: &str = "
UPDATE {t} AS held SET expires_at = now() + asked.lease * interval '1 millisecond'
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS asked (name, claim, lease)
WHERE held.prefix = $1 AND held.name = asked.name AND held.claim = asked.claim AND held.expires_at >= now()
RETURNING held.claim";

const LOOK: &str = "
SELECT name, claim, token, {left}, floor(extract(epoch FROM awaited_until - now()) * 1000)::bigint, forced
FROM {t} WHERE prefix = $1 AND name = ANY($2::text[])";

/// The row is read as it was when the statement began, and marked as it is. When it was neither marked nor had a mark,
/// somebody changed it in between: then it is worth asking.
const STAND_BY: &str = "
WITH marked AS (
  UPDATE {t} SET awaited_until = now() + $4::bigint * interval '1 millisecond'
  WHERE prefix = $1 AND name = $2 AND claim <> $3 AND expires_at >= now()
    AND awaited_until < now() + $4::bigint * interval '0.5 millisecond'
  RETURNING 1
)
SELECT {left}
FROM {t}
WHERE prefix = $1 AND name = $2 AND claim <> $3 AND expires_at >= now()
  AND (awaited_until >= now() + $4::bigint * interval '0.5 millisecond' OR EXISTS (SELECT FROM marked))";

const HOLDER: &str = "
name, claim, token, floor(extract(epoch FROM acquired_at) * 1000)::bigint,
floor(extract(epoch FROM now() - acquired_at) * 1000)::bigint, {left}, label, host, pid";

const HELD: &str = "claim IS NOT NULL AND expires_at >= now()";

/// Leaves the rest of the row as it was, so that it can be told whom this put out.
const FORCE: &str = "
UPDATE {t} SET forced = claim, claim = NULL
WHERE prefix = $1 AND name = $2 AND claim IS NOT NULL AND expires_at >= now() RETURNING";

const HOLDER_RETURNED: &str = "
name, forced, token, floor(extract(epoch FROM acquired_at) * 1000)::bigint,
floor(extract(epoch FROM now() - acquired_at) * 1000)::bigint, {left}, label, host, pid, pg_notify($3, {payload})";

const BEGIN_SWEEP: &str = "
INSERT INTO {t} AS swept (prefix, name, token, acquired_at, expires_at, awaited_until, host, pid)
VALUES ('', '', 0, now(), now(), 'epoch', '', 0)
ON CONFLICT (prefix, name) DO UPDATE SET expires_at = excluded.expires_at
WHERE swept.expires_at <= excluded.expires_at - $1::bigint * interval '1 millisecond'
RETURNING 1";

const FIND_IDLE: &str = "
SELECT prefix, name, token FROM {t}
WHERE (prefix, name) > ($1, $2) AND name <> '' AND expires_at < now() - $3::bigint * interval '1 millisecond'
ORDER BY prefix, name LIMIT $4";

const DELETE_IDLE: &str = "
DELETE FROM {t} AS idle USING unnest($1::text[], $2::text[]) AS found (prefix, name)
WHERE idle.prefix = found.prefix AND idle.name = found.name
  AND idle.expires_at < now() - $3::bigint * interval '1 millisecond'
  AND idle.token <= (SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = '')
RETURNING 1";
