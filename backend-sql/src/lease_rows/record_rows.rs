//! How a row keeps a [`Record`]: in columns as long as they are enough, otherwise in a single column.
//!
//! A single holder of a name, and a single waiter for exclusive mode, are kept in columns, which single statements can
//! compare and change. Anything more (several readers or permit holders, a queue, claims that were ended by force) is
//! read, changed here by the contract's own rules, and written back if the row's version is still the one that was
//! read. Every statement raises the version, so a late write changes nothing.

use crate::values::{millis, span};
use serde::{Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Claim, ClaimId, Grant, HolderInfo, LatchState, LatchStep, Mode, Moment, Name, StoreError, Token,
    record::{Bell, LatchRecord, Plain, PlainHolder, PlainWaiter, Record, StoreTime, Wake, unreadable},
};

/// Rows count whole milliseconds, and the clock is cut to them. A lease lasts to the end of its last millisecond, as if
/// it were this much longer.
const TICK: Duration = Duration::from_millis(1);

/// A row of the table, without its key. All times are milliseconds since 1970 by the store's clock. Nulls are left
/// out in JSON, because some databases take them for strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Raised by every statement that changes the row.
    #[serde(skip)]
    pub(crate) version: i64,
    pub(crate) token: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// The claim's mode, unless it is exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    pub(crate) since: i64,
    pub(crate) expires_at: i64,
    pub(crate) awaited_until: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) awaited_by: Option<String>,
    /// The bell of a waiter's process, in databases without notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) awaited_bell: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) host: String,
    pub(crate) pid: i64,
    /// If it is not null, it says everything that the columns before it would say, except the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<String>,
}

/// The content of a key when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The instant before the statement was sent.
    pub(crate) sent: Moment,
    /// The time by the store's clock.
    pub(crate) now: i64,
    /// If there is no row, an upper bound of all tokens that it ever had.
    pub(crate) floor: i64,
    pub(crate) row: Option<Row>,
    /// Until when it may be written on this basis, by the store's clock.
    pub(crate) until: i64,
}

/// A row that replaces the one that was read.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) row: Row,
    /// The waiters that should ask again after that.
    #[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "a file has no hints"))]
    pub(crate) wake: Wake,
    /// Whether a crash of the database must not undo it.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL is told so"))]
    pub(crate) lasting: bool,
}

/// When a record is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    IfChanged,
    /// For a release, if it changed: a crash of the database may undo it.
    IfReleased,
    /// Even if nothing in it changed, so that requests still on their way change nothing.
    Always,
}

/// Decides based on the record of `name`.
pub(crate) fn by_record<T>(
    name: Name,
    write: Write,
    mut change: impl FnMut(&mut Record, &Seen) -> Result<T, StoreError> + Send,
) -> impl FnMut(&Seen) -> Result<(T, Option<Change>), StoreError> + Send {
    move |seen| {
        let before = seen.record(&name)?;
        let mut record = before.clone();
        let outcome = change(&mut record, seen)?;
        let unchanged = record == before && (write != Write::Always || seen.row.is_none());
        let lasting = write != Write::IfReleased;
        let to = if unchanged { None } else { Some(Change { lasting, ..seen.change(&before, &record)? }) };
        Ok((outcome, to))
    }
}

/// Takes the step on the latch in the row.
pub(crate) fn by_latch(
    name: Name,
    step: LatchStep,
) -> impl FnMut(&Seen) -> Result<(LatchState, Option<Change>), StoreError> + Send {
    move |seen| {
        let before: LatchRecord = seen.json(&name)?.unwrap_or_default();
        let mut latch = before.clone();
        let state = latch.step(&step);
        let text = if latch.is_absent() { None } else { Some(json(&latch)?) };
        // A latch that exists never expires.
        let expires_at = if text.is_some() { i64::MAX } else { seen.now };
        let row = || Row { since: seen.now, expires_at, record: text, ..Row::default() };
        Ok((state, (latch != before).then(|| Change { row: row(), wake: Wake::Nobody, lasting: true })))
    }
}

/// The beginning of the keys of latches. Names have no control characters, so no lock has such a key.
const LATCH: char = '\u{1}';

/// The key of a latch.
pub(crate) fn latch_key(name: &Name) -> String {
    format!("{LATCH}{name}")
}

/// Whether it is the key of a latch.
#[cfg(feature = "postgres")]
pub(crate) fn is_latch(key: &str) -> bool {
    key.starts_with(LATCH)
}

