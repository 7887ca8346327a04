//! A renewal of many leases, in parts where it cannot be carried out as a whole.

use std::future::Future;
use tenure_core::{Grant, Renewal, StoreError};

/// Renews all of them by one request. When that cannot be carried out, by one for either half, and so on: what is wrong with
/// one row is not to cost the others their leases (clause L9).
pub(crate) async fn renew_in_parts<'g, Renewed>(
    store: &str,
    grants: &'g [Grant],
    renew: impl Fn(&'g [Grant]) -> Renewed + Send,
) -> Result<Vec<Renewal>, StoreError>
where
    Renewed: Future<Output = Result<Vec<Renewal>, StoreError>> + Send,
{
    let (mut answers, mut parts) = (Vec::with_capacity(grants.len()), vec![grants]);
    while let Some(part) = parts.pop() {
        match renew(part).await {
            Ok(told) => answers.extend(told),
            Err(error) if error.is_unavailable() || grants.len() == 1 => {
                if answers.is_empty() {
                    return Err(error);
                }
                tracing::warn!(lock.store = store, %error, "a part of a renewal failed");
                break;
            }
            Err(error) => {
                if let [grant] = part {
                    tracing::warn!(lock.name = %grant.name, lock.store = store, %error, "a lease could not be renewed");
                    answers.push(Renewal::Unanswered);
                } else {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
    }
    answers.resize(grants.len(), Renewal::Unanswered);
    Ok(answers)
}
