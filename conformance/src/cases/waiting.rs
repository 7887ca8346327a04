//! Waiting: bounded, woken, in order (clauses W1, W2, W4 to W7). Cancellation is in `cancelling`.

mod barging;

pub(super) use barging::others_get_in;

use crate::{
    Check, Client, Fault, Hints, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, still_held,
        took_exactly, within,
    },
    own_runtime::in_own_runtime,
    pause,
    stopped_clock::{with_slow_clock, with_stopped_clock},
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
    try_is_one_attempt.policy(), wait_is_bounded.policy(), wakes_on_release.threads(),
    spurious_wakeup_rechecks.policy(), missed_wakeup_recovers.policy(), fifo_in_process.policy(),
    fair_across_clients, one_contender_per_process.policy(), barging_bounded,
    grant_with_lost_reply_is_adopted.policy(), late_grant_of_withdrawn_claim_expires.policy(),
    unavailable_store_is_asked_again.policy(),
);

/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for the lock in a task, and returns when it was acquired.
fn waiter(lock: Lock) -> JoinHandle<Check<(Guard, Moment)>> {
    tokio::spawn(async move {
        let guard = lock.wait(PATIENCE).acquire().await?;
        Ok((guard, Moment::now()))
    })
}

/// A try sends one request, or none if its own client holds the lock. It is not repeated after an error. A wait of 0 s is
/// a try.
async fn try_is_one_attempt(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let asked = || {
        let calls = other.probe.calls().about(&name);
        calls.iter().map(|call| call.method).filter(|method| *method != Method::Release).collect::<Vec<_>>()
    };
    let guard = one.lock(&name).acquire().await?;
    kept_out(&other.lock(&name)).await?;
    ensure_eq!(asked(), [Method::TryAcquire], "requests of one attempt");
    let zero = other.lock(&name).wait(Duration::ZERO);
    ensure_matches!(zero.acquire().await, Err(Error::Timeout { .. }));
    ensure_eq!(asked(), [Method::TryAcquire; 2], "requests of an attempt and a wait of 0 s");
    kept_out(&one.lock(&name)).await?;
    let sent = one.probe.count(Method::TryAcquire, &name);
    ensure_eq!(sent, 0, "requests of an attempt whose own client holds the lock");
    guard.release().await?;
    zero.acquire().await?.release().await?;
    other.probe.next(Method::TryAcquire, Fault::Refuse);
    ensure_matches!(other.lock(&name).try_acquire().await, Err(Error::Unavailable { .. }));
    let attempts = || other.probe.count(Method::TryAcquire, &name);
    ensure_eq!(attempts(), 4, "requests of four attempts, the last without an answer");
    let guard = other.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(guard.release().await?)
}

/// A wait ends on time: while another client or this one holds the lock, and while the store does not answer or refuses.
async fn wait_is_bounded(stage: &Stage) -> Check {
    let wait = Duration::from_millis(500);
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    for (client, fault) in
        [(&other, None), (&one, None), (&other, Some(Fault::Hang)), (&other, Some(Fault::Refuse))]
    {
        if let Some(fault) = fault {
            client.probe.always(Method::Acquire, fault);
        }
        let begun = Moment::now();
        let outcome = client.lock(&name).wait(wait).acquire().await;
        took_exactly(Moment::now().since(begun), wait, format_args!("a wait, with the fault {fault:?}"))?;
        match fault {
            Some(Fault::Refuse) => ensure_matches!(outcome, Err(Error::Unavailable { .. })),
            _ => ensure_matches!(outcome, Err(Error::Timeout { .. })),
        }
    }
    still_held(&guard)?;
    Ok(guard.release().await?)
}

