//! Waiting: bounded, woken, in order (clauses W1, W2, W4 to W7). Cancellation is in `cancelling`.

mod barging;

pub(super) use barging::others_get_in;

use crate::{
    Check, Client, Fault, Hints, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, still_held,
        within,
    },
    own_runtime::in_own_runtime,
    pause,
    stopped_clock::with_stopped_clock,
};
use barging::barging_bounded;
use futures_util::FutureExt;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Error, Guard, Lock, Moment};
use tokio::task::{JoinHandle, JoinSet};

cases!("waiting":
    try_is_one_attempt.policy(), wait_is_bounded, zero_wait_is_try.policy(), wakes_on_release.threads(), wakes_on_expiry,
    spurious_wakeup_rechecks.policy(), missed_wakeup_recovers.policy(), fifo_in_process.policy(), fair_across_clients,
    one_contender_per_process.policy(), barging_bounded, lost_grant_is_adopted, straggling_grant_runs_out, unavailable_store_is_asked_again.policy(),
);

/// On a machine that was suspended, a moment has the noise of two clocks.
const TICK: Duration = Duration::from_millis(1);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for the lock in a task, and returns when it was acquired.
fn waiter(lock: Lock) -> JoinHandle<Check<(Guard, Moment)>> {
    tokio::spawn(async move {
        let guard = lock.wait(PATIENCE).acquire().await?;
        Ok((guard, Moment::now()))
    })
}

async fn try_is_one_attempt(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let asked = || {
        let calls = other.probe.calls().about(&name);
        calls.iter().map(|call| call.method).filter(|method| *method != Method::Release).collect::<Vec<_>>()
    };
    let guard = one.lock(&name).acquire().await?;
    kept_out(&other.lock(&name)).await?;
    ensure_eq!(asked(), [Method::TryAcquire]);
    kept_out(&one.lock(&name)).await?;
    ensure_eq!(one.probe.count(Method::TryAcquire, &name), 0);
    guard.release().await?;
    other.probe.next(Method::TryAcquire, Fault::Refuse);
    ensure_matches!(other.lock(&name).try_acquire().await, Err(Error::Unavailable { .. }));
    let attempts = || other.probe.count(Method::TryAcquire, &name);
    ensure_eq!(attempts(), 2);
    let guard = other.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(guard.release().await?)
}

async fn wait_is_bounded(stage: &Stage) -> Check {
    let budget = Duration::from_millis(500);
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    // A holder in another client, a holder in this one, and a store that does not answer at all.
    for (client, hangs) in [(&other, false), (&one, false), (&other, true)] {
        if hangs {
            client.probe.always(Method::Acquire, Fault::Hang);
        }
        let begun = Moment::now();
        let outcome = client.lock(&name).wait(budget).acquire().await;
        let took = Moment::now().since(begun);
        ensure_matches!(outcome, Err(Error::Timeout { .. }));
        ensure!(took >= budget && took < stage.at_most(budget + TICK), "{took:?} (the store hangs: {hangs})");
    }
    other.probe.always(Method::Acquire, Fault::Refuse);
    let begun = Moment::now();
    let outcome = other.lock(&name).wait(budget).acquire().await;
    let took = Moment::now().since(begun);
    ensure_matches!(outcome, Err(Error::Unavailable { .. }));
    ensure!(took >= budget && took < stage.at_most(budget + TICK), "{took:?}");
    still_held(&guard)?;
    Ok(guard.release().await?)
}

async fn zero_wait_is_try(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lock = other.lock(&name).wait(Duration::ZERO);
    let guard = one.lock(&name).acquire().await?;
    ensure_matches!(lock.acquire().await, Err(Error::Timeout { .. }));
    let asked: Vec<Method> = other.probe.calls().about(&name).iter().map(|call| call.method).collect();
    ensure_eq!(asked, [Method::TryAcquire]);
    guard.release().await?;
    let guard = lock.acquire().await?;
    Ok(guard.release().await?)
}

/// Timers stand still when the lock is released, so the waiter cannot ask again by itself.
async fn wakes_on_release(stage: &Stage) -> Check {
    stage.needs(Need::Wakeups)?;
    let (clients, name) = (stage.opener(), stage.name("a"));
    in_own_runtime(move || async move {
        let (one, other) = (clients.client().await?, clients.client().await?);
        for _ in 0..3 {
            let guard = one.lock(&name).wait(PATIENCE).acquire().await?;
            let waiter = waiter(other.lock(&name));
            eventually!(PATIENCE, other.probe.calls().contending(&name) == 1);
            // Until it has been refused and is asleep.
            pause::settle(Duration::from_millis(150)).await;
            let woken = with_stopped_clock(async {
                guard.release().await?;
                waiter.await?
            });
            let (guard, _) = woken.await?;
            guard.release().await?;
        }
        Ok(())
    })
    .await
}

