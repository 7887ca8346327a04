//! What rows and parameters mean.

use crate::{
    queue::Queue,
    shares::{self, Held},
};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use tenure_core::{
    Claim, ClaimId, Conversion, Grant, Holder, HolderInfo, LatchState, LossCause, Mode, Name, StoreError,
    Token,
};

pub(crate) use crate::values::{end_of_prefix, granted, mark_lasts, millis, span};

/// A time so long after 1970. Anybody may have written it, and not every system can count that far.
pub(crate) fn date(after: Duration) -> Result<SystemTime, StoreError> {
    let date = SystemTime::UNIX_EPOCH.checked_add(after);
    date.ok_or_else(|| StoreError::failed(format!("a row tells of a time {after:?} after 1970")))
}

/// How far a latch has come, from the columns of its row.
pub(crate) fn latch_state(of: i64, counted: i64) -> LatchState {
    let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
    LatchState { of: number(of), counted: number(counted) }
}

/// The least text that is greater than `name` and may follow a name: no name has control characters.
pub(crate) fn just_beyond(name: &Name) -> String {
    format!("{name}\u{1}")
}

/// A text in hexadecimal digits, which mean nothing else in any statement that they are put into.
pub(crate) fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 2), |mut digits, byte| {
        for half in [byte >> 4, byte & 15] {
            digits.push(char::from(b"0123456789abcdef"[usize::from(half)]));
        }
        digits
    })
}

/// A text that is greater than every name.
pub(crate) fn beyond_all_names() -> String {
    char::MAX.to_string().repeat(Name::MAX_BYTES / 4 + 1)
}

/// The columns of [`Standing`]: name, who holds it, the last grant's token, ms that are left of the last of their leases, ms
/// for which it is known to be awaited, the claim that waits to hold it alone, who was last put out by force, the
/// database's time in µs, and in fair mode the queue.
pub(crate) type StandingRow =
    (String, Option<String>, i64, i64, i64, Option<String>, Option<String>, i64, Option<String>);

/// What stands in the row of a name.
pub(crate) struct Standing {
    pub(crate) name: String,
    held: Option<Held>,
    token: i64,
    left: i64,
    awaited: i64,
    /// One who waits to hold the name alone, as long as the mark stands.
    awaited_by: Option<String>,
    /// Whom somebody put out by force.
    forced: Vec<String>,
    now: i64,
    queue: Queue,
}

impl TryFrom<StandingRow> for Standing {
    type Error = StoreError;

    fn try_from(row: StandingRow) -> Result<Self, StoreError> {
        let (name, held, token, left, awaited, awaited_by, forced, now, queue) = row;
        let held = held.map(|held| Held::read(held, now)).transpose()?;
        let forced = forced.map_or_else(|| Ok(Vec::new()), shares::claims)?;
        let queue = Queue::read(queue.as_deref())?;
        Ok(Self { name, held, token, left, awaited, awaited_by, forced, now, queue })
    }
}

impl Standing {
    /// How each claim holds the name that does, and how much of its lease is left.
    fn holders(&self) -> Result<Vec<(&str, Mode, Duration)>, StoreError> {
        self.held.as_ref().map_or_else(|| Ok(Vec::new()), |held| held.modes(self.left, self.now))
    }

    /// Whether `claim` holds the name.
    pub(crate) fn is_held_by(&self, claim: ClaimId) -> Result<bool, StoreError> {
        let claim = claim.to_string();
        Ok(self.holders()?.iter().any(|(holder, ..)| *holder == claim))
    }

    /// After how long it may be another matter that others keep `claim` out, who hold the name or came before it; `None` when
    /// it may have the name.
    ///
    /// # Errors
    ///
    /// When it disagrees with those who hold the name about the number of permits.
    pub(crate) fn obstacle(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let Claim { id, mode, .. } = claim;
        let (id, holders) = (id.to_string(), self.holders()?);
        if holders.iter().any(|(holder, ..)| *holder == id) {
            return Ok(None);
        }
        let before = self.queue.before(&id, self.now)?;
        if *mode == Mode::Exclusive {
            // All of them have to be gone: the row's own time is that of the last.
            let held = (self.held.is_some() && self.left >= 0).then(|| span(self.left));
            return Ok(held.or_else(|| before.iter().map(|(_, left)| *left).min()));
        }
        mode.agrees_with(holders.iter().map(|(_, mode, _)| *mode)).map_err(StoreError::failed)?;
        let in_the_way =
            || holders.iter().map(|(_, mode, left)| (*mode, *left)).chain(before.iter().copied());
        if !mode.admits(in_the_way().map(|(mode, _)| mode)) {
            return Ok(in_the_way().map(|(_, left)| left).min());
        }
        let kept_out = self.awaited_by.is_some() && self.awaited >= 0;
        Ok(kept_out.then(|| span(self.awaited)))
    }