/// The claim's attempt, based on a read row.
pub(crate) fn acquire(record: &mut Record, claim: &Claim, seen: &Seen) -> Result<Attempt, StoreError> {
    let lasting = Claim { lease: claim.lease + TICK, ..claim.clone() };
    Ok(match record.acquire(&lasting, seen.now(), seen.sent)? {
        Attempt::Granted(grant) => {
            Attempt::Granted(Grant::leased(claim, grant.token, seen.sent).reserving(grant.reserved))
        }
        busy @ Attempt::Busy { .. } => busy,
    })
}

/// The renewal of a grant, based on a read row.
pub(crate) fn renew(record: &mut Record, grant: &Grant, seen: &Seen) -> tenure_core::Renewal {
    record.renew(&Grant { lease: grant.lease + TICK, ..grant.clone() }, seen.now())
}

impl Seen {
    /// A row that was just read. It may be written at any time if it is still current then.
    pub(crate) fn new(sent: Moment, now: i64, floor: i64, row: Option<Row>) -> Self {
        Self { sent, now, floor, row, until: i64::MAX }
    }

    pub(crate) fn now(&self) -> StoreTime {
        begins(self.now)
    }

    /// Whether the columns do not say everything.
    pub(crate) fn has_record(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.record.is_some())
    }

    /// This row as it is this much later, if it is still current. It may be written for as long as it `lasts`.
    ///
    /// A write on this basis checks that this time has come by the store's clock, so that no valid lease counts as
    /// expired. It also checks that the time is not long past, as it would be if this client's clock had stopped. And
    /// `sent` moves by a hundredth less, so that a holder that counts its lease from there gives up in time even if the
    /// store's clock is that much faster.
    pub(crate) fn aged(&self, age: Duration, lasts: Duration) -> Self {
        let now = self.now.saturating_add(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let until = now.saturating_add(millis(lasts));
        Self { sent: self.sent + age * 99 / 100, now, until, ..self.clone() }
    }

    /// This row as the basis for renewing these grants: it may be written until the first of them expires (clause L2).
    pub(crate) fn for_renewal(self, name: &Name, before: &Record, grants: &[&Grant]) -> Self {
        let holders = before.holders(name, self.now());
        let renewed =
            holders.iter().filter(|holder| grants.iter().any(|grant| holder.claim == Some(grant.claim)));
        let shortest = renewed.filter_map(|holder| holder.left).min();
        let until = shortest.map_or(self.until, |left| self.now.saturating_add(millis(left) - 1));
        Self { until, ..self }
    }

    /// Everything that is known about the name.
    pub(crate) fn record(&self, name: &Name) -> Result<Record, StoreError> {
        match &self.row {
            None => Ok(Record::after(u64::try_from(self.floor).unwrap_or(0))),
            Some(row) => match self.json(name)? {
                Some(record) if record_token(&record) != Some(row.token) => {
                    Err(not_ours(name, "", "its tokens differ"))
                }
                Some(record) => Ok(record),
                None => row.plain().map(Record::from).map_err(|why| not_ours(name, "", why)),
            },
        }
    }

    fn json<T: DeserializeOwned>(&self, name: &Name) -> Result<Option<T>, StoreError> {
        let Some(text) = self.row.as_ref().and_then(|row| row.record.as_deref()) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|why| not_ours(name, text, why))
    }

    /// The write after which the row has this record, if it differs from `before`.
    pub(crate) fn change(&self, before: &Record, record: &Record) -> Result<Change, StoreError> {
        Ok(Change { row: self.written(record)?, wake: record.wakes(before, self.now()), lasting: true })
    }

    /// The row that holds the record.
    fn written(&self, record: &Record) -> Result<Row, StoreError> {
        let now = self.now();
        let token = record_token(record).ok_or_else(|| StoreError::failed("there are no more tokens"))?;
        let Some(Plain { holder, awaited, .. }) = record.plain(now) else {
            let expires_at = last_of(record.idle_from(now));
            return Ok(Row {
                token,
                since: self.now,
                expires_at,
                record: Some(json(record)?),
                ..Row::default()
            });
        };
        let (awaited_by, awaited_until, awaited_bell) =
            awaited.map_or((None, 0, None), |PlainWaiter { claim, until, bell }| {
                (Some(claim.to_string()), last_of(until), bell.and_then(bell_column))
            });
        let row = Row { token, awaited_until, awaited_by, awaited_bell, ..Row::default() };
        let Some(PlainHolder { claim, mode, since, until, info }) = holder else {
            return Ok(Row { since: self.now, expires_at: self.now, ..row });
        };
        let HolderInfo { label, host, pid } = (*info).clone();
        Ok(Row {
            claim: Some(claim.to_string()),
            mode: mode_column(mode)?,
            since: i64::try_from(since.as_micros() / 1000).unwrap_or(i64::MAX),
            expires_at: last_of(until),
            label,
            host,
            pid: i64::from(pid),
            ..row
        })
    }
}

