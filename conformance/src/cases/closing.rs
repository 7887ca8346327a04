//! Closing: beside other clients of the same backend, which go on, and without a server (clauses U3, L4, W7).

use crate::{
    Check, Client, Need, Stage,
    case::cases,
    check::{Stop, deadline, ensure, ensure_matches, eventually, kept_out, rises, still_held, within},
    own_runtime::in_own_runtime,
    pause,
    saboteur::Hurt,
    stage::Opener,
    stopped_clock::with_stopped_clock,
};
use std::time::Duration;
use tenure_core::{Error, Guard, Moment};
use tokio::task::JoinHandle;

cases!("closing": others_go_on, others_still_hear.threads(), ends_without_a_server.alone());

/// A lease that is renewed while clients close, and expires during the case unless it is. A busy machine may take
/// seconds for the connection that has to be made again.
const RENEWED_LEASE: Duration = Duration::from_secs(10);
/// A lease that is over before a wait of a few seconds is.
const LEASE: Duration = Duration::from_secs(4);
/// A lease that does not expire during the case.
const LONG_LEASE: Duration = Duration::from_mins(5);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a client may take to give up all its connections, each of which it says farewell to for a moment.
const FAREWELL: Duration = Duration::from_secs(6);

async fn others_go_on(stage: &Stage) -> Check {
    let ([holder, one], clients) = (stage.clients().await?, stage.opener());
    let names = [stage.name("a"), stage.name("brief")];
    let kept = one.lock(stage.name("kept")).lease(RENEWED_LEASE).acquire().await?;
    let first = deadline(&kept)?;
    for _ in 0..3 {
        let (guard, waiter) = wait_beside_a_close(&clients, &holder, &one, &names).await?;
        guard.release().await?;
        waiter.await??.release().await?;
    }
    while !first.has_passed() {
        still_held(&kept)?;
        pause::look_again().await;
    }
    // Only a renewal can have given it another deadline.
    still_held(&kept)?;
    kept_out(&holder.lock(kept.name().as_str())).await?;
    Ok(kept.release().await?)
}

/// Timers stand still when the lock is released, so the waiter cannot ask again by itself.
async fn others_still_hear(stage: &Stage) -> Check {
    stage.needs(Need::Wakeups)?;
    let (clients, names) = (stage.opener(), [stage.name("a"), stage.name("brief")]);
    in_own_runtime(move || async move {
        let (holder, one) = (clients.client().await?, clients.client().await?);
        for _ in 0..3 {
            let (guard, waiter) = wait_beside_a_close(&clients, &holder, &one, &names).await?;
            let woken = with_stopped_clock(async {
                guard.release().await?;
                waiter.await?
            });
            woken.await?.release().await?;
        }
        Ok(())
    })
    .await
}

/// Has `one` wait for the first name, which the returned guard of `holder` holds, while another client of its backend
/// comes, holds the second name, and closes.
async fn wait_beside_a_close(
    clients: &Opener,
    holder: &Client,
    one: &Client,
    [name, brief]: &[String; 2],
) -> Check<(Guard, JoinHandle<Check<Guard>>)> {
    let other = clients.client_beside(one);
    other.lock(brief).acquire().await?.release().await?;
    let guard = holder.lock(name).wait(PATIENCE).acquire().await?;
    let lock = one.lock(name).wait(PATIENCE);
    let waiter = tokio::spawn(async move { Check::Ok(lock.acquire().await?) });
    eventually!(PATIENCE, one.probe.calls().contending(name) == 1);
    // Until it has been refused and is asleep.
    pause::settle(Duration::from_millis(150)).await;
    within(PATIENCE, "closing beside another client", other.close()).await?;
    // Until it is asleep again, should its connection have been replaced.
    pause::linger(Duration::from_millis(300)).await;
    ensure!(!waiter.is_finished(), "another client closed, and the wait was over: {:?}", waiter.await?);
    still_held(&guard)?;
    Ok((guard, waiter))
}

/// A release and a withdrawal get no answer. They are tried for a lease, and no longer.
async fn ends_without_a_server(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::HalfOpen])?;
    let ([one, other], held, awaited) = (stage.clients().await?, stage.name("held"), stage.name("awaited"));
    let guard = one.lock(&held).lease(LEASE).acquire().await?;
    let token = guard.token();
    let theirs = other.lock(&awaited).lease(LONG_LEASE).acquire().await?;
    let lock = one.lock(&awaited).lease(LEASE);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually!(PATIENCE, one.probe.calls().contending(&awaited) == 1);
    saboteur.half_open().await?;
    drop(guard);
    within(stage.at_most(LEASE + FAREWELL), "closing without a server", one.close()).await?;
    let waited = within(PATIENCE, "the end of a wait whose client has closed", waiter).await??;
    ensure_matches!(waited, Err(Error::Closed { .. }));
    ensure_matches!(one.lock(&held).try_acquire().await, Err(Error::Closed { .. }));
    // Sentinels may have chosen another master, which would not know what the old one is told from now on.
    saboteur.heal().await?;
    released_or_lost(theirs.release().await)?;
    let next = other.lock(&held).lease(LONG_LEASE).wait(PATIENCE * 2).acquire().await?;
    rises(token, next.token())?;
    released_or_lost(next.release().await)
}

/// A server that was silent for so long may end sessions, even just after the next grant.
fn released_or_lost(outcome: Result<(), Error>) -> Check {
    match outcome {
        Ok(()) | Err(Error::Lost { .. }) => Ok(()),
        Err(error) => Err(Stop::from(error)),
    }
}
