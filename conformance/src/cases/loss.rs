//! Loss: reported once, in time, with its cause, and final (clauses L5, U1, U2, F2).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{self, EXPIRY, Stop, ensure, ensure_eq, ensure_matches, kept_out, lost_with, still_held, within},
    pause,
};
use futures_util::FutureExt;
use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Claim, ClaimId, Grant, Guard, LossCause, Moment, Release, Renewal};

cases!("loss":
    lost_on_takeover, lost_on_forced_release, lost_on_deadline_when_store_hangs.policy(), lost_when_already_lost.policy(),
    lost_never_on_release.policy(), late_ok_never_revives.policy(), loss_names_cause.policy(), release_after_loss_is_err,
    stale_release_harmless, stale_extend_harmless, drop_after_loss_silent.policy(),
);

/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lease that runs out: a third of it is longer than a busy store takes for an answer, and a grant that is answered
/// later is renewed first.
const LEASE: Duration = Duration::from_secs(3);
/// A lease that lasts while another takes the lock from its holder, even if the machine stands still for a while.
const LONG_LEASE: Duration = Duration::from_secs(12);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn take(client: &Client, name: &str) -> Check<Guard> {
    Ok(client.lock(name).wait(PATIENCE).acquire().await?)
}

/// A lock that was lost because nobody renewed it.
async fn expired(client: &Client, name: &str) -> Check<Guard> {
    Ok(check::expired(client.lock(name).wait(PATIENCE)).await?.0)
}

/// The client's latest grant of this name.
fn grant_of(client: &Client, name: &str) -> Check<Grant> {
    client.probe.grant(name).ok_or_else(|| Stop::failed(format_args!("{name:?} was never granted")))
}

/// Ends the grant behind its holder's back, as no client may by the contract.
async fn take_away(holder: &Client, name: &str, other: &Client) -> Check {
    let grant = grant_of(holder, name)?;
    let answer = other.probe.backend().release(&grant).await?;
    ensure_matches!(answer, Release::Released { .. });
    Ok(())
}

async fn lost_on_takeover(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LONG_LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    // A renewal before there is a successor would report another cause.
    one.probe.always(Method::Renew, Fault::Refuse);
    take_away(&one, &name, &other).await?;
    let successor = take(&other, &name).await?;
    one.probe.heal();
    let cause = within(lease, "the news that another has the lock", guard.lost()).await?;
    ensure_eq!(cause, LossCause::TakenOver);
    ensure!(!guard.is_held() && guard.deadline().is_none(), "lost, but {guard:?}");
    still_held(&successor)?;
    successor.release().await?;
    ensure_eq!(lost_with(guard.release().await)?, LossCause::TakenOver);
    Ok(())
}

async fn lost_on_forced_release(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let (lease, [one, other], name) = (millis(3000), stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    other.force_release(&name).await?;
    let cause = within(stage.at_most(lease), "the news of the forced release", guard.lost()).await?;
    let nobody_took_it = [LossCause::Forced, LossCause::Forgotten, LossCause::Expired];
    ensure!(nobody_took_it.contains(&cause), "released by force, and lost because {cause}");
    ensure!(!guard.is_held());
    ensure_eq!(lost_with(guard.release().await)?, cause);
    Ok(())
}

async fn lost_on_deadline_when_store_hangs(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    one.probe.freeze();
    // None if the machine stalled so long that it has passed.
    let deadline = guard.deadline();
    let cause = within(lease, "the loss while the store hangs", guard.lost()).await?;
    ensure_eq!(cause, LossCause::Expired);
    ensure!(
        deadline.is_none_or(Moment::has_passed),
        "lost {:?} before the deadline",
        deadline.map(Moment::left)
    );
    let successor = take(&other, &name).await?;
    one.probe.thaw();
    pause::linger(lease).await;
    ensure!(!guard.is_held(), "the thaw revived a lost lock");
    still_held(&successor)?;
    kept_out(&one.lock(&name)).await?;
    successor.release().await?;
    lost_with(guard.release().await).map(drop)
}

async fn lost_when_already_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = expired(&client, &name).await?;
    for hold in [guard.hold(), guard.hold()] {
        let at_once = hold.lost().now_or_never();
        ensure_eq!(at_once, Some(LossCause::Expired));
        ensure_eq!(hold.loss(), Some(LossCause::Expired));
        ensure!(!hold.is_held() && hold.deadline().is_none(), "lost, but {hold:?}");
    }
    lost_with(guard.release().await).map(drop)
}

async fn lost_never_on_release(stage: &Stage) -> Check {
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
        ensure!(!hold.is_held() && hold.deadline().is_none(), "released, but {hold:?}");
        // Past the deadline of the last renewal.
        pause::linger(lease * 3 / 2).await;
        ensure!(
            lost.as_mut().now_or_never().is_none() && !watching.is_finished(),
            "a release was reported as a loss"
        );
        ensure_eq!(hold.loss(), None);
        watching.abort();
    }
    Ok(())
}

async fn late_ok_never_revives(stage: &Stage) -> Check {
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
    // Whatever a late answer left in the store is cleaned up, so nobody waits for it.
    let taken = other.lock(&name).wait(lease * 2 + EXPIRY).acquire().await?;
    Ok(taken.release().await?)
}

