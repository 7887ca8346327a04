//! The statements, each of which commits by itself.

use super::queue::{self, words};
use crate::{statement::Statement, table::TablePath};
use tenure_core::Error;

/// All of them, for one table. Durations are in milliseconds. Where the server could take a parameter for another type than
/// the one that is sent, its type is written out.
pub(super) struct Statements {
    pub(super) create: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` lease, `$5` label, `$6` host, `$7` pid. A row with the token when
    /// granted, none when another holds the name.
    pub(super) acquire: Statement,
    /// `$1` prefix, `$2` names, `$3` claims, `$4` leases, `$5` labels, `$6` host, `$7` pid. A row with token and name for
    /// each; none at all when another holds one of them.
    pub(super) acquire_all: Statement,
    /// As `acquire`, beside others: and `$8` how many permits to take, `$9` of how many; in fair mode `$10` channel.
    pub(super) share: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` channel. A row when released; it tells whether the name was awaited.
    pub(super) release: Statement,
    /// As `release`, but whether or not the lease has run out.
    pub(super) withdraw: Statement,
    /// `$1` prefix, `$2` names, `$3` for each a JSON object of leases by claim. Of each row that was changed, who holds the
    /// name. Rows that another has locked are left out.
    pub(super) renew: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` channel. A row when its claim is a reader's now.
    pub(super) downgrade: Statement,
    /// `$1` prefix, `$2` name, `$3` claim. A row when its claim is a writer's now.
    pub(super) upgrade: Statement,
    /// `$1` prefix, `$2` names. What stands in their rows, and in fair mode the queue.
    pub(super) look: Statement,
    /// `$1` prefix, `$2` name, `$3` claim, `$4` for how long the mark stands, `$5` whether it wants the name alone. As `look`,
    /// and whether the row is marked as awaited.
    pub(super) stand_by: Statement,
    /// Fair mode: `$1` prefix, `$2` name, `$3` claim, `$4` for how long it keeps its place, `$5` how many permits it wants,
    /// `$6` of how many. As `look`.
    pub(super) stand: Statement,
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
  claim         text,                      -- who holds it alone; NULL when nobody does
  shares        jsonb,                     -- readers or holders of permits, by claim; NULL when there are none
  acquired_at   timestamptz      NOT NULL, -- since when, by the server's clock
  expires_at    timestamptz      NOT NULL, -- until when, unless renewed; of several, the last
  awaited_until timestamptz      NOT NULL, -- until then somebody is known to wait for it
  awaited_by    text,                      -- the claim of one who waits to hold it alone; nobody new shares it meanwhile
  queue         jsonb,                     -- fair mode: those who wait, by claim
  forced        text,                      -- who was last put out by force: a claim, or shares
  label         text,                      -- what people are told about one who holds it alone
  host          text             NOT NULL,
  pid           bigint           NOT NULL,
  PRIMARY KEY (prefix, name)
) WITH (fillfactor = 50);
"#
    )
}

impl Statements {
    /// With a queue, or without.
    pub(super) fn new(table: &TablePath, fair: bool) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| {
            let text =
                words(fair).iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning));
            let text = text
                .replace("{sole}", SOLE)
                .replace("{mine}", MINE)
                .replace("{others}", OTHERS)
                .replace("{alike}", ALIKE)
                .replace("{last}", LAST);
            let text = text.replace("{live}", LIVE).replace("{left}", LEFT).replace("{us}", MICROS);
            let text = text.replace("{payload}", "$1 || E'\\n' || $2");
            Statement::new(text.replace("{t}", &name))
        };
        Self {
            create: Statement::new(schema(table)),
            acquire: fill(&format!("{ACQUIRE} {TAKE}")),
            acquire_all: fill(&ACQUIRE_ALL.replace("{take}", TAKE)),
            share: fill(SHARE),
            release: fill(&format!("{RELEASE} {{tell}}")),
            withdraw: fill(&format!("{WITHDRAW} {{tell}}")),
            renew: fill(RENEW),
            downgrade: fill(&format!("{DOWNGRADE} {{tell}}")),
            upgrade: fill(UPGRADE),
            look: fill(&format!("SELECT {STANDING} FROM {{t}} WHERE prefix = $1 AND name = ANY($2::text[])")),
            stand_by: fill(&STAND_BY.replace("{standing}", STANDING)),
            stand: fill(&format!("{} RETURNING {STANDING}", queue::STAND)),
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

/// The server's time as shares have it.
const MICROS: &str = "(extract(epoch FROM now()) * 1000000)::bigint";

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
    {us},
    1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)
  ),
  $3::text, now(), now() + $4::bigint * interval '1 millisecond', 'epoch', $5, $6, $7
)";

/// The same for several names: for all of them, or for none where one is held. When another takes one of them between the
/// look and the upsert, the division fails and undoes the others.
const ACQUIRE_ALL: &str = "
WITH asked AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[]) AS asked (name, claim, lease, label)
), taken AS (
  INSERT INTO {t} AS held (prefix, name, token, claim, acquired_at, expires_at, awaited_until, label, host, pid)
  SELECT
    $1, name,
    greatest(
      {us},
      1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)
    ),
    claim, now(), now() + lease * interval '1 millisecond', 'epoch', label, $6::text, $7::bigint
  FROM asked
  WHERE NOT EXISTS (
    SELECT FROM asked JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name
    WHERE (held.claim IS NOT NULL OR held.shares IS NOT NULL)
      AND held.claim IS DISTINCT FROM asked.claim AND held.expires_at >= now()
  )
  ORDER BY name COLLATE \"C\"
  {take}
)
SELECT token, name FROM taken, (SELECT count(*) FROM taken) AS all_taken (number)
WHERE CASE WHEN number IN (0, cardinality($2::text[])) THEN true ELSE 1 / (number - number) = 0 END";

/// What becomes of a row that there is already, unless another holds the name.
const TAKE: &str = "
ON CONFLICT (prefix, name) DO UPDATE SET{leaves}
  token = CASE WHEN held.claim = excluded.claim AND held.expires_at >= now() THEN held.token
          ELSE greatest(held.token + 1, excluded.token) END,
  acquired_at = CASE WHEN held.claim = excluded.claim AND held.expires_at >= now() THEN held.acquired_at
                ELSE excluded.acquired_at END,
  claim = excluded.claim,
  shares = NULL,
  expires_at = excluded.expires_at,
  awaited_until = 'epoch',
  awaited_by = NULL,
  label = excluded.label,
  host = excluded.host,
  pid = excluded.pid
WHERE {free}
RETURNING token, name";

/// Whether the claim has a share.
const MINE: &str = "coalesce((held.shares #>> ARRAY[$3::text, 'until'])::bigint >= {us}, false)";

/// What a share's time has to be, in a walk through all of them.
const LIVE: &str = "(value ->> 'until')::bigint >= {us}";

/// Whether there is no other, also none whose time is over: so it is most often, and quicker to tell.
const SOLE: &str = "(held.shares IS NULL OR held.shares - $3::text = '{}')";

/// The shares but for the claim's own, and for those whose time is over; `NULL` when none are left.
const OTHERS: &str =
    "(SELECT jsonb_object_agg(key, value) FROM jsonb_each(held.shares) WHERE key <> $3::text AND {live})";

/// When the last of these is over.
const LAST: &str = "
(SELECT 'epoch'::timestamptz + max((value ->> 'until')::bigint) * interval '1 microsecond'
 FROM jsonb_each(held.shares) WHERE key <> $3::text AND {live})";

/// Whether one of the others holds it as this one wants to. Another program may have written anything: who wrote that holds
/// the name in a way that leaves no room.
const ALIKE: &str = "(value ->> 'of')::bigint = $9::bigint AND (value ->> 'take')::bigint >= 0";

/// The same upsert for one who holds the name beside others. It is admitted when nobody holds the name alone or waits to, and
/// when all others have its number of permits, and leave enough of them; readers take none of none. The mark of those who
/// wait stays: they may wait for more than this one took.
const SHARE: &str = "
INSERT INTO {t} AS held (prefix, name, token, shares, acquired_at, expires_at, awaited_until, host, pid)
SELECT $1, $2, fresh.token,
  jsonb_build_object($3::text, jsonb_build_object(
    'take', $8::bigint, 'of', $9::bigint, 'token', fresh.token, 'since', {us}, 'until', {us} + $4::bigint * 1000,
    'label', $5::text, 'host', $6::text, 'pid', $7::bigint
  )),
  now(), now() + $4::bigint * interval '1 millisecond', 'epoch', '', 0
FROM (
  SELECT greatest(
    {us},
    1 + coalesce((SELECT floor.token FROM {t} floor WHERE floor.prefix = '' AND floor.name = ''), 0)
  ) AS token
) AS fresh
ON CONFLICT (prefix, name) DO UPDATE SET{leaves}
  token = CASE WHEN {mine} THEN held.token ELSE greatest(held.token + 1, excluded.token) END,
  claim = NULL,
  shares = CASE
    WHEN held.shares IS NULL AND held.token < excluded.token THEN excluded.shares
    ELSE coalesce({others}, '{}') || jsonb_build_object($3::text, CASE
      WHEN {mine} THEN jsonb_set(held.shares -> $3::text, '{until}', excluded.shares #> ARRAY[$3::text, 'until'])
      ELSE jsonb_set(excluded.shares -> $3::text, '{token}', to_jsonb(greatest(held.token + 1, excluded.token)))
    END)
  END,
  expires_at = CASE WHEN held.shares IS NULL THEN excluded.expires_at ELSE greatest(excluded.expires_at, {last}) END
WHERE (held.claim IS NULL OR held.expires_at < now()) AND CASE
  WHEN {mine} THEN true
  WHEN held.awaited_by IS NOT NULL AND held.awaited_until >= now() THEN false
  WHEN {nobody} THEN true
  ELSE (
    SELECT coalesce(sum((value ->> 'take')::bigint), 0) + $8::bigint <= $9::bigint
      AND coalesce(bool_and(coalesce({alike}, false)), true)
    FROM {beside}
  )
END
RETURNING (shares #>> ARRAY[$3::text, 'token'])::bigint{tell_beside}";

/// Also those whose time was over go; what is left holds the name for as long as the last of them.
const RELEASE: &str = "
UPDATE {t} AS held SET
  claim = NULL,
  shares = CASE WHEN NOT {sole} THEN {others} END,
  expires_at = CASE WHEN {sole} THEN now() ELSE coalesce({last}, now()) END
WHERE prefix = $1 AND name = $2 AND (claim = $3 AND expires_at >= now() OR {mine})";

/// Whether or not its time is over. One that waited to hold the name alone keeps nobody out any more.
const WITHDRAW: &str = "
UPDATE {t} AS held SET
  claim = nullif(claim, $3::text),
  shares = CASE WHEN shares IS NOT NULL THEN {others} END,
  expires_at = CASE
    WHEN claim = $3 THEN now() WHEN shares IS NULL THEN expires_at ELSE coalesce({last}, now())
  END,
  awaited_by = nullif(awaited_by, $3::text){withdrawn}
WHERE prefix = $1 AND name = $2 AND (claim = $3 OR awaited_by = $3 OR shares ? $3::text{waited})";

/// Of those who share a name, each has its own new lease, or goes on with the old one. Nobody's lease waits for another's row.
const RENEW: &str = "
WITH free AS (
  SELECT held.name, asked.leases
  FROM unnest($2::text[], $3::text[]::jsonb[]) AS asked (name, leases)
  JOIN {t} AS held ON held.prefix = $1 AND held.name = asked.name
  FOR NO KEY UPDATE OF held SKIP LOCKED
)
UPDATE {t} AS held SET
  shares = CASE WHEN held.shares IS NOT NULL THEN (
    SELECT jsonb_object_agg(key, CASE
      WHEN asked.leases ? key THEN jsonb_set(value, '{until}', to_jsonb({us} + (asked.leases ->> key)::bigint * 1000))
      ELSE value
    END)
    FROM jsonb_each(held.shares) WHERE {live}
  ) END,
  expires_at = CASE
    WHEN held.shares IS NULL THEN now() + (asked.leases ->> held.claim)::bigint * interval '1 millisecond'
    ELSE (
      SELECT 'epoch'::timestamptz + interval '1 microsecond' * max(
        coalesce({us} + (asked.leases ->> key)::bigint * 1000, (value ->> 'until')::bigint))
      FROM jsonb_each(held.shares) WHERE {live}
    )
  END
FROM free AS asked
WHERE held.prefix = $1 AND held.name = asked.name AND held.expires_at >= now()
  AND (held.shares IS NOT NULL OR asked.leases ? held.claim)
RETURNING coalesce(held.claim, held.shares::text)";

/// What a downgrade has done already is done again. Waiters keep their mark.
const DOWNGRADE: &str = "
UPDATE {t} AS held SET
  claim = NULL,
  shares = CASE WHEN claim IS NULL THEN jsonb_set(shares, ARRAY[$3::text, 'of'], '0') ELSE
    jsonb_build_object($3::text, jsonb_build_object(
      'take', 0, 'of', 0, 'token', token, 'since', (extract(epoch FROM acquired_at) * 1000000)::bigint,
      'until', (extract(epoch FROM expires_at) * 1000000)::bigint, 'label', label, 'host', host, 'pid', pid
    ))
  END
WHERE prefix = $1 AND name = $2 AND (claim = $3 AND expires_at >= now() OR {mine})";

/// It stays among the shares, with its token: the row's may be that of a reader that has come and gone. No other is
/// compatible with it. Whoever holds the name alone already keeps it.
const UPGRADE: &str = "
UPDATE {t} AS held SET
  shares = CASE WHEN shares IS NOT NULL THEN
    jsonb_build_object($3::text, jsonb_set(shares -> $3::text, '{of}', '-1'))
  END,
  expires_at = CASE WHEN shares IS NULL THEN expires_at ELSE
    'epoch'::timestamptz + (shares #>> ARRAY[$3::text, 'until'])::bigint * interval '1 microsecond'
  END
WHERE prefix = $1 AND name = $2
  AND (claim = $3 AND expires_at >= now() OR CASE WHEN {mine} THEN {others} IS NULL ELSE false END)
RETURNING 1";

const STANDING: &str = "
name, coalesce(claim, shares::text), token, {left}, floor(extract(epoch FROM awaited_until - now()) * 1000)::bigint,
awaited_by, forced, {us}, {queue}";

/// The row is read as it was when the statement began, and marked as it is. When it was neither marked nor had a mark,
/// somebody changed it in between: then it is worth asking.
///
/// One who can share the name leaves the mark of one who wants it alone as it is, or would keep others out on behalf of
/// somebody who has gone.
const STAND_BY: &str = "
WITH marked AS (
  UPDATE {t} SET
    awaited_until = now() + $4::bigint * interval '1 millisecond',
    awaited_by = CASE WHEN $5::boolean THEN $3::text END
  WHERE prefix = $1 AND name = $2 AND (claim <> $3 OR shares IS NOT NULL) AND expires_at >= now() AND CASE
    WHEN awaited_by IS NULL AND $5::boolean THEN true
    WHEN awaited_by IS NULL OR $5::boolean THEN awaited_until < now() + $4::bigint * interval '0.5 millisecond'
    ELSE awaited_until < now()
  END
  RETURNING 1
)
SELECT {standing}, EXISTS (SELECT FROM marked) OR CASE
  WHEN awaited_by IS NULL AND $5::boolean THEN false
  WHEN awaited_by IS NULL OR $5::boolean THEN awaited_until >= now() + $4::bigint * interval '0.5 millisecond'
  ELSE awaited_until >= now()
END
FROM {t}
WHERE prefix = $1 AND name = $2";

const HOLDER: &str = "
name, coalesce(claim, shares::text), token, floor(extract(epoch FROM acquired_at) * 1000)::bigint,
floor(extract(epoch FROM now() - acquired_at) * 1000)::bigint, {left}, label, host, pid, {us}";

const HELD: &str = "(claim IS NOT NULL OR shares IS NOT NULL) AND expires_at >= now()";

/// Leaves the rest of the row as it was, so that it can be told whom this put out.
const FORCE: &str = "
UPDATE {t} SET forced = coalesce(claim, shares::text), claim = NULL, shares = NULL
WHERE prefix = $1 AND name = $2 AND (claim IS NOT NULL OR shares IS NOT NULL) AND expires_at >= now() RETURNING";

const HOLDER_RETURNED: &str = "
name, forced, token, floor(extract(epoch FROM acquired_at) * 1000)::bigint,
floor(extract(epoch FROM now() - acquired_at) * 1000)::bigint, {left}, label, host, pid, {us}, {tell_forced}";

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
