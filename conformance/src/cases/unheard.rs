//! Waiting without a wake-up (clause W4).

use crate::{
    Check, Client, Need, Stage,
    case::cases,
    check::{Stop, at_most, ensure, ensure_matches, eventually, lost_with, rises, within},
    pause,
    saboteur::Hurt,
};
use std::time::Duration;
use tenure_core::{Error, Guard, LossCause, Moment, StandingKind};
use tokio::task::JoinHandle;

cases!("waiting": shortened_lease_is_noticed, release_with_lost_wakeup_is_noticed.alone());

/// A lease that does not expire during a case.
const LONG_LEASE: Duration = Duration::from_mins(5);
/// The rest of a lease that its holder shortens. A store gives up a request for a shorter one sooner.
const REST: Duration = Duration::from_secs(6);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another client's wait, once it has been refused and is asleep, and when it ended.
async fn asleep(client: &Client, name: &str) -> Check<JoinHandle<Check<(Guard, Moment)>>> {
    let lock = client.lock(name).wait(PATIENCE);
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        Check::Ok((guard, Moment::now()))
    });
    eventually!(PATIENCE, client.probe.calls().contending(name) == 1, "one waiter's request");
    pause::linger(Duration::from_millis(500)).await;
    ensure!(!waiter.is_finished(), "a wait for a held lock ended: {:?}", waiter.await?);
    Ok(waiter)
}

/// A holder shortens its lease while a client waits. The waiter asks again and is granted the lock soon after the
/// shorter lease has expired, although no wake-up announces it.
async fn shortened_lease_is_noticed(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(LONG_LEASE).renew(false).acquire().await?;
    let waiter = asleep(&other, &name).await?;
    // On a busy machine it ends before the store's answer.
    ensure_matches!(guard.extend(REST).await, Ok(()) | Err(Error::Lost { .. }));
    // From now on, at most that much of the lease remains.
    let shortened = Moment::now();
    let bound = at_most(REST + stage.overtime() + stage.capabilities().ask_again);
    let waited = within(bound, "a waiter's grant after the holder had shortened its lease", waiter);
    let (taken, had) = waited.await???;
    ensure!(
        !guard.is_held(),
        "the lock was granted to a waiter while its former holder still holds it: {guard:?}, {taken:?}"
    );
    let took = had.since(shortened);
    ensure!(
        took <= bound,
        "the holder shortened its lease to {REST:?}, but a waiter was granted the lock only after {took:?}"
    );
    rises(guard.token(), taken.token())?;
    lost_with(guard.release().await)?;
    Ok(taken.release().await?)
}

/// A release reaches the server, but its answer and its wake-up are lost. The waiter asks again in time.
async fn release_with_lost_wakeup_is_noticed(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::DropReplies])?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(LONG_LEASE).acquire().await?;
    let before = guard.token();
    let waiter = asleep(&other, &name).await?;
    saboteur.hurt(Hurt::DropReplies).await?;
    let releasing = tokio::spawn(guard.release());
    pause::settle(Duration::from_millis(300)).await;
    saboteur.mend().await?;
    let standing = stage.capabilities().standing;
    match within(PATIENCE, "a release whose answer was lost", releasing).await?? {
        Ok(()) => {}
        // Its connection was reset, and the session may have been that connection.
        Err(Error::Lost { cause: LossCause::SessionEnded, .. }) if standing == StandingKind::Session => {}
        Err(error) => return Err(Stop::from(error)),
    }
    // A slow store may get the release only after the fault.
    let released = Moment::now();
    let (taken, had) = within(PATIENCE, "a waiter's grant after a release", waiter).await???;
    rises(before, taken.token())?;
    let (took, bound) = (had.since(released), at_most(stage.capabilities().ask_again));
    ensure!(
        took <= bound,
        "a wake-up was lost, and the waiter was granted the free lock only after {took:?}, expected at most {bound:?}"
    );
    Ok(taken.release().await?)
}
