//! Those who hold a name beside each other, as its row has them.

use crate::rows::{date, span};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};
use tenure_core::{ClaimId, Holder, HolderInfo, Mode, Name, StoreError, Token};

/// One of those who hold a name beside each other: the value of its claim in the JSON object of the column `shares`.
///
/// Times are microseconds since 1970 by the database's clock. A share whose time is over stands there until somebody
/// changes the row, and counts for nothing.
#[derive(Deserialize)]
pub(crate) struct Share {
    /// How many permits it has; none if it is a reader.
    take: u32,
    /// How many permits there are; 0 for a reader, and [`ALONE`].
    of: i64,
    token: i64,
    since: i64,
    until: i64,
    label: Option<String>,
    host: String,
    pid: u32,
}

/// What stands in place of the number of permits for one who waits to hold the name alone, and for a reader that has become
/// a writer. The latter stays among the shares, because the row's own token may be a later reader's.
pub(crate) const ALONE: i64 = -1;

/// The permits that a claim wants, and those that there are. A reader takes none of none, so one rule serves readers and
/// permits: all have the same `of`, and what they take together is no more than that. `None` for those who want it alone.
pub(crate) fn take_of(mode: Mode) -> Option<(i64, i64)> {
    match mode {
        Mode::Shared => Some((0, 0)),
        Mode::Permit { take, of } => Some((i64::from(take.get()), i64::from(of.get()))),
        _ => None,
    }
}

/// What such a pair of numbers means.
pub(crate) fn mode_of(take: u32, of: i64) -> Result<Mode, StoreError> {
    let mode = match (NonZeroU32::new(take), of) {
        (None, ALONE) => Some(Mode::Exclusive),
        (None, 0) => Some(Mode::Shared),
        (Some(take), of) => {
            let of = u32::try_from(of).ok().and_then(NonZeroU32::new);
            of.map(|of| Mode::Permit { take, of })
        }
        (None, _) => None,
    };
    mode.ok_or_else(|| StoreError::failed(format!("a claim takes {take} of {of} permits")))
}

impl Share {
    fn mode(&self) -> Result<Mode, StoreError> {
        mode_of(self.take, self.of)
    }

    /// Negative when its time is over.
    fn left(&self, now: i64) -> i64 {
        // Rounded down, as the rows' own rests are.
        self.until.saturating_sub(now).div_euclid(1000)
    }
}

/// Who holds a name, as its row has it: the text of the column `claim`, or of `shares`.
pub(crate) enum Held {
    /// This claim, and nobody else.
    Alone(String),
    /// Those whose time is not over.
    Beside(BTreeMap<String, Share>),
}

impl Held {
    /// Reads the text. `now` is the database's time in microseconds.
    pub(crate) fn read(text: String, now: i64) -> Result<Self, StoreError> {
        if !text.starts_with('{') {
            return Ok(Self::Alone(text));
        }
        let mut shares: BTreeMap<String, Share> = serde_json::from_str(&text).map_err(StoreError::failed)?;
        if shares.is_empty() {
            return Err(StoreError::failed("a row says that its name is held, and by nobody"));
        }
        shares.retain(|_, share| share.until >= now);
        Ok(Self::Beside(shares))
    }

    /// How they hold it, and how much of each lease is left; `left` is that of one who holds it alone.
    pub(crate) fn modes(&self, left: i64, now: i64) -> Result<Vec<(&str, Mode, Duration)>, StoreError> {
        match self {
            Self::Alone(claim) if left >= 0 => Ok(vec![(claim, Mode::Exclusive, span(left))]),
            Self::Alone(_) => Ok(Vec::new()),
            Self::Beside(shares) => {
                let tell = |(claim, share): (_, &Share)| -> Result<_, StoreError> {
                    Ok((String::as_str(claim), share.mode()?, span(share.left(now))))
                };
                shares.iter().map(tell).collect()
            }
        }
    }
}

/// The claims of those whom the text of such a column names, whether or not their time is over.
pub(crate) fn claims(text: String) -> Result<Vec<String>, StoreError> {
    if !text.starts_with('{') {
        return Ok(vec![text]);
    }
    let shares: Map<String, Value> = serde_json::from_str(&text).map_err(StoreError::failed)?;
    Ok(shares.into_iter().map(|(claim, _)| claim).collect())
}

/// The holders that shares tell of, in the order in which they came.
pub(crate) fn holders(
    name: &Name,
    shares: BTreeMap<String, Share>,
    now: i64,
) -> Result<Vec<Holder>, StoreError> {
    let mut holders = Vec::with_capacity(shares.len());
    for (claim, share) in shares {
        let claim = claim.parse::<ClaimId>().map_err(StoreError::failed)?;
        let token = Token::try_from(share.token).map_err(StoreError::failed)?;
        let (mode, left) = (share.mode()?, span(share.left(now)));
        let Share { since, label, host, pid, .. } = share;
        let micros = |span: i64| Duration::from_micros(u64::try_from(span).unwrap_or(0));
        let began = date(micros(since))?;
        let holder =
            Holder::of(name.clone()).claim(claim, token).mode(mode).info(HolderInfo { label, host, pid });
        holders.push(holder.since(began, micros(now.saturating_sub(since))).left(left));
    }
    holders.sort_by_key(|holder| holder.token);
    Ok(holders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(take: u32, of: i64) -> Share {
        Share { take, of, token: 1, since: 0, until: 0, label: None, host: String::new(), pid: 1 }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let permits = |take, of| Mode::Permit {
            take: NonZeroU32::new(take).unwrap(),
            of: NonZeroU32::new(of).unwrap(),
        };
        for mode in [Mode::Shared, permits(1, 1), permits(3, 4), permits(u32::MAX, u32::MAX)] {
            let (take, of) = take_of(mode).unwrap();
            assert_eq!(share(u32::try_from(take).unwrap(), of).mode().unwrap(), mode);
        }
        assert!(take_of(Mode::Exclusive).is_none());
        assert_eq!(share(0, ALONE).mode().unwrap(), Mode::Exclusive);
        for (take, of) in [(1, 0), (1, ALONE), (0, 4), (1, i64::MAX)] {
            assert!(share(take, of).mode().is_err(), "{take} of {of}");
        }
    }

    #[test]
    fn a_share_counts_until_its_time_is_over() {
        let text = |until: i64| {
            format!(
                r#"{{"c":{{"take":0,"of":0,"token":7,"since":0,"until":{until},"label":null,"host":"h","pid":1}}}}"#
            )
        };
        let count = |until| match Held::read(text(until), 5000).unwrap() {
            Held::Beside(shares) => shares.len(),
            Held::Alone(claim) => panic!("{claim}"),
        };
        assert_eq!((count(4999), count(5000), count(7000)), (0, 1, 1));
        let held = Held::read(text(7999), 5000).unwrap();
        assert_eq!(held.modes(-1, 5000).unwrap(), [("c", Mode::Shared, Duration::from_millis(2))]);
        assert!(Held::read("{broken".to_owned(), 0).is_err());
    }
}
