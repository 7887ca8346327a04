//! Renewal over a store of records: many leases at the same time, none of which waits for another's record.

use super::{
    RecordStore,
    change::{Changes, Write},
};
use crate::{
    contract::{Grant, LossCause, Moment, StoreError, lease},
    record::{Record, StoreTime},
    store::Renewal,
};
use futures_util::{StreamExt, stream};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

/// How many records are renewed at the same time, beside those that are slow to answer.
const RENEWED_AT_ONCE: usize = 16;

impl<S: RecordStore> Changes<S> {
    /// Renews these grants. `call`: how many calls there were before.
    pub(super) async fn renew(
        self: &Arc<Self>,
        grants: &[Grant],
        call: u32,
    ) -> Result<Vec<Renewal>, StoreError> {
        let Some(patience) = grants.iter().map(|grant| lease::renewal_patience(grant.lease)).min() else {
            return Ok(Vec::new());
        };
        let slots = &Semaphore::new(RENEWED_AT_ONCE);
        let renew = |(at, grant): (usize, Grant)| async move {
            let slot = slots.acquire().await;
            let mut renewed = pin!(timeout(patience / 2, self.renew_one(&grant)));
            // One that is slow goes on beside the others, which do not wait for it.
            let answer = if let Ok(answer) = timeout(patience / 16, &mut renewed).await {
                answer
            } else {
                drop(slot);
                renewed.await
            };
            (at, answer.unwrap_or_else(|_| Err(StoreError::unavailable("no answer"))))
        };
        // A record that cannot be read, or a request that hangs, costs no other lock its lease: each timely renewal
        // counts.
        let mut answers: Vec<Option<Result<Renewal, StoreError>>> = grants.iter().map(|_| None).collect();
        let mut in_turn: Vec<_> = grants.iter().cloned().enumerate().collect();
        // Each call starts with other records, so slow ones delay no lock for long.
        in_turn.rotate_left(first_of(call, grants.len()));
        let renewals = stream::iter(in_turn).map(renew);
        let renewals = renewals.buffer_unordered(grants.len()).take_until(sleep(patience / 4 * 3));
        let mut renewals = pin!(renewals);
        while let Some((at, answer)) = renewals.next().await {
            answers[at] = Some(answer);
        }
        told(grants, answers)
    }

    /// Renews one grant.
    ///
    /// Versions do not tell whether a swap came in time: the record may be unchanged since the lease expired. But an
    /// expired lease is not to be renewed (clause L2).
    async fn renew_one(self: &Arc<Self>, grant: &Grant) -> Result<Renewal, StoreError> {
        let (mut expired, mut until) = (Moment::now(), None);
        let kept = &Grant { lease: grant.lease + self.store.margin(), ..grant.clone() };
        let renew = |record: &mut Record, now: StoreTime, _: Moment| {
            let left = until_of(record, grant, now).map_or(Duration::ZERO, |until| until.since(now));
            // No sooner than by the store's clock, since the store took its time before it answered.
            expired = Moment::now() + left;
            let renewal = record.renew(kept, now);
            until = until_of(record, grant, now);
            if matches!(renewal, Renewal::Lost(_)) && until.is_none() {
                // So that a renewal that is still on its way finds nothing to renew.
                record.release(grant, now);
            }
            Ok(renewal)
        };
        let (renewal, _) = self.change(&grant.name, Write::Renewal(grant.claim), renew).await?;
        if renewal == Renewal::Renewed && expired.has_passed() {
            // It may have been carried out too late. The holder's own deadline has passed, unless another renewal has
            // been carried out since: then the holder may rely on that one.
            let undo = |record: &mut Record, now: StoreTime, _: Moment| {
                let stands = until_of(record, grant, now);
                if stands.is_some() && stands != until {
                    return Ok(Renewal::Renewed);
                }
                record.release(grant, now);
                Ok(Renewal::Lost(LossCause::Expired))
            };
            let (renewal, _) = self.change(&grant.name, Write::IfChanged, undo).await?;
            return Ok(renewal);
        }
        Ok(renewal)
    }
}

/// Until when the claim holds the name.
pub(super) fn until_of(record: &Record, grant: &Grant, now: StoreTime) -> Option<StoreTime> {
    record.live(now).find(|held| held.claim == grant.claim).map(|held| held.until)
}

/// Which of `count` records is the first in this call.
///
/// Steps of the golden ratio soon come near every record, even for a client that makes only every second or third call.
fn first_of(call: u32, count: usize) -> usize {
    const GOLDEN_RATIO: u32 = 0x9E37_79B9;
    let part = u64::from(call.wrapping_mul(GOLDEN_RATIO));
    usize::try_from((part * count as u64) >> 32).unwrap_or_default()
}

/// One answer for each grant, or an error if there is no answer for any.
fn told(
    grants: &[Grant],
    answers: Vec<Option<Result<Renewal, StoreError>>>,
) -> Result<Vec<Renewal>, StoreError> {
    let mut failed = None;
    let answers: Vec<_> = grants
        .iter()
        .zip(answers)
        .map(|(grant, answer)| match answer {
            Some(Ok(renewal)) => renewal,
            Some(Err(error)) => {
                tracing::debug!(lock.name = %grant.name, %error, "could not renew the leases of a record");
                failed.get_or_insert(error);
                Renewal::Unanswered
            }
            None => Renewal::Unanswered,
        })
        .collect();
    match failed {
        Some(error) if answers.iter().all(|answer| *answer == Renewal::Unanswered) => Err(error),
        _ => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_soon_renewed_first() {
        for (clients, count) in [(1, 100), (2, 74), (2, 64), (3, 100), (8, 33)] {
            let firsts: Vec<usize> = (0..64).map(|call| first_of(call * clients, count)).collect();
            let near =
                |at: usize| firsts.iter().any(|first| (at + count - first) % count < RENEWED_AT_ONCE * 2);
            assert!((0..count).all(near), "{clients} {count}: {firsts:?}");
        }
    }
}
