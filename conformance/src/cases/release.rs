//! Release: explicit, by dropping, by closing (clauses U1 to U4, W8).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, deadline, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, lost_with,
        still_held, waits, within,
    },
    pause,
};
use futures_util::FutureExt;
use std::{collections::HashSet, time::Duration};
use tenure_core::{ClaimId, Error, LossCause, Moment};

cases!("release":
    drop_releases.policy(), drop_outside_runtime_is_safe.threads(), close_drains.policy(),
    close_twice.policy(), close_withdraws_waiters.policy(),
    acquire_after_close_is_closed.policy(), release_retry_is_released,
    release_retry_past_lease_is_lost.policy(), release_retry_after_force_is_lost.policy(),
);

/// A lease that runs out.
const LEASE: Duration = Duration::from_secs(3);
/// For waits that end by themselves when all is well. Leases here are 30 s, so waiting does not free a lock that was
/// not released.
const SOON: Duration = Duration::from_secs(15);

/// A guard is dropped, and a task that holds one is aborted. Both locks are released.
async fn drop_releases(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    let hold = guard.hold();
    drop(guard);
    ensure!(!hold.is_held(), "a dropped guard still says that it is held: {hold:?}");
    let taken = other.lock(&name).wait(SOON).acquire().await?;
    ensure_eq!(one.probe.count(Method::Release, &name), 1, "release requests for one dropped guard");
    taken.release().await?;
    // A task that is aborted drops its guard.
    let lock = one.lock(&name).wait(SOON);
    let holder = tokio::spawn(async move {
        let _guard = lock.acquire().await;
        std::future::pending::<()>().await;
    });
    eventually!(
        SOON,
        other.lock(&name).try_acquire().await?.is_none(),
        "a refusal while a task holds the lock"
    );
    holder.abort();
    let taken = other.lock(&name).wait(SOON).acquire().await?;
    Ok(taken.release().await?)
}

/// A guard is dropped in a thread without a runtime. That does not panic, and the lock is released.
async fn drop_outside_runtime_is_safe(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    let dropped = tokio::task::spawn_blocking(move || std::thread::spawn(move || drop(guard)).join().is_ok());
    ensure!(dropped.await?, "a guard was dropped in a thread without a runtime, and that panicked");
    Ok(other.lock(&name).wait(SOON).acquire().await?.release().await?)
}

/// A client closes after it dropped guards. `close` returns when their releases are done.
async fn close_drains(stage: &Stage) -> Check {
    const LOCKS: usize = 20;
    let [one, other] = stage.clients().await?;
    let slow = Duration::from_millis(300);
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(one.lock(stage.name(&number.to_string())).acquire().await?);
    }
    one.probe.always(Method::Release, Fault::DelayRequest(slow));
    let begun = Moment::now();
    drop(guards);
    within(SOON, "closing while releases are under way", one.close()).await?;
    let took = Moment::now().since(begun);
    ensure!(
        took >= slow,
        "`close` returned after {took:?}, before the releases reached the store: it must wait for them"
    );
    for number in 0..LOCKS {
        free_at_once(&other.lock(stage.name(&number.to_string()))).await?.release().await?;
    }
    ensure_eq!(one.names_in_use(), 0, "queues left in a closed client");
    Ok(())
}

/// `close` is called twice, at once and again. Each call returns, and the backend is closed.
async fn close_twice(stage: &Stage) -> Check {
    let ([one, other, three], name) = (stage.clients().await?, stage.name("a"));
    drop(one.lock(&name).acquire().await?);
    let at_once = async { tokio::join!(one.close(), one.close()) };
    within(SOON, "two calls of `close` at once", at_once).await?;
    within(SOON, "a call of `close` on a closed client", one.close()).await?;
    free_at_once(&other.lock(&name)).await?.release().await?;
    ensure!(disconnected(&one), "`Locks::close` must call `Backend::close`");
    // Another client waited when this one released its last lock: that keeps no connection open either.
    let guard = other.lock(&name).acquire().await?;
    let (lock, next) = (three.lock(&name).wait(SOON), three.clone());
    let waiter = tokio::spawn(async move { Check::Ok(lock.acquire().await?.release().await?) });
    eventually!(SOON, next.probe.calls().contending(&name) == 1, "one waiter's request");
    pause::settle(Duration::from_millis(200)).await;
    drop(guard);
    within(SOON, "closing after a release for which another client waited", other.close()).await?;
    ensure!(disconnected(&other), "`Locks::close` must call `Backend::close`");
    waiter.await?
}

/// The claims that requests of this kind were about.
fn claims(client: &Client, method: Method, name: &str) -> HashSet<ClaimId> {
    let calls = client.probe.calls().about(name).into_iter().filter(|call| call.method == method);
    calls.flat_map(|call| call.about).filter_map(|(_, claim)| claim).collect()
}

/// Whether the client closed its connections.
fn disconnected(client: &Client) -> bool {
    client.probe.calls().all().iter().any(|call| call.method == Method::Close)
}

