//! Several names at once (clauses S1, S2).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, lost_with, took_exactly,
        within,
    },
    pause,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Moment};

cases!("several":
    acquire_all_or_nothing.policy(), overlapping_sets_exclude, all_lost_with_one.policy(),
    all_waits_are_bounded.policy(), all_cancelled_leave_nothing.policy(), all_free_in_one_request,
    unanswered_request_for_all_leaves_nothing.policy(),
);

const PATIENCE: Duration = Duration::from_secs(45);
/// Less than the lease of 30 s, after which a lock that was not released is free.
const SOON: Duration = Duration::from_secs(20);
/// For how long clients take turns. On a slow store, fewer turns must do.
const BUDGET: Duration = Duration::from_secs(30);

/// Three names are acquired together, or none of them if another client holds one.
async fn acquire_all_or_nothing(stage: &Stage) -> Check {
    let ([one, other], names) = (stage.clients().await?, ["c", "a", "b"].map(|last| stage.name(last)));
    let guard = one.all(&names).acquire().await?;
    let told: Vec<String> = guard.holds().map(|hold| hold.name().to_string()).collect();
    ensure_eq!(told, ["a", "b", "c"].map(|last| stage.name(last)));
    for name in &names {
        ensure!(
            guard.token(name).is_some(),
            "a set of locks must have a token for each name: {name} has none"
        );
        kept_out(&other.lock(name)).await?;
    }
    let second = other.all(&names).try_acquire().await?;
    ensure!(second.is_none(), "three names were granted while another client holds them: {second:?}");
    guard.release().await?;
    // Another client holds the last one, so the others become free again.
    let last = other.lock(&names[0]).wait(PATIENCE).acquire().await?;
    let second = one.all(&names).try_acquire().await?;
    ensure!(second.is_none(), "three names were granted while another client holds one of them: {second:?}");
    for name in &names[1..] {
        let free = other.lock(name).wait(SOON).acquire().await?;
        free.release().await?;
    }
    last.release().await?;
    // A name that is given twice counts once.
    let twice = one.all([&names[0], &names[0]]).wait(PATIENCE).acquire().await?;
    ensure_eq!(twice.holds().count(), 1, "locks held for one name that was given twice");
    twice.release().await?;
    ensure_matches!(one.all([""; 0]).acquire().await, Err(Error::InvalidOption { .. }));
    ensure_matches!(one.all([names[0].as_str(), ""]).acquire().await, Err(Error::InvalidName(_)));
    let free = other.lock(&names[0]).wait(SOON).acquire().await?;
    Ok(free.release().await?)
}

/// Three clients each acquire another two of three names, in different orders, with and without waiting. No name has two
/// holders, none waits for ever, and all are free in the end.
async fn overlapping_sets_exclude(stage: &Stage) -> Check {
    const ROUNDS: usize = 30;
    let (clients, names) = (stage.clients::<3>().await?, ["a", "b", "c"].map(|last| stage.name(last)));
    let (inside, begun) = (Arc::<[AtomicBool; 3]>::default(), Moment::now());
    let work = clients.iter().enumerate().map(|(left_out, client)| {
        let (inside, wanted) = (Arc::clone(&inside), [(left_out + 1) % 3, (left_out + 2) % 3]);
        let all = client.all(wanted.map(|number| &names[number])).wait(SOON);
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                if Moment::now().since(begun) > BUDGET {
                    break;
                }
                let guard = match round % 3 {
                    0 => all.acquire().await?,
                    _ => match all.try_acquire().await? {
                        Some(guard) => guard,
                        None => continue,
                    },
                };
                for number in wanted {
                    ensure!(
                        !inside[number].swap(true, Ordering::SeqCst),
                        "two clients held name {number} at once, in round {round}"
                    );
                }
                tokio::task::yield_now().await;
                for number in wanted {
                    inside[number].store(false, Ordering::SeqCst);
                }
                guard.release().await?;
            }
            Check::Ok(())
        })
    });
    for outcome in futures_util::future::join_all(work).await {
        outcome??;
    }
    clients[0].all(&names).wait(SOON).acquire().await?.release().await?;
    Ok(())
}