impl Row {
    /// Whether the holder in the columns has as much as this mode.
    #[cfg(feature = "mysql")]
    pub(crate) fn covers(&self, mode: Mode) -> bool {
        let same = |held: &str| mode_column(mode).is_ok_and(|mode| mode.as_deref() == Some(held));
        self.mode.as_deref().is_none_or(same)
    }

    /// Whether the columns say that a claim with this mode may have the row: in the columns, a holder shares it with no
    /// other.
    #[cfg(feature = "mysql")]
    pub(crate) fn is_vacant_for(&self, mode: Mode, now: i64) -> bool {
        let held = self.claim.is_some() && self.expires_at >= now;
        let awaited = self.awaited_by.is_some() && self.awaited_until >= now;
        self.record.is_none() && !held && (mode == Mode::Exclusive || !awaited)
    }

    fn plain(&self) -> Result<Plain, StoreError> {
        let holder = self.claim.as_deref().map(|claim| self.holder(claim)).transpose()?;
        let token = u64::try_from(self.token).map_err(StoreError::failed)?;
        let awaited = self.awaited_by.as_deref().map(claim_of).transpose()?;
        let bell = self.awaited_bell.and_then(|bell| u64::try_from(bell).ok()).map(Bell);
        let awaited = awaited.map(|claim| PlainWaiter { claim, until: ends(self.awaited_until), bell });
        Ok(Plain { token, holder, awaited })
    }

    fn holder(&self, claim: &str) -> Result<PlainHolder, StoreError> {
        // Without a valid token it could not hold the name.
        Token::try_from(self.token).map_err(StoreError::failed)?;
        let mode = self.mode.as_deref().map(serde_json::from_str).transpose().map_err(StoreError::failed)?;
        let pid = u32::try_from(self.pid).map_err(StoreError::failed)?;
        Ok(PlainHolder {
            claim: claim_of(claim)?,
            mode: mode.unwrap_or(Mode::Exclusive),
            since: begins(self.since),
            until: ends(self.expires_at),
            info: Arc::new(HolderInfo { label: self.label.clone(), host: self.host.clone(), pid }),
        })
    }
}

fn record_token(record: &Record) -> Option<i64> {
    i64::try_from(record.last_token()).ok()
}

/// The column for a mode.
pub(crate) fn mode_column(mode: Mode) -> Result<Option<String>, StoreError> {
    if mode == Mode::Exclusive { Ok(None) } else { json(&mode).map(Some) }
}

/// The column for a bell.
fn bell_column(Bell(number): Bell) -> Option<i64> {
    i64::try_from(number).ok()
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::failed)
}

fn claim_of(text: &str) -> Result<ClaimId, StoreError> {
    text.parse().map_err(StoreError::failed)
}

fn not_ours(name: &Name, record: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::failed(format!("the row of {name:?} {}", unreadable(record, why)))
}

/// The beginning of a millisecond.
fn begins(millis: i64) -> StoreTime {
    StoreTime::from_micros(0) + span(millis)
}

/// The end of a millisecond.
fn ends(millis: i64) -> StoreTime {
    begins(millis.max(-1).saturating_add(1))
}

/// The last millisecond before this instant.
fn last_of(until: StoreTime) -> i64 {
    millis(until.since(StoreTime::from_micros(0))).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_in_the_millisecond_of_the_grant_tells_one_more() {
        let (lease, seen) = (Duration::from_secs(20), Seen::new(Moment::now(), 1_700_000_000_000, 0, None));
        let [one, other] = [(); 2].map(|()| Claim {
            id: ClaimId::new(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            lease,
            waits: false,
            reserve: 0,
            holder: Arc::default(),
        });
        let mut record = Record::default();
        acquire(&mut record, &one, &seen).unwrap();
        let refusal = acquire(&mut record, &other, &seen).unwrap();
        assert!(
            matches!(refusal, Attempt::Busy { expires_in: Some(left) } if left == lease + TICK),
            "{refusal:?}"
        );
    }
}
