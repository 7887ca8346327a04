//! Loss: reported once, in time, with its cause, and final (clauses L5, U1, U2, F2).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, deadline, ensure, ensure_eq, ensure_matches, expired, free_at_once, kept_out,
        lost_with, millis, still_held, within,
    },
    pause,
};
use futures_util::FutureExt;
use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Claim, ClaimId, Grant, Guard, LossCause, Moment, Release, Renewal};

cases!("loss":
    lost_on_takeover.policy(), lost_on_deadline_when_store_hangs.policy(),
    release_is_not_a_loss.policy(),
    late_renewal_never_revives.policy(), release_after_loss_is_err.policy(), stale_requests_harmless,
);

/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lease that runs out: a third of it is longer than a busy store takes for an answer, and a grant with a later
/// answer is renewed first.
const LEASE: Duration = Duration::from_secs(3);
/// A lease that lasts while another client takes the lock from its holder.
const LONG_LEASE: Duration = Duration::from_secs(12);

/// The client's latest grant of this name.
fn grant_of(client: &Client, name: &str) -> Check<Grant> {
    client
        .probe
        .grant(name)
        .ok_or_else(|| Stop::failed(format_args!("the suite's own error: {name:?} was never granted")))
}

/// Ends the grant without its holder's knowledge, which the contract forbids to clients.
async fn take_away(holder: &Client, name: &str, other: &Client) -> Check {
    let grant = grant_of(holder, name)?;
    let answer = other.probe.backend().release(&grant).await?;
    ensure_matches!(answer, Release::Released { .. }, "the store's answer to the release of a live grant");
    Ok(())
}

/// Another client gets the lock during the lease. The holder reports the loss, with that cause, and its error names it.
async fn lost_on_takeover(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LONG_LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    // A renewal before there is a successor would report another cause.
    one.probe.always(Method::Renew, Fault::Refuse);
    take_away(&one, &name, &other).await?;
    let successor = other.take(&name).await?;
    one.probe.heal();
    let cause = within(lease, "the loss of a lock that was granted to another client", guard.lost()).await?;
    ensure_eq!(cause, LossCause::TakenOver);
    ensure!(
        !guard.is_held() && guard.deadline().is_none(),
        "a lost lock must not be held nor have a deadline: {guard:?}"
    );
    still_held(&successor)?;
    successor.release().await?;
    let released = guard.release().await;
    let text = released.as_ref().err().map(ToString::to_string).unwrap_or_default();
    for part in [&*name, &cause.to_string(), one.store()] {
        ensure!(text.contains(part), "the error of a lost lock must name {part:?}: {text}");
    }
    ensure_eq!(lost_with(released)?, LossCause::TakenOver);
    Ok(())
}

/// The store stops answering. The holder reports the loss at its deadline, and late answers do not revive it.
async fn lost_on_deadline_when_store_hangs(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    one.probe.freeze();
    let deadline = deadline(&guard)?;
    let cause = within(lease, "the loss of a lock while its store hangs", guard.lost()).await?;
    ensure_eq!(cause, LossCause::Expired);
    ensure!(deadline.has_passed(), "the lock was reported lost {:?} before its deadline", deadline.left());
    let at_once = guard.lost().now_or_never();
    ensure_eq!((at_once, guard.loss()), (Some(cause), Some(cause)), "the cause of a loss that was reported");
    let successor = other.take(&name).await?;
    one.probe.thaw();
    pause::linger(lease).await;
    ensure!(!guard.is_held(), "a late answer of the store revived a lost lock: {guard:?}");
    still_held(&successor)?;
    kept_out(&one.lock(&name)).await?;
    successor.release().await?;
    lost_with(guard.release().await).map(drop)
}

/// A lock is released or dropped. `lost` never resolves.
async fn release_is_not_a_loss(stage: &Stage) -> Check {
    let (lease, client, name) = (millis(5000), stage.client().await?, stage.name("a"));
    for dropped in [false, true] {
        let guard = client.lock(&name).lease(lease).wait(PATIENCE).acquire().await?;
        let (hold, mut lost) = (guard.hold(), Box::pin(guard.lost()));
        let watching = tokio::spawn(guard.lost());
        if dropped {
            drop(guard);
        } else {
            guard.release().await?;
        }
        ensure!(
            !hold.is_held() && hold.deadline().is_none(),
            "a released lock must not be held nor have a deadline: {hold:?}"
        );
        // Past the deadline of the last renewal.
        pause::linger(lease * 3 / 2).await;
        ensure!(
            lost.as_mut().now_or_never().is_none() && !watching.is_finished(),
            "a release was reported as a loss: {hold:?}"
        );
        ensure_eq!(hold.loss(), None, "the cause of the loss of a released lock");
        watching.abort();
    }
    Ok(())
}

