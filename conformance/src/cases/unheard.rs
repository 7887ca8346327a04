//! Waiting without being told, as each store waits by itself (clause W4).

use crate::{
    Check, Client, Need, Stage,
    case::cases,
    check::{Stop, ensure, ensure_matches, eventually, lost_with, rises, within},
    pause,
    saboteur::Hurt,
};
use std::time::Duration;
use tenure_core::{Error, Guard, LossCause, Moment, StandingKind};
use tokio::task::JoinHandle;

cases!("waiting": shortened_lease_is_noticed, lost_wakeup_is_made_up_for.alone());

/// A lease that does not expire during a case.
const LONG_LEASE: Duration = Duration::from_mins(5);
/// What remains of a lease that its holder shortens. A store gives up a request for a shorter one sooner.
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
    eventually!(PATIENCE, client.probe.calls().contending(name) == 1);
    pause::linger(Duration::from_millis(500)).await;
    ensure!(!waiter.is_finished(), "the name is held, and the wait was over: {:?}", waiter.await?);
    Ok(waiter)
}

/// No store tells its waiters that a lease was shortened, and they were told how long it would last.
async fn shortened_lease_is_noticed(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(LONG_LEASE).renew(false).acquire().await?;
    let waiter = asleep(&other, &name).await?;
    // On a busy machine it ends before the store's answer.
    ensure_matches!(guard.extend(REST).await, Ok(()) | Err(Error::Lost { .. }));
    // From now on, what remains is at most that.
    let shortened = Moment::now();
    let bound = stage.at_most(REST + stage.capabilities().ask_again);
    let waited = within(bound, "the end of a lease that its holder had shortened, for who waits", waiter);
    let (taken, had) = waited.await???;
    ensure!(!guard.is_held(), "two guards say that they hold the lock: {guard:?} {taken:?}");
    let took = had.since(shortened);
    ensure!(
        took <= bound,
        "the lease had {REST:?} left, and a waiter was granted the lock only after {took:?}"
    );
    rises(guard.token(), taken.token())?;
    lost_with(guard.release().await)?;
    Ok(taken.release().await?)
}

/// The release reaches the server, and its news reaches nobody.
async fn lost_wakeup_is_made_up_for(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::DropReplies])?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(LONG_LEASE).acquire().await?;
    let before = guard.token();
    let waiter = asleep(&other, &name).await?;
    saboteur.drop_replies().await?;
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
    // A slow store may have got the release only after the mending.
    let released = Moment::now();
    let (taken, had) = within(PATIENCE, "the lock's next turn", waiter).await???;
    rises(before, taken.token())?;
    let (took, bound) = (had.since(released), stage.at_most(stage.capabilities().ask_again));
    ensure!(took <= bound, "the news of a release was lost, and the waiter asked again only after {took:?}");
    Ok(taken.release().await?)
}
