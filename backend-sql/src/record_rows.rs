//! How a row keeps a [`Record`]: in columns as long as they are enough, otherwise in a single column.
//!
//! A single holder of a name, and a single waiter that wants to hold it alone, are kept in columns, which single
//! statements can compare and change. Anything more (several readers or permit holders, a queue, claims that were ended
//! by force) is read, changed here by the contract's own rules, and written back if the row's version is still the one
//! that was read. Every statement raises the version, so a late write changes nothing.

use crate::values::{millis, span};
use serde::{Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Claim, ClaimId, Grant, HolderInfo, LatchState, LatchStep, Mode, Moment, Name, StoreError, Token,
    async_trait,
    record::{LatchRecord, Plain, PlainHolder, Record, StoreTime, Wake},
};

/// Rows count whole milliseconds, and the clock is cut to them. A lease stands to the end of its last millisecond, as
/// if it were this much longer.
const TICK: Duration = Duration::from_millis(1);

/// A row of the table, without its key. All times are milliseconds since 1970 by the database's clock. In JSON nulls are
/// left out, because some databases take them for texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Raised by every statement that changes the row.
    #[serde(skip)]
    pub(crate) version: i64,
    pub(crate) token: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// How the claim holds the name, unless it holds it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    pub(crate) since: i64,
    pub(crate) expires_at: i64,
    pub(crate) awaited_until: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) awaited_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) host: String,
    pub(crate) pid: i64,
    /// If it is not null, it says everything that the columns before it would say, except the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<String>,
}

/// What was read under a key.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The instant before the statement was sent.
    pub(crate) sent: Moment,
    /// The time by the database's clock.
    pub(crate) now: i64,
    /// If there is no row, an upper bound of all tokens that it ever had.
    pub(crate) floor: i64,
    pub(crate) row: Option<Row>,
}

/// A row that takes the place of what was read.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) row: Row,
    /// Who should ask again then.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL tells them"))]
    pub(crate) wake: Wake,
}

/// The table as seen through a connection, one statement after the other.
#[async_trait]
pub(crate) trait RecordTable: Send {
    /// Reads the row under `key`.
    async fn read(&mut self, key: &str) -> Result<Seen, StoreError>;

    /// Writes the row under `key` if its version is still that of `from`, or if there was no row and still is none. The
    /// version changes. Returns whether the row was written.
    async fn swap(&mut self, key: &str, from: &Seen, to: &Change) -> Result<bool, StoreError>;

    /// How long to keep trying while other clients are faster.
    fn patience(&self) -> Duration;
}

/// Reads the row under `key`, unless it is known already, and writes what is decided. Repeats this until no other
/// client is faster.
pub(crate) async fn settle<T>(
    table: &mut impl RecordTable,
    key: &str,
    mut seen: Option<Seen>,
    mut decide: impl FnMut(&Seen) -> Result<(T, Option<Change>), StoreError> + Send,
) -> Result<T, StoreError>
where
    T: Send,
{
    let give_up = Moment::now() + table.patience();
    loop {
        let from = match seen.take() {
            Some(seen) => seen,
            None => table.read(key).await?,
        };
        let (outcome, to) = decide(&from)?;
        let Some(to) = to else { return Ok(outcome) };
        if table.swap(key, &from, &to).await? {
            return Ok(outcome);
        }
        if give_up.has_passed() {
            return Err(StoreError::unavailable("other clients kept changing the row first"));
        }
    }
}

/// Whether a record is written even if nothing in it changed, so that requests still on their way change nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    IfChanged,
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
        let unchanged = record == before && (write == Write::IfChanged || seen.row.is_none());
        let to = if unchanged { None } else { Some(seen.change(&before, &record)?) };
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
        Ok((state, (latch != before).then(|| Change { row: row(), wake: Wake::Nobody })))
    }
}

/// What the keys of latches begin with. Names have no control characters, so no lock has such a key.
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

/// The claim's attempt, based on what was read.
pub(crate) fn acquire(record: &mut Record, claim: &Claim, seen: &Seen) -> Result<Attempt, StoreError> {
    let lasting = Claim { lease: claim.lease + TICK, ..claim.clone() };
    Ok(match record.acquire(&lasting, seen.now(), seen.sent)? {
        Attempt::Granted(grant) => Attempt::Granted(Grant::leased(claim, grant.token, seen.sent)),
        busy @ Attempt::Busy { .. } => busy,
    })
}

/// The renewal of a grant, based on what was read.
pub(crate) fn renew(record: &mut Record, grant: &Grant, seen: &Seen) -> tenure_core::Renewal {
    record.renew(&Grant { lease: grant.lease + TICK, ..grant.clone() }, seen.now())
}

impl Seen {
    pub(crate) fn now(&self) -> StoreTime {
        begins(self.now)
    }

    /// Everything that is known about the name.
    pub(crate) fn record(&self, name: &Name) -> Result<Record, StoreError> {
        match &self.row {
            None => Ok(Record::after(u64::try_from(self.floor).unwrap_or(0))),
            Some(row) => match self.json(name)? {
                Some(record) if record_token(&record) != Some(row.token) => {
                    Err(not_ours(name, "its tokens differ"))
                }
                Some(record) => Ok(record),
                None => row.plain().map(Record::from).map_err(|why| not_ours(name, why)),
            },
        }
    }

    fn json<T: DeserializeOwned>(&self, name: &Name) -> Result<Option<T>, StoreError> {
        let text = self.row.as_ref().and_then(|row| row.record.as_deref());
        text.map(serde_json::from_str).transpose().map_err(|why| not_ours(name, why))
    }

    /// What has to be written once the record is no longer as it was `before`.
    pub(crate) fn change(&self, before: &Record, record: &Record) -> Result<Change, StoreError> {
        Ok(Change { row: self.written(record)?, wake: record.wakes(before, self.now()) })
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
        let (awaited_by, awaited_until) =
            awaited.map_or((None, 0), |(claim, until)| (Some(claim.to_string()), last_of(until)));
        let row = Row { token, awaited_until, awaited_by, ..Row::default() };
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
    fn plain(&self) -> Result<Plain, StoreError> {
        let holder = self.claim.as_deref().map(|claim| self.holder(claim)).transpose()?;
        let token = u64::try_from(self.token).map_err(StoreError::failed)?;
        let awaited = self.awaited_by.as_deref().map(claim_of).transpose()?;
        Ok(Plain { token, holder, awaited: awaited.map(|claim| (claim, ends(self.awaited_until))) })
    }

    fn holder(&self, claim: &str) -> Result<PlainHolder, StoreError> {
        // Without a token of its own it would not hold the name.
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

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::failed)
}

fn claim_of(text: &str) -> Result<ClaimId, StoreError> {
    text.parse().map_err(StoreError::failed)
}

fn not_ours(name: &Name, why: impl std::fmt::Display) -> StoreError {
    let mend = "delete it when no lease of it can be left";
    StoreError::failed(format!("the row of {name:?} is not what tenure writes: {why}; {mend}"))
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