async fn stays_lost(guard: &Guard, for_so_long: Duration) -> Check {
    let until = Moment::now() + for_so_long;
    while !until.has_passed() {
        ensure!(!guard.is_held() && guard.deadline().is_none(), "a lost lock was revived: {guard:?}");
        ensure_eq!(guard.loss(), Some(LossCause::Expired));
        pause::look_again().await;
    }
    Ok(())
}

async fn loss_names_cause(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other]) = (LONG_LEASE, stage.clients().await?);
    let [idle, taken, hung] = [stage.name("idle"), stage.name("taken"), stage.name("hung")];
    let ran_out = expired(&one, &idle).await?;
    let taken_away = one.lock(&taken).lease(lease).acquire().await?;
    let held_too_long = one.lock(&hung).lease(lease).max_hold(millis(600)).acquire().await?;
    // A renewal before there is a successor would report another cause.
    one.probe.always(Method::Renew, Fault::Refuse);
    take_away(&one, &taken, &other).await?;
    let successor = take(&other, &taken).await?;
    one.probe.heal();
    for (guard, cause) in [
        (ran_out, LossCause::Expired),
        (taken_away, LossCause::TakenOver),
        (held_too_long, LossCause::MaxHold),
    ] {
        let told = within(lease, "the loss", guard.lost()).await?;
        ensure_eq!((told, guard.loss()), (cause, Some(cause)), "the cause of the loss of {guard:?}");
        let name = guard.name().to_string();
        let Err(error) = guard.release().await else {
            return Err(Stop::failed(format_args!("released, although lost: {cause}")));
        };
        let text = error.to_string();
        for part in [&name, &cause.to_string(), one.store()] {
            ensure!(text.contains(part), "the error does not say {part:?}: {text}");
        }
    }
    Ok(successor.release().await?)
}

async fn release_after_loss_is_err(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    // The holder knows of the loss, with and without a successor.
    lost_with(expired(&one, &name).await?.release().await)?;
    let guard = expired(&one, &name).await?;
    let successor = take(&other, &name).await?;
    lost_with(guard.release().await)?;
    successor.release().await?;
    // The store knows of the loss, and the holder does not yet.
    let guard = take(&one, &name).await?;
    take_away(&one, &name, &other).await?;
    still_held(&guard)?;
    lost_with(guard.release().await)?;
    let guard = take(&one, &name).await?;
    take_away(&one, &name, &other).await?;
    let successor = take(&other, &name).await?;
    lost_with(guard.release().await)?;
    kept_out(&one.lock(&name)).await?;
    Ok(successor.release().await?)
}

/// Stops the case unless the successor is untouched, both by its guard and by the store.
async fn untouched(successor: &Guard, holder: &Client, outsider: &Client) -> Check {
    let name = successor.name();
    still_held(successor)?;
    kept_out(&outsider.lock(&**name)).await?;
    let grant = grant_of(holder, name)?;
    let answers = holder.probe.backend().renew(&[grant]).await?;
    ensure_eq!(answers, [Renewal::Renewed]);
    Ok(())
}

async fn stale_release_harmless(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = expired(&one, &name).await?;
    let old = grant_of(&one, &name)?;
    let successor = take(&other, &name).await?;
    lost_with(guard.release().await)?;
    untouched(&successor, &other, &one).await?;
    // Ask the store directly: it has to compare the claim.
    let answer = one.probe.backend().release(&old).await?;
    ensure_matches!(answer, Release::Lost(_));
    untouched(&successor, &other, &one).await?;
    one.probe.backend().withdraw(&claim_of(&old)).await?;
    untouched(&successor, &other, &one).await?;
    Ok(successor.release().await?)
}

/// The claim of this grant, as it was sent.
fn claim_of(grant: &Grant) -> Claim {
    let Grant { claim: id, name, mode, lease, .. } = grant.clone();
    Claim { id, name, mode, lease, waits: true, reserve: 0, holder: Arc::default() }
}

async fn stale_extend_harmless(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (guard, rest) = check::expired(one.lock(&name)).await?;
    // A store gives up a request for a short lease sooner.
    let (mut old, lease) = (grant_of(&one, &name)?, millis(20_000));
    old.lease = lease;
    // Nobody has acquired it yet, but by then it has expired in the store too.
    pause::outlast(rest + millis(2)).await;
    let answers = one.probe.backend().renew(std::slice::from_ref(&old)).await?;
    ensure_matches!(answers[..], [Renewal::Lost(_)]);
    let successor = take(&other, &name).await?;
    lost_with(guard.extend(lease).await)?;
    let answers = one.probe.backend().renew(std::slice::from_ref(&old)).await?;
    ensure_eq!(answers, [Renewal::Lost(LossCause::TakenOver)]);
    untouched(&successor, &other, &one).await?;
    successor.release().await?;
    // Nor did the stale renewals leave a lease behind.
    let probing = Claim { id: ClaimId::new(), ..claim_of(&old) };
    let answer = other.probe.backend().try_acquire(&probing).await?;
    ensure_matches!(answer, Attempt::Granted(_));
    Ok(other.probe.backend().withdraw(&probing).await?)
}

async fn drop_after_loss_silent(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, two, other, outsider], name) = (stage.clients().await?, stage.name("a"));
    let guard = expired(&one, &name).await?;
    let successor = take(&other, &name).await?;
    drop(guard);
    // By the end of closing, all that dropping the guard may have sent is done.
    one.close().await;
    untouched(&successor, &other, &outsider).await?;
    successor.release().await?;
    drop(expired(&two, &name).await?);
    let next = take(&other, &name).await?;
    Ok(next.release().await?)
}