async fn wakes_on_expiry(stage: &Stage) -> Check {
    // A third of it is longer than a busy store takes for an answer; what is answered later is renewed first.
    let lease = Duration::from_secs(3);
    let processes = stage.needs(Need::Processes).is_ok();
    if !processes {
        stage.needs(Need::Lease)?;
    }
    let ([dead, other], name) = (stage.clients().await?, stage.name("a"));
    if stage.needs(Need::Lease).is_ok() {
        let guard = dead.lock(&name).lease(lease).acquire().await?;
        dead.probe.freeze();
        let died = Moment::now();
        let (taken, had) = waiter(other.lock(&name)).await??;
        let took = had.since(died);
        ensure!(!guard.is_held(), "two guards say that they hold the lock: {guard:?} {taken:?}");
        ensure!(took < stage.at_most(lease + EXPIRY), "the dead client's lock was free only after {took:?}");
        taken.release().await?;
        drop(guard);
        dead.probe.heal();
    }
    if processes {
        let mut victim = stage.victim().await?;
        victim.hold(&name, lease).await?;
        let waiter = waiter(other.lock(&name));
        eventually!(PATIENCE, other.probe.calls().contending(&name) == 1);
        victim.kill().await?;
        let died = Moment::now();
        let (taken, had) = waiter.await??;
        let took = had.since(died);
        // A session's timeout takes the place of the lease: this long a guard of a fresh session counts as held.
        let fresh = stage.client().await?.lock(stage.name("fresh")).lease(lease).acquire().await?;
        let believes = fresh.deadline().map_or(lease, tenure_core::Moment::left).max(lease);
        ensure!(
            took < stage.at_most(believes + EXPIRY),
            "the killed process's lock was free only after {took:?}"
        );
        // A busy machine may need more than this lease to release it.
        drop(fresh);
        taken.release().await?;
    }
    Ok(())
}

async fn spurious_wakeup_rechecks(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    other.probe.hints(Hints::Spurious(Duration::from_millis(10)));
    let waiter = waiter(other.lock(&name));
    let hints = || other.probe.count(Method::WaitForRelease, &name);
    eventually!(PATIENCE, hints() >= 10 || waiter.is_finished());
    ensure!(!waiter.is_finished(), "a wake-up was taken for a grant");
    still_held(&guard)?;
    // In this order: wake-ups do not stop while the requests are counted.
    let woken = hints();
    let asked = other.probe.count(Method::TryAcquire, &name);
    ensure!(asked + 1 >= woken, "woken {woken} times, and asked only {asked} times");
    guard.release().await?;
    let (taken, _) = waiter.await??;
    Ok(taken.release().await?)
}

async fn missed_wakeup_recovers(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    other.probe.hints(Hints::None);
    let waiter = waiter(other.lock(&name));
    eventually!(PATIENCE, other.probe.count(Method::WaitForRelease, &name) > 0);
    guard.release().await?;
    let released = Moment::now();
    let (taken, had) = waiter.await??;
    let took = had.since(released);
    ensure!(
        took <= stage.capabilities().ask_again,
        "without a hint the waiter asked again only after {took:?}"
    );
    Ok(taken.release().await?)
}

async fn fifo_in_process(stage: &Stage) -> Check {
    const WAITERS: usize = 10;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let (lock, served) = (client.lock(&name).wait(PATIENCE * 3), Arc::clone(&served));
        let mut waiting = Box::pin(async move { lock.acquire().await });
        ensure!((&mut waiting).now_or_never().is_none());
        tasks.spawn(async move {
            let guard = waiting.await?;
            served.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            Check::Ok(guard.release().await?)
        });
    }
    guard.release().await?;
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(served.iter().copied().eq(0..WAITERS), "served in the order {served:?}");
    Ok(())
}

async fn fair_across_clients(stage: &Stage) -> Check {
    stage.needs(Need::Fair)?;
    let clients = stage.clients::<6>().await?;
    // This connects each, and shows how long a request may take.
    let mut slowest = Duration::ZERO;
    for (number, client) in clients.iter().enumerate() {
        let begun = Moment::now();
        client.lock(stage.name(&number.to_string())).acquire().await?.release().await?;
        slowest = slowest.max(Moment::now().since(begun));
    }
    let arrival = (slowest * 5).max(Duration::from_millis(200));
    let mut served = Vec::new();
    // A machine that stalls may change the order of their arrival; a store that is not fair goes wrong every time.
    for round in 0..3 {
        served = served_in(&clients, &stage.name(&format!("a{round}")), arrival).await?;
        if served.iter().copied().eq(1..clients.len()) {
            return Ok(());
        }
    }
    Err(Stop::failed(format_args!("served in the order {served:?}")))
}

