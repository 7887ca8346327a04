//! What the statements have beside in fair mode, and what they have without it.

/// Keeps the claim's place in the queue, or gives it the last one. Who holds the name needs none.
pub(super) const STAND: &str = "
UPDATE {t} SET queue = JSON_SET(COALESCE(queue, '{}'), {own}, JSON_OBJECT(
  'take', ?, 'of', ?,
  'came', COALESCE(
    CAST(JSON_EXTRACT(queue, CONCAT({own}, '.came')) AS SIGNED),
    GREATEST({us}, COALESCE(
      (SELECT 1 + MAX(waiter.came) FROM JSON_TABLE(queue, '$.*' COLUMNS (came BIGINT PATH '$.came')) AS waiter), 0
    ))
  ),
  'until', {us} + ? * 1000
))
WHERE prefix = ? AND name = ? AND NOT (COALESCE(claim = ?, 0) AND expires_at >= {now} OR {mine})";

/// The words of the statements that depend on whether there is a queue, and what they mean.
pub(super) const fn words(fair: bool) -> &'static [(&'static str, &'static str)] {
    if fair { &FAIR } else { &PLAIN }
}

const PLAIN: [(&str, &str); 8] = [
    ("{free}", "(claim IS NULL AND shares IS NULL OR claim = VALUES(claim) OR expires_at < {now})"),
    ("{nobody}", "shares IS NULL"),
    (
        "{beside}",
        "JSON_TABLE(shares, '$.*' COLUMNS (
        take BIGINT PATH '$.take', total BIGINT PATH '$.of', until BIGINT PATH '$.until'
      )) AS other
      WHERE other.until >= {us}",
    ),
    ("{leaves}", ""),
    ("{leaves_beside}", ""),
    ("{withdrawn}", ""),
    ("{waited}", ""),
    ("{queue}", "NULL"),
];

/// Holders and waiters are asked at once: who comes before one is in its way as if it held the name already. So whoever is
/// refused is in the way of all who came after it, in every mode. Who is granted the name leaves the queue, and removes the
/// dead.
const FAIR: [(&str, &str); 10] = [
    (
        "{free}",
        "({again} OR (claim IS NULL AND shares IS NULL OR expires_at < {now}) AND (queue IS NULL OR COALESCE((
    SELECT MIN(waiter.came)
    FROM JSON_TABLE(queue, '$.*' COLUMNS (came BIGINT PATH '$.came', until BIGINT PATH '$.until')) AS waiter
    WHERE waiter.until >= {us}
  ), 9223372036854775807) >= {came}))",
    ),
    ("{nobody}", "shares IS NULL AND queue IS NULL"),
    (
        "{beside}",
        "JSON_TABLE(CONCAT('[', COALESCE(shares, '{}'), ',', COALESCE(queue, '{}'), ']'), '$[*].*' COLUMNS (
        take BIGINT PATH '$.take', total BIGINT PATH '$.of', until BIGINT PATH '$.until', came BIGINT PATH '$.came'
      )) AS other
      WHERE other.until >= {us} AND (other.came IS NULL OR other.came < {came})",
    ),
    // The claim has been set by then.
    (
        "{leaves}",
        ",
  queue = IF(claim = VALUES(claim), {waiting} AND each_one.claim <> CONVERT({t}.claim USING utf8mb4)), queue)",
    ),
    ("{leaves_beside}", ",\n  queue = IF({mine}, {waiting} AND each_one.claim <> {claim}), queue)"),
    (
        "{waiting}",
        "(
    SELECT JSON_OBJECTAGG(each_one.claim, JSON_EXTRACT(queue, {share}))
    FROM JSON_TABLE(JSON_KEYS(queue), '$[*]' COLUMNS (claim VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS each_one
    WHERE CAST(JSON_EXTRACT(queue, CONCAT({share}, '.until')) AS SIGNED) >= {us}",
    ),
    ("{withdrawn}", ",\n  queue = JSON_REMOVE(queue, {own})"),
    ("{waited}", " OR JSON_CONTAINS_PATH(queue, 'one', {own})"),
    ("{queue}", "CAST(queue AS CHAR)"),
    ("{came}", "COALESCE(CAST(JSON_EXTRACT(queue, CONCAT({own}, '.came')) AS SIGNED), 9223372036854775807)"),
];
