//! Values that are the same in every database.

use std::{collections::HashMap, time::Duration};
use tenure_core::{Claim, Grant, Moment, StoreError, Token};

/// A duration in whole milliseconds, rounded up. Every lease fits.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A number of milliseconds; zero if it is negative.
pub(crate) fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// How long a waiter's mark lasts if it looks at least this often. One of the waiters renews it after half of that
/// time; if that one dies, it keeps others out no longer.
pub(crate) fn mark_lasts(poll: Duration) -> Duration {
    Duration::from_secs(2).max(poll * 3)
}

/// The end of a range that has all texts that begin with `prefix`, or `None` if such a range has no end. If the prefix
/// ends in a character that is not in ASCII, the range may have other texts too: each encoding sorts such characters in
/// its own way, and may lack the next one.
pub(crate) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.chars();
    while let Some(last) = rest.next_back() {
        if let Some(next) = (last..='\u{7f}').nth(1) {
            return Some(format!("{}{next}", rest.as_str()));
        }
    }
    None
}

/// Makes the grants of a set, in the order of its claims, from token and name of each; `None` if there are none.
pub(crate) fn granted(
    claims: &[Claim],
    rows: Vec<(i64, String)>,
    sent: Moment,
) -> Result<Option<Vec<Grant>>, StoreError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let tokens: HashMap<String, i64> = rows.into_iter().map(|(token, name)| (name, token)).collect();
    let grant = |claim: &Claim| {
        let token = tokens.get(claim.name.as_str());
        let token = token.ok_or_else(|| StoreError::failed("only some of the names were granted"))?;
        Ok(Grant::leased(claim, Token::try_from(*token).map_err(StoreError::failed)?, sent))
    };
    claims.iter().map(grant).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millis_round_up() {
        assert_eq!(millis(Duration::from_millis(100)), 100);
        assert_eq!(millis(Duration::from_nanos(1_000_001)), 2);
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(tenure_core::lease::MAX_LEASE), 31_536_000_000);
    }
}