/// One name of a set is released by force. The whole set is lost, and all names are free again.
async fn all_lost_with_one(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], names) = (stage.clients().await?, ["a", "b"].map(|last| stage.name(last)));
    let guard = one.all(&names).with(|lock| lock.lease(Duration::from_secs(6))).acquire().await?;
    let lost = guard.lost();
    other.force_release(&names[1]).await?;
    let cause = within(PATIENCE, "the loss of a set of which one lock was released by force", lost).await?;
    ensure!(
        !guard.is_held() && guard.loss() == Some(cause),
        "one of two names is lost, so the set must be lost too ({cause}): {guard:?}"
    );
    lost_with(guard.release().await)?;
    for name in &names {
        other.lock(name).wait(PATIENCE).acquire().await?.release().await?;
    }
    Ok(())
}

/// Another client holds one of three names, or the store does not answer. The wait ends in time and leaves no name
/// held.
async fn all_waits_are_bounded(stage: &Stage) -> Check {
    let ([one, other], names) = (stage.clients().await?, ["a", "b", "c"].map(|last| stage.name(last)));
    let wait = Duration::from_millis(500);
    let guard = other.lock(&names[2]).acquire().await?;
    // Another client holds the last name. Then the store does not answer either: to the request for all names, then
    // also to requests for one.
    let hung = [vec![], vec![Method::TryAcquireAll], vec![Method::TryAcquireAll, Method::Acquire]];
    for hung in hung {
        for method in &hung {
            one.probe.always(*method, Fault::Hang);
        }
        let begun = Moment::now();
        let outcome = one.all(&names).wait(wait).acquire().await;
        let took = Moment::now().since(begun);
        ensure_matches!(outcome, Err(Error::Timeout { waited, .. }) if *waited == wait, "a wait of {wait:?} while {hung:?} get no answer");
        took_exactly(took, wait, format_args!("a wait while {hung:?} get no answer"))?;
    }
    one.probe.heal();
    for name in &names[..2] {
        let free = other.lock(name).wait(PATIENCE).acquire().await?;
        free.release().await?;
    }
    Ok(guard.release().await?)
}

/// A wait for three names is cancelled at each of them. No name stays held.
async fn all_cancelled_leave_nothing(stage: &Stage) -> Check {
    let ([one, other], names) = (stage.clients().await?, ["a", "b", "c"].map(|last| stage.name(last)));
    for last in &names {
        // The wait is cancelled while another client holds this name.
        let held = other.lock(last).wait(PATIENCE).acquire().await?;
        let asked = tokio::time::timeout(Duration::from_millis(200), one.all(&names).acquire()).await;
        ensure!(asked.is_err(), "three names were granted while another client holds {last}");
        held.release().await?;
        for name in &names {
            let free = other.lock(name).wait(PATIENCE).acquire().await?;
            free.release().await?;
        }
    }
    one.probe.next(Method::Acquire, Fault::LoseReply);
    one.all(&names).wait(PATIENCE).acquire().await?.release().await?;
    eventually!(PATIENCE, one.names_in_use() == 0);
    Ok(())
}

/// Names that a store keeps on one server: in a Redis Cluster, the text in braces decides.
fn of_one_slot(stage: &Stage, last: [&str; 3]) -> [String; 3] {
    last.map(|last| format!("{{{}}}.{last}", stage.name("set")))
}