/// The store accepts a renewal, but the answer comes after the deadline. The lock stays lost.
async fn late_renewal_never_revives(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LEASE, stage.clients().await?, stage.name("a"));
    let lock = one.lock(&name).lease(lease);
    // The store carries out an extension in time, but the answer arrives after the deadline.
    let guard = lock.clone().renew(false).acquire().await?;
    one.probe.next(Method::Renew, Fault::DelayReply(lease + millis(200)));
    lost_with(guard.extend(lease * 2).await)?;
    stays_lost(&guard, lease).await?;
    lost_with(guard.release().await)?;
    // Renewals are refused until just before the deadline; then the answer is a little too late.
    let guard = lock.wait(PATIENCE).acquire().await?;
    one.probe.always(Method::Renew, Fault::Refuse);
    // A renewal that was sent before may still move the deadline.
    let left = || guard.deadline().map(Moment::left).unwrap_or_default().saturating_sub(lease / 10);
    while !left().is_zero() {
        pause::settle(left()).await;
    }
    one.probe.always(Method::Renew, Fault::DelayReply(lease * 2 / 15));
    within(lease / 10, "the loss at the deadline", guard.lost()).await?;
    stays_lost(&guard, lease).await?;
    one.probe.heal();
    lost_with(guard.release().await)?;
    // The traces of a late answer are removed from the store, so the next client gets the lock.
    let taken = other.lock(&name).wait(lease * 2 + EXPIRY).acquire().await?;
    Ok(taken.release().await?)
}

async fn stays_lost(guard: &Guard, for_so_long: Duration) -> Check {
    let until = Moment::now() + for_so_long;
    while !until.has_passed() {
        ensure!(
            !guard.is_held() && guard.deadline().is_none(),
            "a late answer of the store revived a lost lock: {guard:?}"
        );
        ensure_eq!(guard.loss(), Some(LossCause::Expired));
        pause::look_again().await;
    }
    Ok(())
}

/// The release of a lost lock is `Err(Lost)`, also if only the store knows of the loss.
async fn release_after_loss_is_err(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    // The holder knows of the loss, with and without a successor.
    lost_with(one.lost_by_expiry(&name).await?.release().await)?;
    let guard = one.lost_by_expiry(&name).await?;
    let successor = other.take(&name).await?;
    lost_with(guard.release().await)?;
    successor.release().await?;
    // The store knows of the loss, and the holder does not yet.
    let guard = one.take(&name).await?;
    take_away(&one, &name, &other).await?;
    still_held(&guard)?;
    lost_with(guard.release().await)?;
    let guard = one.take(&name).await?;
    take_away(&one, &name, &other).await?;
    let successor = other.take(&name).await?;
    lost_with(guard.release().await)?;
    kept_out(&one.lock(&name)).await?;
    Ok(successor.release().await?)
}

/// Stops the case unless the successor still holds the lock, by its guard and by the store.
async fn untouched(successor: &Guard, holder: &Client, outsider: &Client) -> Check {
    let name = successor.name();
    still_held(successor)?;
    kept_out(&outsider.lock(&**name)).await?;
    let grant = grant_of(holder, name)?;
    let answers = holder.probe.backend().renew(&[grant]).await?;
    ensure_eq!(answers, [Renewal::Renewed], "the answer to a renewal of the successor");
    Ok(())
}

/// The claim of this grant, as it was sent.
fn claim_of(grant: &Grant) -> Claim {
    let Grant { claim: id, name, mode, lease, .. } = grant.clone();
    Claim { id, name, mode, lease, waits: true, reserve: 0, holder: Arc::default() }
}

/// A former holder renews, releases and withdraws its expired claim. The answer is that it is lost, and its successor still
/// holds the lock.
async fn stale_requests_harmless(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (guard, rest) = expired(one.lock(&name)).await?;
    // A store gives up a request for a short lease sooner.
    let (mut old, lease) = (grant_of(&one, &name)?, millis(20_000));
    old.lease = lease;
    // By then the lease has expired in the store too.
    pause::outlast(rest + millis(2) + stage.overtime()).await;
    let answers = one.probe.backend().renew(std::slice::from_ref(&old)).await?;
    ensure_matches!(answers[..], [Renewal::Lost(_)], "the answer to a renewal of an expired grant");
    let successor = free_at_once(&other.lock(&name)).await?;
    lost_with(guard.extend(lease).await)?;
    let answers = one.probe.backend().renew(std::slice::from_ref(&old)).await?;
    ensure_eq!(
        answers,
        [Renewal::Lost(LossCause::TakenOver)],
        "the answer to a renewal of a grant that has a successor"
    );
    untouched(&successor, &other, &one).await?;
    lost_with(guard.release().await)?;
    untouched(&successor, &other, &one).await?;
    // Asks the store directly: it has to compare the claim.
    let answer = one.probe.backend().release(&old).await?;
    ensure_matches!(answer, Release::Lost(_), "the store's answer to a release whose claim has a successor");
    untouched(&successor, &other, &one).await?;
    one.probe.backend().withdraw(&claim_of(&old)).await?;
    untouched(&successor, &other, &one).await?;
    successor.release().await?;
    // The stale requests left no lease behind.
    let probing = Claim { id: ClaimId::new(), ..claim_of(&old) };
    let answer = other.probe.backend().try_acquire(&probing).await?;
    ensure_matches!(
        answer,
        Attempt::Granted(_),
        "an attempt at a free name, after requests about an expired grant"
    );
    Ok(other.probe.backend().withdraw(&probing).await?)
}