/// A lock is released while a client waits. The waiter's timers stand still, so it cannot ask again by itself.
async fn wakes_on_release(stage: &Stage) -> Check {
    stage.needs(Need::Wakeups)?;
    let (clients, names) = (stage.opener(), ["a", "b", "c"].map(|name| stage.name(name)));
    in_own_runtime(move || async move {
        let [one, other] = clients.with_stoppable_clock().await?;
        for name in names {
            let guard = one.lock(&name).wait(PATIENCE).acquire().await?;
            let waiter = waiter(other.lock(&name));
            eventually!(PATIENCE, other.probe.calls().contending(&name) == 1, "one waiter's request");
            // By then it is refused and asleep.
            pause::settle(Duration::from_millis(150)).await;
            with_slow_clock("a release", async { Ok(guard.release().await?) }).await?;
            let woken = with_stopped_clock("a waiter's wake-up", async { waiter.await? });
            woken.await?.0.release().await?;
        }
        Ok(())
    })
    .await
}

/// A waiter gets wake-ups while the lock is held. It asks again after each, and is not granted the lock.
async fn spurious_wakeup_rechecks(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    other.probe.hints(Hints::Spurious(Duration::from_millis(10)));
    let waiter = waiter(other.lock(&name));
    let hints = || other.probe.count(Method::WaitForRelease, &name);
    eventually!(PATIENCE, hints() >= 10 || waiter.is_finished(), "ten wake-ups");
    ensure!(!waiter.is_finished(), "a waiter was granted a held lock after a wake-up: it must ask again");
    still_held(&guard)?;
    // In this order, because more wake-ups come while the requests are counted.
    let woken = hints();
    let asked = other.probe.count(Method::TryAcquire, &name);
    ensure!(
        asked + 1 >= woken,
        "a waiter had {woken} wake-ups and sent only {asked} requests: it must ask after each"
    );
    guard.release().await?;
    let (taken, _) = waiter.await??;
    Ok(taken.release().await?)
}

/// A waiter gets no wake-up. It asks again by itself.
async fn missed_wakeup_recovers(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    other.probe.hints(Hints::None);
    let waiter = waiter(other.lock(&name));
    eventually!(PATIENCE, other.probe.count(Method::WaitForRelease, &name) > 0, "a wait for a release");
    guard.release().await?;
    let released = Moment::now();
    let (taken, had) = waiter.await??;
    let took = had.since(released);
    ensure!(
        took <= stage.capabilities().ask_again,
        "a waiter without a wake-up was granted a free lock only after {took:?}: it must ask again at least every {:?}",
        stage.capabilities().ask_again
    );
    Ok(taken.release().await?)
}

/// Ten tasks of one client wait. They are granted the lock in the order in which they began to wait.
async fn fifo_in_process(stage: &Stage) -> Check {
    const WAITERS: usize = 10;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let (lock, served) = (client.lock(&name).wait(PATIENCE * 3), Arc::clone(&served));
        let mut waiting = Box::pin(async move { lock.acquire().await });
        ensure!((&mut waiting).now_or_never().is_none(), "waiter {number} was granted a held lock");
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
    ensure!(
        served.iter().copied().eq(0..WAITERS),
        "waiters 0 to 9 of one client must be granted the lock in this order, not {served:?}"
    );
    Ok(())
}

/// Five clients wait. If the store is fair, they are granted the lock in the order in which they began to wait.
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
    // A machine that stalls may change the order of their arrival. A store that is not fair fails every time.
    for round in 0..3 {
        served = served_in(&clients, &stage.name(&format!("a{round}")), arrival).await?;
        if served.iter().copied().eq(1..clients.len()) {
            return Ok(());
        }
    }
    Err(Stop::failed(format_args!(
        "clients 1 to 5 began to wait in this order, but were granted the lock in the order {served:?}, in each of \
         three rounds: `Capabilities::fair` says that the store serves clients in order"
    )))
}

