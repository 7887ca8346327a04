//! The renewal of lease rows.

use super::{
    lease_table::{LeaseTable, Renewed, Swap},
    record_rows::{self, Change, Row, Seen},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};
use tenure_core::{ClaimId, Grant, Moment, Name, Renewal, StoreError};

/// How often to retry renewals of locked rows, and how long to wait before the first retry; the wait doubles each time.
/// Clients lock rows only for moments; only foreign programs lock them for longer.
const ONCE_MORE: u32 = 6;
const MOMENT: Duration = Duration::from_millis(1);

/// Renews as many as possible, and retries locked rows a few times.
///
/// A request that was sent twice proves nothing: its first copy may still be carried out, and cut short a longer lease
/// that is asked for meanwhile. A record is written only if its version is still the same, so there a late copy changes
/// nothing.
pub(crate) async fn renew_part(
    table: &impl LeaseTable,
    grants: &[Grant],
    end: Moment,
) -> Result<Vec<Renewal>, StoreError> {
    let (mut answers, mut resent) = renew_free(table, grants, end).await?;
    for pause in (0..ONCE_MORE).map(|time| MOMENT * 2_u32.pow(time)) {
        let locked = |index: &usize| answers[*index] == Renewal::Unanswered;
        let locked: Vec<usize> = (0..grants.len()).filter(locked).collect();
        // Those renewed must learn of it in time.
        if locked.is_empty() || Moment::now() + pause >= end {
            break;
        }
        tokio::time::sleep(pause).await;
        let again: Vec<Grant> = locked.iter().map(|index| grants[*index].clone()).collect();
        let told = match renew_free(table, &again, end).await {
            Ok((told, twice)) => {
                resent |= twice;
                told
            }
            Err(error) => {
                incomplete(table, &error);
                break;
            }
        };
        for (index, answer) in locked.into_iter().zip(told) {
            answers[index] = answer;
        }
    }
    if resent {
        answers
            .iter_mut()
            .filter(|told| **told == Renewal::Renewed)
            .for_each(|told| *told = Renewal::Unanswered);
    }
    Ok(answers)
}

/// Renews the claims in columns by one statement, and those in records by another. Locked rows are unanswered. Also
/// returns whether the statement for columns was sent twice.
async fn renew_free(
    table: &impl LeaseTable,
    grants: &[Grant],
    end: Moment,
) -> Result<(Vec<Renewal>, bool), StoreError> {
    let Renewed { claims: renewed, resent, seen } = table.renew(grants).await?;
    let mut told: HashMap<ClaimId, Renewal> =
        renewed.iter().map(|claim| (*claim, Renewal::Renewed)).collect();
    let mut rest = BTreeMap::<&Name, Vec<&Grant>>::new();
    for grant in grants.iter().filter(|grant| !renewed.contains(&grant.claim)) {
        rest.entry(&grant.name).or_default().push(grant);
    }
    // Looking takes as long again, and those renewed must learn of it in time.
    if !rest.is_empty() && (renewed.is_empty() || !end.has_passed()) {
        match renew_records(table, &rest, seen, (end, !renewed.is_empty())).await {
            Ok(answers) => told.extend(answers),
            Err(error) if renewed.is_empty() => return Err(error),
            Err(error) => incomplete(table, &error),
        }
    }
    let tell = |grant: &Grant| told.get(&grant.claim).copied().unwrap_or(Renewal::Unanswered);
    Ok((grants.iter().map(tell).collect(), resent))
}

type Answers = Vec<(ClaimId, Renewal)>;

/// The outcome of several renewals of a name if the row can be written.
struct Hope<'g> {
    name: &'g Name,
    from: Seen,
    to: Change,
    answers: Answers,
}

impl Hope<'_> {
    /// Whether the row is as it was to be written.
    fn came_true(&self, seen: &Seen) -> bool {
        let (Some(was), Some(row)) = (&self.from.row, &seen.row) else { return false };
        was.version.checked_add(1) == Some(row.version) && Row { version: 0, ..row.clone() } == self.to.row
    }

    /// Whether the row is unchanged, although it could have been written.
    fn is_untouched(&self, seen: &Seen) -> bool {
        let version = |seen: &Seen| seen.row.as_ref().map(|row| row.version);
        version(&self.from) == version(seen) && seen.now <= self.from.until
    }
}