/// A client closes while it waits. Its claims are withdrawn, and its waits end with `Err(Closed)`.
async fn close_withdraws_waiters(stage: &Stage) -> Check {
    let [one, other, next] = stage.clients().await?;
    for number in 0..3 {
        let (name, leaving) = (stage.name(&number.to_string()), stage.client().await?);
        let guard = one.lock(&name).acquire().await?;
        let waiters = [leaving.lock(&name), leaving.lock(&name)].map(waits);
        eventually!(SOON, leaving.probe.calls().contending(&name) == 1, "one waiter's request");
        within(SOON, "closing a client while it waits for locks", leaving.close()).await?;
        // By now every claim is withdrawn and the backend is closed. The second waiter may have sent a request too, if
        // the first left the queue before the second noticed the closing.
        let asked = claims(&leaving, Method::Acquire, &name);
        ensure_eq!(
            claims(&leaving, Method::Withdraw, &name),
            asked,
            "claims withdrawn when their client closed"
        );
        ensure!(disconnected(&leaving), "`Locks::close` must call `Backend::close`");
        guard.release().await?;
        free_at_once(&next.lock(&name)).await?.release().await?;
        for waiter in waiters {
            ensure_matches!(waiter.await?, Err(Error::Closed { .. }));
        }
    }
    // An acquire that is not polled cannot notice the closing, and does not keep `close` waiting for ever.
    let name = stage.name("unpolled");
    let guard = one.lock(&name).acquire().await?;
    let lock = other.lock(&name);
    let mut waiting = Box::pin(lock.acquire());
    ensure!((&mut waiting).now_or_never().is_none(), "a waiter was granted a held lock");
    within(SOON, "closing while an acquire of this client is not polled", other.close()).await?;
    ensure_matches!(waiting.await, Err(Error::Closed { .. }));
    Ok(guard.release().await?)
}

/// A closed client acquires nothing more, without a request. The locks that it holds are still renewed.
async fn acquire_after_close_is_closed(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(12);
    let kept = one.lock(stage.name("kept")).lease(lease).acquire().await?;
    let held = other.lock(&name).acquire().await?;
    let lock = one.lock(&name);
    let waiter = waits(lock.clone());
    eventually!(SOON, one.probe.calls().contending(&name) == 1, "one waiter's request");
    within(SOON, "closing a client that holds a lock", one.close()).await?;
    let outcome = within(SOON, "the end of a wait when its client closes", waiter).await??;
    ensure_matches!(outcome, Err(Error::Closed { .. }));
    let asked = one.probe.count(Method::TryAcquire, &name) + one.probe.count(Method::Acquire, &name);
    ensure_matches!(lock.acquire().await, Err(Error::Closed { .. }));
    ensure_matches!(lock.try_acquire().await, Err(Error::Closed { .. }));
    let waitless = lock.clone().wait(Duration::ZERO).acquire().await;
    ensure_matches!(waitless, Err(Error::Closed { .. }));
    let after = one.probe.count(Method::TryAcquire, &name) + one.probe.count(Method::Acquire, &name);
    ensure_eq!(after, asked, "requests for the lock, before and after acquires of a closed client");
    // Live guards stay valid, and are renewed.
    pause::keep(lease * 3 / 2).await;
    still_held(&kept)?;
    kept.release().await?;
    Ok(held.release().await?)
}

/// The first release fails or its reply is lost. It is sent again, and the lock is free.
async fn release_retry_is_released(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for fault in [Fault::LoseReply, Fault::Refuse] {
        let guard = one.lock(&name).wait(SOON).acquire().await?;
        let before = one.probe.count(Method::Release, &name);
        one.probe.next(Method::Release, fault);
        guard.release().await?;
        let sent = one.probe.count(Method::Release, &name) - before;
        ensure_eq!(sent, 2, "release requests when the first had the fault {fault:?}");
        free_at_once(&other.lock(&name)).await?.release().await?;
    }
    Ok(())
}

/// The first release fails, and another client forces the release meanwhile. A store that records the force reports
/// it to the repeated release.
async fn release_retry_after_force_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    other.force_release(&name).await?;
    let told = lost_with(guard.release().await)?;
    let guard = one.lock(&name).acquire().await?;
    let before = one.probe.count(Method::Release, &name);
    one.probe.always(Method::Release, Fault::Refuse);
    let release = tokio::spawn(guard.release());
    eventually!(SOON, one.probe.count(Method::Release, &name) > before, "a release request");
    other.force_release(&name).await?;
    one.probe.heal();
    let outcome = within(SOON, "a release whose first requests were refused", release).await??;
    if told == LossCause::Forced {
        ensure_eq!(lost_with(outcome)?, LossCause::Forced);
    }
    Ok(())
}

/// No release reaches the store until the lease has expired. It ends with an error, and does not harm the successor.
async fn release_retry_past_lease_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).renew(false).acquire().await?;
    let deadline = deadline(&guard)?;
    pause::settle(deadline.left().saturating_sub(Duration::from_millis(60))).await;
    // No release reaches the store before the lease has expired and another client holds the lock.
    one.probe.always(Method::Release, Fault::Refuse);
    let release = tokio::spawn(guard.release());
    let taken = other.lock(&name).wait(lease + EXPIRY).acquire().await?;
    ensure!(deadline.has_passed(), "granted to a waiter before the holder's deadline");
    one.probe.heal();
    let outcome = within(SOON, "a release that was refused until the lease had expired", release).await??;
    match outcome {
        Err(Error::Unavailable { .. }) => {}
        other => drop(lost_with(other)?),
    }
    still_held(&taken)?;
    kept_out(&one.lock(&name)).await?;
    Ok(taken.release().await?)
}
