//! The server's clock is set. Tokens rise, and each name has one holder by its client's own clock.

use super::scene::{OUTAGE, Scene, granted};
use crate::{
    Check, Need, Stage,
    case::cases,
    cases::store,
    check::{
        at_most, deadline, ensure, ensure_matches, eventually, kept_out, millis, rises, still_held, waits,
        within,
    },
    saboteur::Hurt,
};
use std::time::Duration;
use tenure_core::{Error, Grant, Guard, LossCause, StandingKind, Token};

cases!("faults_of_the_clock":
    clock_set_ahead.alone(), clock_set_back.alone(), late_copy_keeps_longer_lease.alone(),
);

const LEASE: Duration = Duration::from_secs(6);
/// Longer than every lease here.
const STEP: Duration = Duration::from_hours(1);

/// Checks that the clock was set between two grants, where tokens are times in microseconds: set ahead, the next token
/// is an hour greater; set back, it follows the last one.
fn was_set(before: Token, next: Token, ahead: bool) -> Check {
    const IN_2001: u64 = 1_000_000_000_000_000;
    let more = next.get().saturating_sub(before.get());
    let is_set = if ahead { u128::from(more) >= STEP.as_micros() } else { more < 1000 };
    ensure!(before.get() < IN_2001 || is_set, "the clock was not set: token {next} follows {before}");
    Ok(())
}

/// Waits for a renewal, or a heartbeat.
async fn renewed(guard: &Guard) -> Check {
    let before = deadline(guard)?;
    eventually!(
        at_most(LEASE),
        guard.deadline().is_none_or(|deadline| deadline > before),
        "a later deadline of {guard:?}"
    );
    still_held(guard)
}

/// The server ends the lease. Its holder is told at the next renewal, and a waiter gets the name. A row stays locked.
async fn clock_set_ahead(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::ClockAhead]).await?;
    let guard = scene.one.lock(&scene.name).lease(LEASE).acquire().await?;
    let (before, waiter) = (guard.token(), scene.waiter());
    // By two steps: tokens of other names may be a step ahead already.
    scene.saboteur.inject(Hurt::ClockAhead.by(STEP * 2)).await?;
    if scene.standing == StandingKind::Lease {
        let told = at_most(LEASE / 3 + millis(10));
        let cause = within(told, "the loss of a lease that the clock has ended", guard.lost()).await?;
        ensure_matches!(cause, LossCause::Expired | LossCause::TakenOver);
        ensure_matches!(guard.release().await, Err(Error::Lost { .. }));
    } else {
        renewed(&guard).await?;
        ensure!(!waiter.is_finished(), "granted while it is held: {:?}", waiter.await);
        guard.release().await?;
    }
    let next = granted(waiter).await?;
    rises(before, next.token())?;
    was_set(before, next.token(), true)?;
    next.release().await?;
    scene.end().await
}

/// A live holder renews its lease by the new clock. A dead one's stands until that clock has reached its end.
async fn clock_set_back(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::ClockBack]).await?;
    let ([dies, other], name) = (stage.clients().await?, stage.name("dead"));
    // First: a store may count the tokens of all names together.
    let dead = dies.lock(&name).lease(LEASE).acquire().await?;
    let guard = scene.one.lock(&scene.name).lease(LEASE).acquire().await?;
    let until = deadline(&dead)?;
    dies.probe.freeze();
    let saboteur = scene.saboteur.clone();
    saboteur.inject(Hurt::ClockBack.by(STEP)).await?;
    renewed(&guard).await?;
    let before = guard.token();
    was_set(before, scene.hand_on(guard).await?, false)?;
    scene.end().await?;
    if stage.capabilities().standing == StandingKind::Lease {
        within(at_most(LEASE), "the loss of a lease without renewal", dead.lost()).await?;
        ensure!(until.has_passed(), "lost before its deadline: {dead:?}");
        let lock = other.rival(&name).wait(OUTAGE);
        kept_out(&lock).await?;
        let waiter = waits(lock);
        saboteur.inject(Hurt::ClockAhead.by(STEP)).await?;
        let next = granted(waiter).await?;
        rises(dead.token(), next.token())?;
        next.release().await?;
    }
    dies.probe.heal();
    Ok(())
}

/// A lease is extended, the clock is set back, and a copy of the request for the first lease arrives.
async fn late_copy_keeps_longer_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let saboteur = stage.saboteur(&[Hurt::ClockAhead, Hurt::ClockBack])?;
    let ([client, other], claim) = (stage.clients().await?, store::claim(&stage.name("a"), LEASE)?);
    let (store, late) = (&**client.probe.backend(), &**other.probe.backend());
    let grant = store::granted(store, &claim).await?;
    store.renew(&[Grant { lease: STEP, ..grant.clone() }]).await?;
    saboteur.inject(Hurt::ClockBack.by(STEP)).await?;
    store::granted(late, &claim).await?;
    let left = store.holders(&claim.name).await?.first().and_then(|holder| holder.left);
    ensure!(left > Some(STEP), "only {left:?} of a lease of {STEP:?} are left");
    store.release(&grant).await?;
    Ok(saboteur.inject(Hurt::ClockAhead.by(STEP)).await?)
}
