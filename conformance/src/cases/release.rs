//! Release: explicit, by dropping, by closing (clauses U1 to U4, W8).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, lost_with,
        still_held, within,
    },
    pause,
};
use futures_util::FutureExt;
use std::{collections::HashSet, sync::Arc, time::Duration};
use tenure_core::{ClaimId, Error, Locks, LossCause, Moment};

cases!("release":
    drop_releases, drop_outside_runtime_is_safe.threads(), close_drains, close_twice, close_withdraws_waiters,
    acquire_after_close_is_closed.policy(),
    release_retry_is_released, release_retry_past_lease_is_lost, release_retry_after_force_is_lost,
);

/// A lease that runs out: a third of it is longer than a busy store takes for an answer, and a grant that is answered
/// later is renewed first.
const LEASE: Duration = Duration::from_secs(3);
/// For waits that end by themselves when all is well. Leases here are 30 s, so waiting does not free a lock that was
/// not released.
const SOON: Duration = Duration::from_secs(15);

async fn drop_releases(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    let hold = guard.hold();
    drop(guard);
    ensure!(!hold.is_held());
    let taken = other.lock(&name).wait(SOON).acquire().await?;
    ensure_eq!(one.probe.count(Method::Release, &name), 1);
    taken.release().await?;
    // A task that is aborted drops its guard.
    let lock = one.lock(&name).wait(SOON);
    let holder = tokio::spawn(async move {
        let _guard = lock.acquire().await;
        std::future::pending::<()>().await;
    });
    eventually!(SOON, other.lock(&name).try_acquire().await?.is_none());
    holder.abort();
    let taken = other.lock(&name).wait(SOON).acquire().await?;
    Ok(taken.release().await?)
}

async fn drop_outside_runtime_is_safe(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    let dropped = tokio::task::spawn_blocking(move || std::thread::spawn(move || drop(guard)).join().is_ok());
    ensure!(dropped.await?, "dropping a guard in a thread without a runtime panicked");
    let taken = other.lock(&name).wait(SOON).acquire().await?;
    taken.release().await?;
    // The runtime is gone before the guard: nothing can be sent any more, and the lease expires by itself.
    stage.needs(Need::Lease)?;
    let (subject, name, lease) = (Arc::clone(stage.subject()), stage.name("b"), LEASE);
    let orphan = name.clone();
    let dropped = tokio::task::spawn_blocking(move || {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let guard = runtime.block_on(async {
                let locks = Locks::new(subject.backend().await.map_err(|error| Stop::failed(error))?);
                Check::Ok(locks.lock(orphan).lease(lease).acquire().await?)
            })?;
            drop(runtime);
            drop(guard);
            Check::Ok(())
        })
        .join()
    });
    let outcome = dropped.await?.map_err(|_| Stop::failed("dropping a guard after its runtime panicked"))?;
    outcome?;
    let taken = other.lock(&name).wait(stage.at_most(lease + EXPIRY)).acquire().await?;
    Ok(taken.release().await?)
}

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
    within(SOON, "closing with releases on their way", one.close()).await?;
    let took = Moment::now().since(begun);
    ensure!(took >= slow, "closed after {took:?}, before the releases were sent");
    for number in 0..LOCKS {
        free_at_once(&other.lock(stage.name(&number.to_string()))).await?.release().await?;
    }
    ensure_eq!(one.names_in_use(), 0);
    Ok(())
}

