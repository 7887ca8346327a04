//! Closing one of several clients of a backend, and closing without a server (clauses U3, L4, W7).

use crate::{
    Check, Client, Need, Stage,
    case::cases,
    check::{
        Stop, at_most, deadline, ensure, ensure_matches, eventually, kept_out, rises, still_held, waits,
        within,
    },
    own_runtime::in_own_runtime,
    pause,
    saboteur::Hurt,
    stage::Opener,
    stopped_clock::{with_slow_clock, with_stopped_clock},
};
use std::time::Duration;
use tenure_core::{Error, Guard};
use tokio::task::JoinHandle;

cases!("closing":
    other_clients_go_on, other_clients_still_get_wakeups.threads(), close_ends_without_server.alone(),
);

/// A lease that is renewed while clients close, and otherwise expires during the case. A busy machine may take seconds
/// for a new connection.
const RENEWED_LEASE: Duration = Duration::from_secs(10);
/// A lease that is over before a wait of a few seconds is.
const LEASE: Duration = Duration::from_secs(4);
/// A lease that does not expire during the case.
const LONG_LEASE: Duration = Duration::from_mins(5);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a client may take to close all its connections, each with a short farewell.
const FAREWELL: Duration = Duration::from_secs(6);

/// One of several clients of a backend closes. The others' locks are still renewed, and their waits are granted.
async fn other_clients_go_on(stage: &Stage) -> Check {
    let ([holder, one], clients) = (stage.clients().await?, stage.opener());
    let names = [stage.name("a"), stage.name("brief")];
    let kept = one.lock(stage.name("kept")).lease(RENEWED_LEASE).acquire().await?;
    let first = deadline(&kept)?;
    let (guard, waiter) = wait_beside_a_close(&clients, &holder, &one, &names).await?;
    guard.release().await?;
    waiter.await??.release().await?;
    while !first.has_passed() {
        still_held(&kept)?;
        pause::look_again().await;
    }
    // So it was renewed.
    still_held(&kept)?;
    kept_out(&holder.lock(kept.name().as_str())).await?;
    Ok(kept.release().await?)
}

/// One of several clients of a backend closes. A waiter in another still gets its wake-up: its timers stand still when the
/// lock is released, so it cannot ask again by itself.
async fn other_clients_still_get_wakeups(stage: &Stage) -> Check {
    stage.needs(Need::Wakeups)?;
    let clients = stage.opener();
    let rounds = ["a", "b", "c"].map(|name| [stage.name(name), stage.name(&format!("{name}.brief"))]);
    in_own_runtime(move || async move {
        let [holder, one] = clients.with_stoppable_clock().await?;
        for names in rounds {
            let (guard, waiter) = wait_beside_a_close(&clients, &holder, &one, &names).await?;
            with_slow_clock("a release", async { Ok(guard.release().await?) }).await?;
            let woken = with_stopped_clock("a waiter's wake-up beside a close", async { waiter.await? });
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
    eventually!(PATIENCE, one.probe.calls().contending(name) == 1, "one waiter's request");
    // By then it is refused and asleep.
    pause::settle(Duration::from_millis(150)).await;
    within(PATIENCE, "closing beside another client of the backend", other.close()).await?;
    // By then it is asleep again, even if it needed a new connection.
    pause::linger(Duration::from_millis(300)).await;
    ensure!(
        !waiter.is_finished(),
        "a wait for a held lock ended when another client of its backend closed: {:?}",
        waiter.await?
    );
    still_held(&guard)?;
    Ok((guard, waiter))
}

/// A client closes while its server answers neither a release nor a withdrawal. It tries for a lease, and no longer.
async fn close_ends_without_server(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::HalfOpen])?;
    let ([one, other], held, awaited) = (stage.clients().await?, stage.name("held"), stage.name("awaited"));
    let guard = one.lock(&held).lease(LEASE).acquire().await?;
    let token = guard.token();
    let theirs = other.lock(&awaited).lease(LONG_LEASE).acquire().await?;
    let waiter = waits(one.lock(&awaited).lease(LEASE));
    eventually!(PATIENCE, one.probe.calls().contending(&awaited) == 1, "one waiter's request");
    saboteur.hurt(Hurt::HalfOpen).await?;
    drop(guard);
    within(at_most(LEASE + FAREWELL), "closing without a server", one.close()).await?;
    let waited = within(PATIENCE, "the end of a wait when its client has closed", waiter).await??;
    ensure_matches!(waited, Err(Error::Closed { .. }));
    ensure_matches!(one.lock(&held).try_acquire().await, Err(Error::Closed { .. }));
    // Sentinels may have chosen another master, which would not know of later requests to the old one.
    saboteur.heal().await?;
    released_or_lost(theirs.release().await)?;
    let next = other.lock(&held).lease(LONG_LEASE).wait(PATIENCE * 2).acquire().await?;
    rises(token, next.token())?;
    released_or_lost(next.release().await)
}

/// A server that was silent so long may end sessions, even just after the next grant.
fn released_or_lost(outcome: Result<(), Error>) -> Check {
    match outcome {
        Ok(()) | Err(Error::Lost { .. }) => Ok(()),
        Err(error) => Err(Stop::from(error)),
    }
}
