//! What rows and parameters mean.

use std::time::{Duration, SystemTime};
use tenure_core::{ClaimId, Grant, Holder, HolderInfo, LossCause, Name, StoreError, Token};

/// A duration in whole milliseconds, rounded up. Every lease fits.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A number of milliseconds; nothing when it is negative.
pub(crate) fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// The end of the range of texts that begin with `prefix`: the least text that is greater than all of them, or `None`
/// when there is none. UTF-8 sorts as its characters do, so the last character that has a successor is replaced by it.
pub(crate) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.chars();
    while let Some(last) = rest.next_back() {
        // The range of characters leaves the surrogates out.
        if let Some(next) = (last..=char::MAX).nth(1) {
            return Some(format!("{}{next}", rest.as_str()));
        }
    }
    None
}

/// A text that is greater than every name.
#[cfg(feature = "_server")]
pub(crate) fn beyond_all_names() -> String {
    char::MAX.to_string().repeat(Name::MAX_BYTES / 4 + 1)
}

/// The columns of [`Standing`]: name, claim, token, ms that are left of the lease, ms for which it is known to be awaited,
/// and the claim that was last put out by force.
pub(crate) type StandingRow = (String, Option<String>, i64, i64, i64, Option<String>);

/// What stands in the row of a name.
pub(crate) struct Standing {
    pub(crate) name: String,
    claim: Option<String>,
    token: i64,
    left: i64,
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "mysql")),
        expect(dead_code, reason = "PostgreSQL marks in the statement that looks")
    )]
    pub(crate) awaited: i64,
    forced: Option<String>,
}

impl From<StandingRow> for Standing {
    fn from((name, claim, token, left, awaited, forced): StandingRow) -> Self {
        Self { name, claim, token, left, awaited, forced }
    }
}

impl Standing {
    /// Whether `claim` holds the name.
    #[cfg(feature = "mysql")]
    pub(crate) fn is_held_by(&self, claim: ClaimId) -> bool {
        self.left >= 0 && self.claim.as_ref().is_some_and(|held| *held == claim.to_string())
    }

    /// How much of its lease is left to another claim that holds the name; `None` when `claim` may have it.
    pub(crate) fn held_by_another(&self, claim: ClaimId) -> Option<Duration> {
        let another = self.claim.as_ref().is_some_and(|held| *held != claim.to_string());
        (another && self.left >= 0).then(|| span(self.left))
    }

    /// Why `claim`, which was granted with `token`, does not hold the name.
    fn why_not(&self, claim: ClaimId, token: Token) -> LossCause {
        if self.forced.as_ref().is_some_and(|forced| *forced == claim.to_string()) {
            LossCause::Forced
        } else if self.token > token.as_i64() {
            LossCause::TakenOver
        } else {
            LossCause::Expired
        }
    }
}

/// Why a grant is not held any more, by what stands in the rows.
pub(crate) fn why_not(grant: &Grant, rows: &[Standing]) -> LossCause {
    let row = rows.iter().find(|row| row.name == grant.name.as_str());
    row.map_or(LossCause::Forgotten, |row| row.why_not(grant.claim, grant.token))
}

/// The columns of a holder: name, claim, token, since when in ms of 1970, age and rest of the lease in ms, label, host,
/// process.
pub(crate) type HolderRow = (String, String, i64, i64, i64, i64, Option<String>, String, i64);

/// The holder that a row tells of.
pub(crate) fn holder(row: HolderRow) -> Result<Holder, StoreError> {
    let (name, claim, token, since, age, left, label, host, pid) = row;
    row_holder((name, claim, token, since, age, label, host, pid)).map(|holder| holder.left(span(left)))
}

/// The columns of the holder of a row's lock: name, claim, token, since when in ms of 1970, age in ms, label, host, process.
pub(crate) type RowHolder = (String, String, i64, i64, i64, Option<String>, String, i64);

/// The holder that such a row tells of.
pub(crate) fn row_holder(row: RowHolder) -> Result<Holder, StoreError> {
    let (name, claim, token, since, age, label, host, pid) = row;
    let name = Name::new(name).map_err(StoreError::failed)?;
    let claim = claim.parse::<ClaimId>().map_err(StoreError::failed)?;
    let token = Token::try_from(token).map_err(StoreError::failed)?;
    let pid = u32::try_from(pid).map_err(StoreError::failed)?;
    let since = SystemTime::UNIX_EPOCH + span(since);
    let info = HolderInfo { label, host, pid };
    Ok(Holder::of(name).claim(claim, token).info(info).since(since, span(age)))
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

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(end_of_prefix("a").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("jobs/").as_deref(), Some("jobs0"));
        assert_eq!(end_of_prefix("").as_deref(), None);
        assert_eq!(end_of_prefix("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("\u{10FFFF}").as_deref(), None);
        assert_eq!(end_of_prefix("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(end_of_prefix("\u{7f}").as_deref(), Some("\u{80}"));
    }
}
