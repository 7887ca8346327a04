//! Locks that stay held for a least time, although they are released sooner (clause L10).

use crate::{
    Check, Method, Need, Stage,
    case::cases,
    check::{EXPIRY, ensure, ensure_eq, ensure_matches, free_at_once, kept_out, rises, within},
};
use std::time::Duration;
use tenure_core::{Capability, Error, Lock, Moment, lease::drift_allowance};

cases!("least":
    released_early_stays_held.policy(), shared_grants_stay_held.policy(),
    hold_at_least_is_refused_in_sessions.policy(),
);

/// How long the locks of these cases stay held.
const SHORTEST: Duration = Duration::from_secs(6);

/// Stops the case unless `next` is kept out until `SHORTEST` after `before`, and gets in soon after that.
async fn kept_until(before: Moment, next: &Lock) -> Check {
    kept_out(next).await?;
    let taken =
        within(SHORTEST + EXPIRY, "the next grant of a lock with hold_at_least", next.acquire()).await??;
    let stayed = Moment::now().since(before);
    let soonest = SHORTEST.saturating_sub(drift_allowance(SHORTEST));
    ensure!(stayed >= soonest, "a lock with hold_at_least({SHORTEST:?}) was free again after {stayed:?}");
    Ok(taken.release().await?)
}

/// A lock with `hold_at_least` is released or dropped early. No client is granted it before that time is over.
async fn released_early_stays_held(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut last = None;
    for dropped in [false, true] {
        let before = Moment::now();
        let guard = one.lock(&name).lease(SHORTEST / 4).hold_at_least(SHORTEST).acquire().await?;
        let left = guard.deadline().map(Moment::left).unwrap_or_default();
        ensure!(
            left > SHORTEST / 4,
            "a lock with hold_at_least({SHORTEST:?}) has a lease of only {left:?}: it must last at least as long"
        );
        rises(last, guard.token())?;
        last = Some(guard.token());
        if dropped {
            drop(guard);
        } else {
            guard.release().await?;
            // The former holder has to wait as well.
            kept_out(&one.lock(&name)).await?;
        }
        kept_until(before, &other.lock(&name)).await?;
    }
    Ok(())
}

/// A reader with `hold_at_least` releases early. It excludes writers for that time, but not readers.
async fn shared_grants_stay_held(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let before = Moment::now();
    let reader = one.rw(&name).read().hold_at_least(SHORTEST).acquire().await?;
    reader.release().await?;
    free_at_once(&other.rw(&name).read()).await?.release().await?;
    kept_until(before, &other.rw(&name).write()).await
}

/// On a store with sessions, `hold_at_least` is `Err(Unsupported)`.
async fn hold_at_least_is_refused_in_sessions(stage: &Stage) -> Check {
    stage.needs(Need::Session)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let outcome = client.lock(&name).hold_at_least(SHORTEST).try_acquire().await;
    ensure_matches!(outcome, Err(Error::Unsupported { capability: Capability::HoldingAtLeast, .. }));
    ensure_eq!(client.probe.count(Method::TryAcquire, &name), 0, "requests to the store");
    Ok(())
}
