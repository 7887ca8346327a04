//! Re-entrancy: explicit, by owner (clauses R1 to R4, X2).

use crate::{
    Check, Method, Need, Stage,
    case::cases,
    check::{
        Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, lost_with, still_held,
        within,
    },
    pause,
};
use std::time::Duration;
use tenure_core::{Error, Guard, Lock, LossCause, Owner};

cases!("reentrancy":
    same_owner_reenters.policy(), holds_released_in_any_order.policy(), nested_needs_same_owner.policy(),
    reentry_after_loss_is_err.policy(), waiters_wait_for_last_hold.policy(),
    owner_in_two_clients_excludes.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);

async fn entered(lock: &Lock) -> Check<Guard> {
    free_at_once(lock).await
}

/// The owner of a lock acquires it again at once, with one token and claim and without a request to the store.
async fn same_owner_reenters(stage: &Stage) -> Check {
    let (client, name, me) = (stage.client().await?, stage.name("a"), Owner::new());
    let lock = client.lock(&name).owner(&me);
    let outer = lock.acquire().await?;
    let asked = client.probe.calls().all().len();
    // A store that does not answer proves that there is no round trip.
    client.probe.freeze();
    let inner = within(PATIENCE, "a second acquire by the same owner", lock.acquire()).await??;
    let innermost = within(PATIENCE, "a try by the same owner", entered(&lock)).await??;
    for guard in [&inner, &innermost] {
        let second = (guard.token(), guard.claim());
        ensure_eq!(second, (outer.token(), outer.claim()), "token and claim of a second hold of the owner");
    }
    within(PATIENCE, "the release of an inner hold", innermost.release()).await??;
    client.probe.thaw();
    let after = client.probe.calls().all();
    ensure_eq!(after.len(), asked, "requests, for holds that need none (the last is {:?})", after.last());
    ensure!(outer.is_held() && inner.is_held(), "both holds must be held: {outer:?}, {inner:?}");
    inner.release().await?;
    Ok(outer.release().await?)
}

/// Three holds, one of another task, are released in each order. The lock stays held until the last one is released, with
/// one request.
async fn holds_released_in_any_order(stage: &Stage) -> Check {
    let ([one, other], name, me) = (stage.clients().await?, stage.name("a"), Owner::new());
    let lock = one.lock(&name).owner(&me);
    for (round, order) in
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate()
    {
        let (outer, elsewhere) = (lock.acquire().await?, lock.clone());
        let inner = tokio::spawn(async move { elsewhere.acquire().await }).await??;
        let mut holds = [outer, inner, entered(&lock).await?].map(Some);
        for (nth, index) in order.into_iter().enumerate() {
            let free = other.lock(&name).try_acquire().await?;
            ensure!(
                free.is_none(),
                "three holds released in the order {order:?}: another client was granted the lock before release {nth}"
            );
            let sent = one.probe.count(Method::Release, &name);
            ensure_eq!(sent, round, "release requests before the last of three holds is released");
            // One of them is dropped.
            match (holds[index].take(), nth) {
                (Some(guard), 1) => drop(guard),
                (Some(guard), _) => tokio::spawn(guard.release()).await??,
                (None, _) => return Err(Stop::failed("the suite's own error: an order names a hold twice")),
            }
        }
        let guard = other.lock(&name).wait(PATIENCE).acquire().await?;
        guard.release().await?;
    }
    Ok(())
}

/// Without one owner for both, a second acquire in the same client is refused.
async fn nested_needs_same_owner(stage: &Stage) -> Check {
    let (client, name, moment) = (stage.client().await?, stage.name("a"), Duration::from_millis(200));
    let (me, you) = (Owner::new(), Owner::new());
    let anonymous = client.lock(&name);
    for (outer, inner) in [
        (anonymous.clone(), anonymous.clone()),
        (anonymous.clone(), anonymous.clone().owner(&me)),
        (anonymous.clone().owner(&me), anonymous.clone()),
        (anonymous.clone().owner(&me), anonymous.clone().owner(&you)),
    ] {
        let guard = outer.acquire().await?;
        ensure!(inner.try_acquire().await?.is_none(), "{inner:?} was granted while {outer:?} is held");
        let waited = inner.clone().wait(moment).acquire().await;
        ensure!(waited.is_err(), "{inner:?} was granted after a wait while {outer:?} is held");
        guard.release().await?;
    }
    Ok(())
}

/// A lost lock is acquired again by its owner. That is `Err(Lost)` until its last guard is dropped.
async fn reentry_after_loss_is_err(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (client, name, me) = (stage.client().await?, stage.name("a"), Owner::new());
    let lock = client.lock(&name).owner(&me).wait(PATIENCE).lease(PATIENCE / 3).renew(false);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    // Its lease is cut short only now, so both entered in time; on a busy machine it ends before the store's answer,
    // or there is none in time.
    let lease = Duration::from_millis(300);
    let cut = outer.extend(lease).await;
    ensure_matches!(cut, Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }));
    within(lease + Duration::from_secs(3), "the loss of a lock without renewal", outer.lost()).await?;
    ensure_eq!(inner.loss(), Some(LossCause::Expired));
    lost_with(lock.acquire().await)?;
    lost_with(lock.try_acquire().await)?;
    lost_with(outer.release().await)?;
    lost_with(lock.acquire().await)?;
    drop(inner);
    // Without a guard of the lost grant, the owner acquires the lock anew.
    let fresh = client.lock(&name).owner(&me).wait(PATIENCE).acquire().await?;
    still_held(&fresh)?;
    Ok(fresh.release().await?)
}

/// Two clients wait for a lock with several holds. They are granted it after the last release, and do not delay
/// re-entry.
async fn waiters_wait_for_last_hold(stage: &Stage) -> Check {
    let ([one, other], name, me) = (stage.clients().await?, stage.name("a"), Owner::new());
    let lock = one.lock(&name).owner(&me);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    let wait = |lock: Lock| tokio::spawn(async move { lock.wait(PATIENCE).acquire().await?.release().await });
    let (here, there) = (wait(one.lock(&name)), wait(other.lock(&name)));
    eventually!(PATIENCE, other.probe.calls().contending(&name) == 1, "one waiter's request");
    // The owner does not queue behind the waiters.
    let innermost =
        within(PATIENCE, "an acquire by the holder's owner, beside waiters,", lock.acquire()).await??;
    for hold in [outer, innermost] {
        hold.release().await?;
        pause::linger(Duration::from_millis(200)).await;
        ensure!(
            !here.is_finished() && !there.is_finished(),
            "a waiter was granted the lock before its last hold was released"
        );
    }
    inner.release().await?;
    here.await??;
    Ok(there.await??)
}

/// One owner in two clients excludes itself: re-entry is for one client.
async fn owner_in_two_clients_excludes(stage: &Stage) -> Check {
    let ([one, other], name, me) = (stage.clients().await?, stage.name("a"), Owner::new());
    let guard = one.lock(&name).owner(&me).acquire().await?;
    let lock = other.lock(&name).owner(&me);
    kept_out(&lock).await?;
    let waited = lock.clone().wait(Duration::from_millis(200)).acquire().await;
    ensure!(waited.is_err(), "granted while another client holds it, by the same owner: {waited:?}");
    guard.release().await?;
    let guard = lock.wait(PATIENCE).acquire().await?;
    Ok(guard.release().await?)
}
