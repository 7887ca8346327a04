//! The meaning of row locks' rows and parameters.

use crate::values::span;
use std::time::{Duration, SystemTime};
use tenure_core::{ClaimId, Holder, HolderInfo, Name, StoreError, Token};

/// A time this long after 1970. Any program may have written it, and not every system can represent it.
pub(crate) fn date(after: Duration) -> Result<SystemTime, StoreError> {
    let date = SystemTime::UNIX_EPOCH.checked_add(after);
    date.ok_or_else(|| {
        StoreError::failed(format!("a row has a time that is out of range: {after:?} after 1970"))
    })
}

/// The smallest text after `name` that no other name comes before: names have no control characters.
pub(crate) fn just_beyond(name: &Name) -> String {
    format!("{name}\u{1}")
}

/// A text in hexadecimal digits, which are safe in any statement.
pub(crate) fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 2), |mut digits, byte| {
        for half in [byte >> 4, byte & 15] {
            digits.push(char::from(b"0123456789abcdef"[usize::from(half)]));
        }
        digits
    })
}

/// A text that is greater than every name, in UTF-8.
#[cfg(feature = "mysql")]
pub(crate) fn beyond_all_names() -> String {
    char::MAX.to_string().repeat(Name::MAX_BYTES / 4 + 1)
}

/// The columns of the holder of a row's lock: name, claim, token, since when in ms of 1970, age in ms, label, host, process.
pub(crate) type RowHolder = (String, String, i64, i64, i64, Option<String>, String, i64);

/// The holder in such a row.
pub(crate) fn row_holder(row: RowHolder) -> Result<Holder, StoreError> {
    let (name, claim, token, since, age, label, host, pid) = row;
    let name = Name::new(name).map_err(StoreError::failed)?;
    let claim = claim.parse::<ClaimId>().map_err(StoreError::failed)?;
    let token = Token::try_from(token).map_err(StoreError::failed)?;
    let pid = u32::try_from(pid).map_err(StoreError::failed)?;
    let since = date(span(since))?;
    let info = HolderInfo { label, host, pid };
    Ok(Holder::of(name).claim(claim, token).info(info).since(since, span(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn row_is_its_own_holder_or_an_error(
            name in "\\PC{1,9}|.{0,9}",
            (token, since, age) in proptest::prelude::any::<(i64, i64, i64)>(),
            pid in proptest::prop_oneof![0..=i64::from(u32::MAX), proptest::prelude::any::<i64>()],
            garbage in proptest::option::weighted(0.1, ".{0,40}"),
        ) {
            let claim = garbage.unwrap_or_else(|| ClaimId::new().to_string());
            let row = (name.clone(), claim.clone(), token, since, age, None, "h".to_owned(), pid);
            let Ok(holder) = row_holder(row) else { return Ok(()) };
            proptest::prop_assert_eq!((holder.name.as_str(), holder.claim.unwrap().to_string()), (&*name, claim));
            proptest::prop_assert_eq!((holder.token.unwrap().as_i64(), i64::from(holder.info.pid)), (token, pid));
        }
    }

    #[test]
    fn no_name_lies_between_a_name_and_its_bound() {
        let beyond = just_beyond(&Name::new("a").unwrap());
        assert!("a" < beyond.as_str() && beyond.as_str() < "a ");
    }
}
