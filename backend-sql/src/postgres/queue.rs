//! What the statements have beside in fair mode, and what they have without it.

/// Keeps the claim's place in the queue, or gives it the last one. Who holds the name needs none.
pub(super) const STAND: &str = "
UPDATE {t} AS held SET queue = coalesce(held.queue, '{}') || jsonb_build_object($3::text, jsonb_build_object(
  'take', $5::bigint, 'of', $6::bigint,
  'came', coalesce(
    (held.queue #>> ARRAY[$3::text, 'came'])::bigint,
    greatest({us}, 1 + (SELECT max((value ->> 'came')::bigint) FROM jsonb_each(held.queue)))
  ),
  'until', {us} + $4::bigint * 1000
))
WHERE prefix = $1 AND name = $2 AND NOT (coalesce(claim = $3, false) AND expires_at >= now() OR {mine})";

/// The words of the statements that depend on whether there is a queue, and what they mean.
pub(super) const fn words(fair: bool) -> &'static [(&'static str, &'static str)] {
    if fair { &FAIR } else { &PLAIN }
}

/// A notification is sent when the statement commits. It costs the server a lock, so it is sent only where somebody waits,
/// and not for a waiter that gave up while another holds the name alone.
const PLAIN: [(&str, &str); 10] = [
    ("{free}", "held.claim IS NULL AND held.shares IS NULL OR held.claim = excluded.claim OR held.expires_at < now()"),
    ("{nobody}", "held.shares IS NULL"),
    ("{beside}", "jsonb_each(held.shares) WHERE {live}"),
    ("{leaves}", ""),
    ("{withdrawn}", ""),
    ("{waited}", ""),
    ("{queue}", "NULL"),
    (
        "{tell}",
        "
RETURNING awaited_until >= now(), CASE WHEN claim IS NULL AND awaited_until >= now() THEN pg_notify($4, {payload}) END",
    ),
    ("{tell_beside}", ""),
    ("{tell_forced}", "pg_notify($3, {payload})"),
];

/// Holders and waiters are asked at once: who comes before one is in its way as if it held the name already. So whoever is
/// refused is in the way of all who came after it, in every mode. Who is granted the name leaves the queue, and removes the
/// dead.
///
/// The first of the queue is told, and nobody else. Where it is let in beside others it tells the next, who may be let in too.
const FAIR: [(&str, &str); 14] = [
    (
        "{free}",
        "held.claim = excluded.claim AND held.expires_at >= now()
  OR (held.claim IS NULL AND held.shares IS NULL OR held.expires_at < now())
    AND NOT EXISTS (SELECT FROM jsonb_each(held.queue) WHERE {live} AND {before})",
    ),
    ("{nobody}", "held.shares IS NULL AND held.queue IS NULL"),
    (
        "{beside}",
        "(SELECT * FROM jsonb_each(held.shares) UNION ALL SELECT * FROM jsonb_each(held.queue)) AS beside
    WHERE {live} AND coalesce({before}, true)",
    ),
    (
        "{leaves}",
        "
  queue = (SELECT jsonb_object_agg(key, value) FROM jsonb_each(held.queue) WHERE key <> $3::text AND {live}),",
    ),
    ("{withdrawn}", ",\n  queue = queue - $3::text"),
    ("{waited}", " OR queue ? $3::text"),
    ("{queue}", "queue::text"),
    (
        "{tell}",
        "
RETURNING false, CASE WHEN claim IS NULL THEN (SELECT pg_notify($4, {to_first}) FROM {first}) END",
    ),
    ("{tell_beside}", ", (SELECT pg_notify($10, {to_first}) FROM {first})"),
    ("{tell_forced}", "(SELECT pg_notify($3, {to_first}) FROM {first})"),
    ("{to_first}", "{payload} || E'\\n' || first.key"),
    ("{first}", "(SELECT key FROM jsonb_each(queue) WHERE {live} ORDER BY (value ->> 'came')::bigint LIMIT 1) AS first"),
    ("{before}", "(value ->> 'came')::bigint < {came}"),
    ("{came}", "coalesce((held.queue #>> ARRAY[$3::text, 'came'])::bigint, 9223372036854775807)"),
];