/// The order in which waiters are served: the first client holds the name, and the others ask for it `arrival` apart.
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
        eventually!(PATIENCE, client.probe.calls().contending(name) == 1, "one waiter's request");
        // The order is that of arrival at the store, which is later than sending.
        if client.capabilities().waiting {
            eventually!(PATIENCE, client.waiting(name).await?.len() == number, "the waiters so far");
        } else {
            pause::settle(arrival).await;
        }
    }
    guard.release().await?;
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(served.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Fifty tasks of one client wait. At most one request of theirs is under way at the store.
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
    eventually!(PATIENCE, crowd.probe.calls().contending(&name) > 0, "a waiter's request");
    pause::linger(while_held).await;
    ensure_eq!(
        crowd.probe.calls().contending(&name),
        1,
        "requests under way for {WAITERS} waiters of one client"
    );
    guard.release().await?;
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    let most = crowd.probe.calls().most_contending(&name);
    ensure_eq!(most, 1, "requests under way at once for {WAITERS} waiters of one client");
    let claims: HashSet<_> =
        crowd.probe.calls().about(&name).iter().flat_map(|call| call.about.clone()).collect();
    ensure_eq!(claims.len(), WAITERS, "claims of {WAITERS} waiters");
    Ok(())
}

/// The reply of a grant is lost. The client asks again with the same claim, and no second grant exists.
async fn grant_with_lost_reply_is_adopted(stage: &Stage) -> Check {
    let ([one, other, next], name) = (stage.clients().await?, stage.name("a"));
    let claims = || {
        let about = one.probe.calls().about(&name).into_iter();
        let grants = about.filter(|call| matches!(call.method, Method::Acquire | Method::TryAcquire));
        grants.flat_map(|call| call.about).filter_map(|(_, claim)| claim).collect::<HashSet<_>>()
    };
    one.probe.next(Method::Acquire, Fault::LoseReply);
    let guard = one.lock(&name).wait(PATIENCE).acquire().await?;
    // The client asks again, with the same claim.
    ensure_eq!(claims().len(), 1, "claims of one wait whose first reply was lost");
    kept_out(&other.lock(&name)).await?;
    guard.release().await?;
    // The released grant is the one whose reply was lost.
    free_at_once(&other.lock(&name)).await?.release().await?;
    // A try does not ask again, so it withdraws its claim.
    one.probe.next(Method::TryAcquire, Fault::LoseReply);
    ensure_matches!(one.lock(&name).try_acquire().await, Err(Error::Unavailable { .. }));
    one.close().await;
    Ok(free_at_once(&next.lock(&name)).await?.release().await?)
}

/// The store carries a request out after its client has withdrawn the claim. The name is free at the latest when the
/// lease of this late grant ends.
async fn late_grant_of_withdrawn_claim_expires(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (lease, late) = (Duration::from_millis(500), Duration::from_millis(800));
    one.probe.next(Method::TryAcquire, Fault::Straggle(late));
    let outcome = one.lock(&name).lease(lease).try_acquire().await;
    ensure_matches!(outcome, Err(Error::Unavailable { .. }));
    pause::outlast(late).await;
    // The store granted it, or knew of the withdrawal. No client counts on it, and soon it is free.
    let guard = within(
        lease + EXPIRY,
        "the next grant after a request that was carried out late",
        other.lock(&name).acquire(),
    )
    .await??;
    Ok(guard.release().await?)
}

/// The store refuses a waiter's first requests. The client asks again, unless a retry cannot mend the error.
async fn unavailable_store_is_asked_again(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    for _ in 0..3 {
        client.probe.next(Method::Acquire, Fault::Refuse);
    }
    let guard = client.lock(&name).wait(PATIENCE).acquire().await?;
    ensure_eq!(client.probe.count(Method::Acquire, &name), 4, "requests: three refused, one granted");
    guard.release().await?;
    // An error that a retry does not mend ends the wait at once.
    client.probe.next(Method::Acquire, Fault::Fail);
    let failed = within(
        EXPIRY,
        "the error of a wait whose request failed for good",
        client.lock(&name).wait(PATIENCE).acquire(),
    )
    .await?;
    ensure_matches!(failed, Err(Error::Store { .. }));
    let guard = client.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(guard.release().await?)
}