/// The order in which clients are served that ask one after the other, `arrival` apart, for what the first of them holds.
async fn served_in(clients: &[Client], name: &str, arrival: Duration) -> Check<Vec<usize>> {
    let guard = clients[0].lock(name).acquire().await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate().skip(1) {
        // The first one waits while the others arrive.
        let (lock, served) = (client.lock(name).wait(PATIENCE + arrival * 5), Arc::clone(&served));
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            served.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            Check::Ok(guard.release().await?)
        });
        eventually!(PATIENCE, client.probe.calls().contending(name) == 1);
        // The order is that of arrival at the store, which is later than sending.
        pause::settle(arrival).await;
    }
    guard.release().await?;
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(served.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

async fn one_contender_per_process(stage: &Stage) -> Check {
    const WAITERS: usize = 50;
    let ([one, crowd], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    let while_held = stage.capabilities().ask_again * 2 + Duration::from_millis(100);
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        // For the last of them, after the turns of all others.
        let lock = crowd.lock(&name).wait(while_held + PATIENCE * 10);
        tasks.spawn(async move { Check::Ok(lock.acquire().await?.release().await?) });
    }
    eventually!(PATIENCE, crowd.probe.calls().contending(&name) > 0);
    pause::linger(while_held).await;
    ensure_eq!(crowd.probe.calls().contending(&name), 1);
    guard.release().await?;
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    ensure_eq!(crowd.probe.calls().most_contending(&name), 1);
    let claims: HashSet<_> =
        crowd.probe.calls().about(&name).iter().flat_map(|call| call.about.clone()).collect();
    ensure_eq!(claims.len(), WAITERS);
    Ok(())
}

async fn lost_grant_is_adopted(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let claims = || {
        let about = one.probe.calls().about(&name).into_iter();
        let grants = about.filter(|call| matches!(call.method, Method::Acquire | Method::TryAcquire));
        grants.flat_map(|call| call.about).filter_map(|(_, claim)| claim).collect::<HashSet<_>>()
    };
    one.probe.next(Method::Acquire, Fault::LoseReply);
    let guard = one.lock(&name).wait(PATIENCE).acquire().await?;
    // It is asked for again, with the same claim.
    ensure_eq!(claims().len(), 1);
    kept_out(&other.lock(&name)).await?;
    guard.release().await?;
    // What was released is the grant whose reply was lost.
    free_at_once(&other.lock(&name)).await?.release().await?;
    // A try does not ask again, so it withdraws what it may have been granted.
    one.probe.next(Method::TryAcquire, Fault::LoseReply);
    ensure_matches!(one.lock(&name).try_acquire().await, Err(Error::Unavailable { .. }));
    one.close().await;
    Ok(free_at_once(&other.lock(&name)).await?.release().await?)
}

/// A request that the store carries out after its client has given it up and withdrawn its claim.
async fn straggling_grant_runs_out(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (lease, late) = (Duration::from_millis(500), Duration::from_millis(800));
    one.probe.next(Method::TryAcquire, Fault::Straggle(late));
    let outcome = one.lock(&name).lease(lease).try_acquire().await;
    ensure_matches!(outcome, Err(Error::Unavailable { .. }));
    pause::outlast(late).await;
    // The store granted it, or knew of the withdrawal. Nobody holds it, and soon it is free.
    let bound = stage.at_most(lease + EXPIRY);
    let guard = within(bound, "the end of an abandoned grant", other.lock(&name).acquire()).await??;
    Ok(guard.release().await?)
}

async fn unavailable_store_is_asked_again(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    for _ in 0..3 {
        client.probe.next(Method::Acquire, Fault::Refuse);
    }
    let guard = client.lock(&name).wait(PATIENCE).acquire().await?;
    ensure_eq!(client.probe.count(Method::Acquire, &name), 4, "requests: three refused, one granted");
    guard.release().await?;
    // An error that a retry will not mend ends the wait at once.
    client.probe.next(Method::Acquire, Fault::Fail);
    let failed =
        within(EXPIRY, "an error that is final", client.lock(&name).wait(PATIENCE).acquire()).await?;
    ensure_matches!(failed, Err(Error::Store { .. }));
    let guard = client.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(guard.release().await?)
}