/// Renews by the records. A name whose record another client changed first is retried at once, as long as there is
/// time. A row that is unchanged and was still not written is locked. `hurry`: whether other answers wait for these.
async fn renew_records(
    table: &impl LeaseTable,
    grants: &BTreeMap<&Name, Vec<&Grant>>,
    mut seen: Option<Vec<(String, Seen)>>,
    (end, hurry): (Moment, bool),
) -> Result<Answers, StoreError> {
    let mut told = Answers::new();
    let mut open: BTreeMap<&Name, Option<Hope<'_>>> = grants.keys().map(|name| (*name, None)).collect();
    loop {
        let sent = Moment::now();
        let names: Vec<&Name> = open.keys().copied().collect();
        let rows = match seen.take() {
            Some(rows) => Ok(rows),
            None => table.read_for_renewal(&names).await,
        };
        let mut rows: HashMap<String, Seen> = match rows {
            Err(error) if !told.is_empty() => {
                incomplete(table, &error);
                return Ok(told);
            }
            rows => rows?.into_iter().collect(),
        };
        let mut hopes = Vec::new();
        for (name, last) in open {
            let seen = rows.remove(name.as_str()).unwrap_or_else(|| Seen::new(sent, 0, 0, None));
            match last {
                // Not every database tells which of several rows were written.
                Some(hope) if hope.came_true(&seen) => {
                    told.extend(hope.answers);
                    continue;
                }
                Some(hope) if hope.is_untouched(&seen) => continue,
                _ => {}
            }
            match renew_record(name, &grants[name], seen) {
                Ok((answers, hope)) => {
                    told.extend(answers);
                    hopes.extend(hope);
                }
                // A problem with one row must not cost the others their leases (clause L9).
                Err(error) => {
                    tracing::warn!(lock.name = %name, lock.store = table.store(), %error, "could not renew a lease");
                }
            }
        }
        if hopes.is_empty() {
            return Ok(told);
        }
        let swaps = hopes.iter().map(|Hope { name, from, to, .. }| Swap { name, from, to });
        let limit = (end, hurry || !told.is_empty());
        let written = match swap_in_parts(table, &swaps.collect::<Vec<_>>(), limit).await {
            Err(error) if !told.is_empty() => {
                incomplete(table, &error);
                return Ok(told);
            }
            written => written?,
        };
        let (done, changed): (Vec<_>, Vec<_>) =
            hopes.into_iter().partition(|hope| written.contains(hope.name.as_str()));
        told.extend(done.into_iter().flat_map(|hope| hope.answers));
        // Those renewed must learn of it in time.
        if changed.is_empty() || end.has_passed() {
            return Ok(told);
        }
        open = changed.into_iter().map(|hope| (hope.name, Some(hope))).collect();
    }
}

/// The answers that are certain, and those that hold if the row can be written.
fn renew_record<'g>(
    name: &'g Name,
    grants: &[&Grant],
    seen: Seen,
) -> Result<(Answers, Option<Hope<'g>>), StoreError> {
    let before = seen.record(name)?;
    let mut record = before.clone();
    let mut answers = Answers::new();
    for grant in grants {
        answers.push((grant.claim, record_rows::renew(&mut record, grant, &seen)));
    }
    if record == before {
        return Ok((answers, None));
    }
    if seen.row.as_ref().is_some_and(|row| row.record.is_none()) {
        // The statement would have renewed it, so the row is locked.
        answers.retain(|(_, answer)| *answer != Renewal::Renewed);
        return Ok((answers, None));
    }
    let to = seen.change(&before, &record)?;
    let from = seen.for_renewal(name, &before, grants);
    Ok((Answers::new(), Some(Hope { name, from, to, answers })))
}

/// Writes all of them by one statement, or as many at once as possible. If that fails, by one statement for each half,
/// and so on: a problem with one row must not cost the others their leases (clause L9).
async fn swap_in_parts<T: LeaseTable>(
    table: &T,
    swaps: &[Swap<'_>],
    (end, hurry): (Moment, bool),
) -> Result<HashSet<String>, StoreError> {
    let mut written = HashSet::new();
    let mut parts: VecDeque<_> = swaps.chunks(T::SWAPS_AT_ONCE).collect();
    while let Some(part) = parts.pop_front() {
        if end.has_passed() && (hurry || !written.is_empty()) {
            break;
        }
        match table.swap_for_renewal(part).await {
            Ok(names) => written.extend(names),
            Err(error) if error.is_unavailable() && written.is_empty() => return Err(error),
            Err(error) if error.is_unavailable() => {
                incomplete(table, &error);
                break;
            }
            Err(_) if part.len() > 1 => {
                let (one, other) = part.split_at(part.len() / 2);
                parts.extend([one, other]);
            }
            Err(error) => incomplete(table, &error),
        }
    }
    Ok(written)
}

/// Warns of a part that failed. Finished renewals count anyway.
fn incomplete(table: &impl LeaseTable, error: &StoreError) {
    tracing::warn!(lock.store = table.store(), %error, "part of a renewal failed");
}
