//! A renewal of many leases, in parts if it cannot be carried out as a whole.

use std::{collections::VecDeque, future::Future, time::Duration};
use tenure_core::{Grant, Moment, Renewal, StoreError};

/// Until when a partly answered renewal may go on: half as long as the caller waits for it. Otherwise the caller would
/// not learn of the finished part (clause L9).
pub(crate) fn end_of_renewal(grants: &[Grant]) -> Moment {
    let shortest = grants.iter().map(|grant| grant.lease).min();
    Moment::now() + shortest.map_or(Duration::ZERO, |lease| lease / 12)
}

/// Renews all of them by one request. If that fails, by one request for each half, and so on, the largest parts first:
/// a problem with one row must not cost the others their leases (clause L9).
pub(crate) async fn renew_in_parts<'g, Renewed>(
    store: &str,
    grants: &'g [Grant],
    end: Moment,
    renew: impl Fn(&'g [Grant]) -> Renewed + Send,
) -> Result<Vec<Renewal>, StoreError>
where
    Renewed: Future<Output = Result<Vec<Renewal>, StoreError>> + Send,
{
    let mut answers = vec![Renewal::Unanswered; grants.len()];
    let mut parts = VecDeque::new();
    parts.push_back(0..grants.len());
    while let Some(part) = parts.pop_front() {
        if Moment::now() >= end && answers.iter().any(|answer| *answer != Renewal::Unanswered) {
            break;
        }
        match renew(&grants[part.clone()]).await {
            Ok(told) => {
                for (at, told) in part.zip(told) {
                    answers[at] = told;
                }
            }
            Err(error) if error.is_unavailable() || grants.len() == 1 => {
                if answers.iter().all(|answer| *answer == Renewal::Unanswered) {
                    return Err(error);
                }
                tracing::warn!(lock.store = store, %error, "part of a renewal failed");
                break;
            }
            Err(error) => {
                if let [grant] = &grants[part.clone()] {
                    tracing::warn!(lock.name = %grant.name, lock.store = store, %error, "could not renew a lease");
                } else {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
            }
        }
    }
    Ok(answers)
}