/// Three free names are acquired in one request, and then held like single locks.
async fn all_free_in_one_request(stage: &Stage) -> Check {
    stage.needs(Need::Together)?;
    let ([one, other], names) = (stage.clients().await?, of_one_slot(stage, ["b", "c", "a"]));
    let lease = Duration::from_secs(6);
    let all = one.all(&names).with(|lock| lock.lease(lease));
    let asked = |client: &Client| {
        let asking = [Method::TryAcquireAll, Method::TryAcquire, Method::Acquire];
        let calls = client.probe.calls().all();
        asking.map(|method| calls.iter().filter(|call| call.method == method).count())
    };
    let guard = all.acquire().await?;
    ensure_eq!(asked(&one), [1, 0, 0], "requests try_acquire_all, try_acquire and acquire");
    // Each is held like any lock: renewed, with a token of its own, and released by itself.
    pause::keep(lease * 3 / 2).await;
    ensure!(guard.is_held(), "a renewed set of locks was lost: {:?}", guard.loss());
    for name in &names {
        kept_out(&other.lock(name)).await?;
    }
    let tokens = names.each_ref().map(|name| guard.token(name));
    guard.release().await?;
    let guard = all
        .try_acquire()
        .await?
        .ok_or_else(|| Stop::failed("`try_acquire_all` was refused although all names are free"))?;
    ensure_eq!(asked(&one), [2, 0, 0], "requests try_acquire_all, try_acquire and acquire");
    for (name, earlier) in names.iter().zip(tokens) {
        ensure!(
            guard.token(name) > earlier,
            "{name} was granted with token {:?} after {earlier:?}: each grant needs a greater token",
            guard.token(name)
        );
    }
    guard.release().await?;
    // While another client holds one name, a try takes one request, and keeps none of the other names.
    for last in &names {
        let held = other.lock(last).wait(PATIENCE).acquire().await?;
        let second = one.all(&names).try_acquire().await?;
        ensure!(second.is_none(), "three names were granted while another client holds {last}: {second:?}");
        for name in names.iter().filter(|name| *name != last) {
            free_at_once(&other.lock(name)).await?.release().await?;
        }
        held.release().await?;
    }
    ensure_eq!(asked(&one), [5, 0, 0], "requests try_acquire_all, try_acquire and acquire");
    let withdrawn = one.probe.calls().all().iter().filter(|call| call.method == Method::Withdraw).count();
    ensure_eq!(withdrawn, 0, "withdrawals after refused attempts");
    Ok(())
}

/// A request for three names gets no answer, or is cancelled. No name stays held.
async fn unanswered_request_for_all_leaves_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Together)?;
    let ([one, other], names) = (stage.clients().await?, of_one_slot(stage, ["a", "b", "c"]));
    let free = async || {
        for name in &names {
            other.lock(name).wait(PATIENCE).acquire().await?.release().await?;
        }
        eventually!(PATIENCE, one.names_in_use() == 0);
        Check::Ok(())
    };
    // The reply is lost: the grants are withdrawn, and all are acquired one by one.
    one.probe.next(Method::TryAcquireAll, Fault::LoseReply);
    one.all(&names).wait(PATIENCE).acquire().await?.release().await?;
    free().await?;
    one.probe.next(Method::TryAcquireAll, Fault::LoseReply);
    ensure_matches!(one.all(&names).try_acquire().await, Err(Error::Unavailable { .. }));
    free().await?;
    // The attempt is cancelled: before the reply, then before the request.
    for late in [Fault::DelayReply(PATIENCE), Fault::DelayRequest(PATIENCE)] {
        one.probe.next(Method::TryAcquireAll, late);
        let asked = tokio::time::timeout(Duration::from_millis(200), one.all(&names).acquire()).await;
        ensure!(asked.is_err(), "three names were granted before the store's reply");
        free().await?;
    }
    // Even if the store does not answer, a wait is bounded, and closing ends it.
    one.probe.always(Method::TryAcquireAll, Fault::Hang);
    let wait = Duration::from_millis(300);
    let waiting = one.all(&names).wait(wait);
    drop(within(wait, "a wait while the store does not answer", waiting.acquire()).await?);
    free().await?;
    let waiter = tokio::spawn({
        let all = one.all(&names);
        async move { all.acquire().await }
    });
    eventually!(PATIENCE, one.probe.calls().contending(&names[0]) == 1);
    within(PATIENCE, "closing while a client asks for all names", one.close()).await?;
    ensure_matches!(waiter.await?, Err(Error::Closed { .. }));
    free().await
}