async fn close_twice(stage: &Stage) -> Check {
    let ([one, other, three], name) = (stage.clients().await?, stage.name("a"));
    drop(one.lock(&name).acquire().await?);
    let at_once = async { tokio::join!(one.close(), one.close()) };
    within(SOON, "closing twice at once", at_once).await?;
    within(SOON, "closing once more", one.close()).await?;
    free_at_once(&other.lock(&name)).await?.release().await?;
    ensure!(disconnected(&one));
    // Others waited when the last lock was released: that keeps no connection open either.
    let guard = other.lock(&name).acquire().await?;
    let (lock, next) = (three.lock(&name).wait(SOON), three.clone());
    let waiter = tokio::spawn(async move { Check::Ok(lock.acquire().await?.release().await?) });
    eventually!(SOON, next.probe.calls().contending(&name) == 1);
    pause::settle(Duration::from_millis(200)).await;
    drop(guard);
    within(SOON, "closing while another waits", other.close()).await?;
    ensure!(disconnected(&other));
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

async fn close_withdraws_waiters(stage: &Stage) -> Check {
    let [one, other, next] = stage.clients().await?;
    for number in 0..20 {
        let (name, leaving) = (stage.name(&number.to_string()), stage.client().await?);
        let guard = one.lock(&name).acquire().await?;
        let waiters = [leaving.lock(&name), leaving.lock(&name)]
            .map(|lock| tokio::spawn(async move { lock.acquire().await }));
        eventually!(SOON, leaving.probe.calls().contending(&name) == 1);
        within(SOON, "closing while locks are waited for", leaving.close()).await?;
        // All is over by now: every claim is withdrawn, and the store was told to disconnect. The second waiter may
        // have asked as well: the first left the queue while the second was about to notice the closing.
        let asked = claims(&leaving, Method::Acquire, &name);
        ensure_eq!(claims(&leaving, Method::Withdraw, &name), asked);
        ensure!(disconnected(&leaving));
        guard.release().await?;
        free_at_once(&next.lock(&name)).await?.release().await?;
        for waiter in waiters {
            ensure_matches!(waiter.await?, Err(Error::Closed { .. }));
        }
    }
    // An acquisition that nobody polls cannot notice the closing, and closing does not wait for it for ever.
    let name = stage.name("unpolled");
    let guard = one.lock(&name).acquire().await?;
    let lock = other.lock(&name);
    let mut waiting = Box::pin(lock.acquire());
    ensure!((&mut waiting).now_or_never().is_none());
    within(SOON, "closing beside an acquisition that nobody polls", other.close()).await?;
    ensure_matches!(waiting.await, Err(Error::Closed { .. }));
    Ok(guard.release().await?)
}

async fn acquire_after_close_is_closed(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    // Its renewal needs a connection that has to be made again, which may take a busy machine seconds.
    let lease = Duration::from_secs(12);
    let kept = one.lock(stage.name("kept")).lease(lease).acquire().await?;
    let held = other.lock(&name).acquire().await?;
    let lock = one.lock(&name);
    let waiter = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await })
    };
    eventually!(SOON, one.probe.calls().contending(&name) == 1);
    within(SOON, "closing while a lock is held", one.close()).await?;
    let outcome = within(SOON, "the end of a wait when these locks close", waiter).await??;
    ensure_matches!(outcome, Err(Error::Closed { .. }));
    let asked = one.probe.count(Method::TryAcquire, &name) + one.probe.count(Method::Acquire, &name);
    ensure_matches!(lock.acquire().await, Err(Error::Closed { .. }));
    ensure_matches!(lock.try_acquire().await, Err(Error::Closed { .. }));
    let waitless = lock.clone().wait(Duration::ZERO).acquire().await;
    ensure_matches!(waitless, Err(Error::Closed { .. }));
    let after = one.probe.count(Method::TryAcquire, &name) + one.probe.count(Method::Acquire, &name);
    ensure_eq!(after, asked);
    // Live guards stay valid, and are renewed.
    pause::keep(lease * 3 / 2).await;
    still_held(&kept)?;
    kept.release().await?;
    Ok(held.release().await?)
}

async fn release_retry_is_released(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for fault in [Fault::LoseReply, Fault::Refuse] {
        let guard = one.lock(&name).wait(SOON).acquire().await?;
        let before = one.probe.count(Method::Release, &name);
        one.probe.next(Method::Release, fault);
        guard.release().await?;
        let sent = one.probe.count(Method::Release, &name) - before;
        ensure_eq!(sent, 2, "releases sent when the first got {fault:?}");
        free_at_once(&other.lock(&name)).await?.release().await?;
    }
    Ok(())
}

/// A second request that finds nothing may mean that the first was carried out, unless the store knows better.
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
    eventually!(SOON, one.probe.count(Method::Release, &name) > before);
    other.force_release(&name).await?;
    one.probe.heal();
    let outcome = within(SOON, "the end of a release that was refused at first", release).await??;
    if told == LossCause::Forced {
        ensure_eq!(lost_with(outcome)?, LossCause::Forced);
    }
    Ok(())
}

async fn release_retry_past_lease_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (LEASE, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).renew(false).acquire().await?;
    // None if the machine stalled so long that it has passed.
    let deadline = guard.deadline();
    let left = deadline.map(Moment::left).unwrap_or_default();
    pause::settle(left.saturating_sub(Duration::from_millis(60))).await;
    // No release reaches the store before the lease has expired, and another holds the lock then.
    one.probe.always(Method::Release, Fault::Refuse);
    let release = tokio::spawn(guard.release());
    let taken = other.lock(&name).wait(stage.at_most(lease + EXPIRY)).acquire().await?;
    ensure!(deadline.is_none_or(Moment::has_passed), "granted before the holder's deadline");
    one.probe.heal();
    let outcome = within(SOON, "the end of a release that came too late", release).await??;
    match outcome {
        Err(Error::Unavailable { .. }) => {}
        other => drop(lost_with(other)?),
    }
    still_held(&taken)?;
    kept_out(&one.lock(&name)).await?;
    Ok(taken.release().await?)
}