    /// Whether a waiter has to leave a mark, if one is to stand for `least` milliseconds at least. One who can share the name
    /// leaves the mark of one who wants it alone as it is, or would keep others out on behalf of somebody who has gone.
    #[cfg(feature = "mysql")]
    pub(crate) fn wants_mark(&self, mode: Mode, least: i64) -> bool {
        match &self.awaited_by {
            None => mode == Mode::Exclusive || self.awaited <= least,
            Some(_) if mode == Mode::Exclusive => self.awaited <= least,
            Some(_) => self.awaited < 0,
        }
    }

    /// Whether `claim` has to be heard of before it loses its place in the queue, or to be given one.
    pub(crate) fn wants_place(&self, claim: ClaimId) -> bool {
        self.queue.wants_place(&claim.to_string(), self.now)
    }

    /// Why `grant` does not hold the name.
    fn why_not(&self, grant: &Grant) -> LossCause {
        if self.forced.contains(&grant.claim.to_string()) {
            return LossCause::Forced;
        }
        // Beside others the name may be granted again without anybody's having taken it.
        let shared = grant.mode != Mode::Exclusive && !matches!(self.held, Some(Held::Alone(_)));
        if self.token > grant.token.as_i64() && !shared { LossCause::TakenOver } else { LossCause::Expired }
    }
}

/// Why a grant is not held any more, by what stands in the rows.
pub(crate) fn why_not(grant: &Grant, rows: &[Standing]) -> LossCause {
    let row = rows.iter().find(|row| row.name == grant.name.as_str());
    row.map_or(LossCause::Forgotten, |row| row.why_not(grant))
}

/// What came of a conversion that changed nothing.
pub(crate) fn not_converted(grant: &Grant, rows: &[Standing]) -> Result<Conversion, StoreError> {
    for row in rows {
        if row.name == grant.name.as_str() && row.is_held_by(grant.claim)? {
            return Ok(Conversion::Refused);
        }
    }
    Ok(Conversion::NotHeld(why_not(grant, rows)))
}

/// The grants' leases in milliseconds by claim, by name: a row is changed once, however many of its holders are renewed.
pub(crate) fn leases(grants: &[Grant]) -> BTreeMap<&str, BTreeMap<String, i64>> {
    let mut leases = BTreeMap::<_, BTreeMap<_, _>>::new();
    for Grant { name, claim, lease, .. } in grants {
        leases.entry(name.as_str()).or_default().insert(claim.to_string(), millis(*lease));
    }
    leases
}

/// The claims that were renewed, of those that stand in the rows that were changed: each says who holds the name, without
/// those whose time was over.
#[cfg(feature = "postgres")]
pub(crate) fn renewed(
    grants: &[Grant],
    held: Vec<String>,
) -> Result<std::collections::HashSet<ClaimId>, StoreError> {
    let mut stand = std::collections::HashSet::new();
    for held in held {
        stand.extend(shares::claims(held)?);
    }
    Ok(grants.iter().map(|grant| grant.claim).filter(|claim| stand.contains(&claim.to_string())).collect())
}

/// The columns of those who hold a name: the name, who holds it, and of one who holds it alone: its token, since when in ms of
/// 1970, age and rest of the lease in ms, label, host, process; and the database's time in µs.
pub(crate) type HolderRow = (String, String, i64, i64, i64, i64, Option<String>, String, i64, i64);

/// Whether the row tells of those who hold a name beside each other.
#[cfg(feature = "mysql")]
pub(crate) fn is_shared(row: &HolderRow) -> bool {
    row.1.starts_with('{')
}

/// The holders that rows tell of.
pub(crate) fn holders(rows: impl IntoIterator<Item = HolderRow>) -> Result<Vec<Holder>, StoreError> {
    let mut told = Vec::new();
    for (name, held, token, since, age, left, label, host, pid, now) in rows {
        match Held::read(held, now)? {
            Held::Alone(claim) => {
                let holder = row_holder((name, claim, token, since, age, label, host, pid))?;
                told.push(holder.left(span(left)));
            }
            Held::Beside(shares) => {
                told.extend(shares::holders(&Name::new(name).map_err(StoreError::failed)?, shares, now)?);
            }
        }
    }
    Ok(told)
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
    let since = date(span(since))?;
    let info = HolderInfo { label, host, pid };
    Ok(Holder::of(name).claim(claim, token).info(info).since(since, span(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_plain_in_hexadecimal() {
        assert_eq!(hexadecimal("a'/\0é"), "61272f00c3a9");
        assert_eq!(hexadecimal(""), "");
    }

    #[test]
    fn nothing_is_between_a_name_and_what_is_just_beyond() {
        let beyond = just_beyond(&Name::new("a").unwrap());
        assert!("a" < beyond.as_str() && beyond.as_str() < "a ");
    }
}
