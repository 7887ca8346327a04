//! What the statements have beside in fair mode.

/// Keeps the claim's place in the queue, or gives it the last one. Who holds the name needs none.
pub(super) const STAND: &str = "
UPDATE {t} SET queue = json_set(coalesce(queue, '{}'), {own}, json_object(
  'take', ?5, 'of', ?6,
  'came', coalesce(
    queue ->> ({own} || '.came'), max({us}, 1 + coalesce((SELECT max(value ->> '$.came') FROM json_each(queue)), 0))
  ),
  'until', {us} + ?4 * 1000
))
WHERE prefix = ?1 AND name = ?2 AND NOT (coalesce(claim = ?3, false) AND expires_at >= {now} OR {mine})";

/// The words of the statements that depend on whether there is a queue, and what they mean.
pub(super) const fn words(fair: bool) -> &'static [(&'static str, &'static str)] {
    if fair { &FAIR } else { &PLAIN }
}

const PLAIN: [(&str, &str); 7] = [
    (
        "{free}",
        "claim IS NULL AND shares IS NULL OR claim = excluded.claim OR expires_at < excluded.acquired_at",
    ),
    ("{nobody}", "shares IS NULL"),
    ("{beside}", "json_each(shares) WHERE {live}"),
    ("{leaves}", ""),
    ("{withdrawn}", ""),
    ("{waited}", ""),
    ("{queue}", "NULL"),
];

/// Holders and waiters are asked at once: who comes before one is in its way as if it held the name already. So whoever is
/// refused is in the way of all who came after it, in every mode. Who is granted the name leaves the queue, and removes the
/// dead.
const FAIR: [(&str, &str); 9] = [
    (
        "{free}",
        "claim = excluded.claim AND expires_at >= excluded.acquired_at
  OR (claim IS NULL AND shares IS NULL OR expires_at < excluded.acquired_at)
    AND NOT EXISTS (SELECT 1 FROM json_each(queue) WHERE {live} AND {before})",
    ),
    ("{nobody}", "shares IS NULL AND queue IS NULL"),
    (
        "{beside}",
        "(
      SELECT value FROM json_each(shares) WHERE {live}
      UNION ALL SELECT value FROM json_each(queue) WHERE {live} AND coalesce({before}, true)
    )",
    ),
    (
        "{leaves}",
        "
  queue = (
    SELECT nullif(json_group_object(key, json(value)), '{}') FROM json_each(queue) WHERE key <> ?3 AND {live}
  ),",
    ),
    ("{withdrawn}", "\n  queue = json_remove(queue, {own}),"),
    ("{waited}", " OR queue -> ({own}) IS NOT NULL"),
    ("{queue}", "queue"),
    ("{before}", "value ->> '$.came' < {came}"),
    ("{came}", "coalesce(queue ->> ({own} || '.came'), 9223372036854775807)"),
];
