//! Runtimes that end, and busy executors: renewals, releases and withdrawals go on (clauses L8, W3, U3).

use crate::{
    Check, Client, Method, Stage,
    case::cases,
    check::{Stop, ensure, kept_out, rises},
    own_runtime::in_own_runtime,
    pause,
};
use futures_util::future::try_join_all;
use std::{sync::mpsc, time::Duration};
use tenure_core::Hold;
use tokio::sync::oneshot;

cases!("runtimes":
    renewed_when_the_first_runtime_ends.threads(), released_as_the_runtime_ends.threads(),
    withdrawn_as_the_runtime_ends.threads(), held_while_the_executor_is_blocked.threads(),
);

/// A lease that expires during a case unless it is renewed.
const LEASE: Duration = Duration::from_secs(9);
/// A lease that does not expire during a case.
const LONG_LEASE: Duration = Duration::from_mins(1);
/// For waits that end by themselves when all is well, long before a long lease expires.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops the case if one of these is lost, or another client can acquire its lock.
async fn still_exclude(other: &Client, holds: &[Hold]) -> Check {
    for hold in holds {
        ensure!(hold.is_held(), "lost instead of renewed: {:?}", hold.loss());
        kept_out(&other.lock(hold.name().as_str())).await?;
    }
    Ok(())
}

/// A client is first used in a runtime that ends. Its locks are still renewed.
async fn renewed_when_the_first_runtime_ends(stage: &Stage) -> Check {
    let other = stage.client().await?;
    // In the first round, the first runtime continues for a while. In the second it ends, with work that it never
    // polled.
    let (lingers, ends) =
        tokio::join!(outlives_its_runtime(stage, &other, true), outlives_its_runtime(stage, &other, false));
    lingers.and(ends)
}

/// A client that is made and first used in a runtime that ends, and continues in the case's own.
async fn outlives_its_runtime(stage: &Stage, other: &Client, lingers: bool) -> Check {
    let name = |when| stage.name(&format!("{when}.{lingers}"));
    let (clients, at_first) = (stage.opener(), name("first"));
    let (made, client) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let first = in_own_runtime(move || async move {
        let client = clients.client().await?;
        let guard = client.lock(&at_first).lease(LEASE).acquire().await?;
        drop(made.send(client));
        if lingers {
            drop(ended.await);
        }
        Ok(guard)
    });
    let (first, rest) = tokio::join!(first, async {
        // Without a client, the first runtime reports why.
        let client = client.await.map_err(|_| Stop::failed("no client from the first runtime"))?;
        let guard = client.lock(name("before")).lease(LEASE).wait(PATIENCE).acquire().await?;
        drop(end);
        Check::Ok((client, guard))
    });
    let first = first?;
    let (client, before) = rest?;
    let after = client.lock(name("after")).lease(LEASE).wait(PATIENCE).acquire().await?;
    let holds = [&first, &before, &after].map(|guard| guard.hold());
    outlast_leases(&holds, other).await?;
    for guard in [first, before, after] {
        let name = guard.name().clone();
        guard.release().await?;
        other.lock(name.as_str()).wait(PATIENCE).acquire().await?.release().await?;
    }
    Ok(())
}

/// A client works in several runtimes, one after the other, and a guard is dropped when each ends. Its lock is released all
/// the same.
async fn released_as_the_runtime_ends(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for round in 0..3 {
        let (client, name_there) = (one.clone(), name.clone());
        let token = in_own_runtime(move || async move {
            let guard = client.lock(&name_there).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
            Check::Ok(guard.token())
        });
        let token = token.await?;
        let waiting = other.lock(&name).lease(LONG_LEASE).wait(PATIENCE).acquire().await;
        let next = waiting.map_err(|error| {
            Stop::failed(format_args!(
                "a guard was dropped when its runtime ended, so the lock must be free, in round {round}: {error}"
            ))
        })?;
        rises(token, next.token())?;
        next.release().await?;
    }
    Ok(())
}

/// A wait is cancelled when its runtime ends. Its claim is withdrawn all the same.
async fn withdrawn_as_the_runtime_ends(stage: &Stage) -> Check {
    let ([one, two, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(LONG_LEASE).acquire().await?;
    let (client, name_there) = (two.clone(), name.clone());
    in_own_runtime(move || async move {
        let lock = client.lock(&name_there).lease(LONG_LEASE);
        let mut waiting = Box::pin(lock.acquire());
        let given_up = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        ensure!(given_up.is_err(), "granted while another client holds it: {given_up:?}");
        ensure!(client.probe.count(Method::Acquire, &name_there) > 0, "a wait sent no request");
        Ok(())
    })
    .await?;
    guard.release().await?;
    let next = other.lock(&name).wait(PATIENCE).acquire().await.map_err(|error| {
        Stop::failed(format_args!(
            "a wait was cancelled when its runtime ended, and the holder released the lock, so it must be free: {error}"
        ))
    })?;
    Ok(next.release().await?)
}

/// A task blocks the holder's executor for longer than a lease. The lock is still renewed.
async fn held_while_the_executor_is_blocked(stage: &Stage) -> Check {
    let (other, name) = (stage.client().await?, stage.name("a"));
    let (clients, name_there) = (stage.opener(), name.clone());
    let (taken, had) = oneshot::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let busy = in_own_runtime(move || async move {
        let client = clients.client().await?;
        // Opens several connections in this runtime. A renewal must use none of them, because they are silent then.
        let crowd = (0..8).map(|number| {
            let lock = client.lock(format!("{name_there}.{number}")).wait(PATIENCE);
            async move { lock.acquire().await?.release().await }
        });
        try_join_all(crowd).await?;
        let guard = client.lock(&name_there).lease(LEASE).wait(PATIENCE).acquire().await?;
        drop(taken.send(guard.hold()));
        // Like work that computes or blocks in a runtime with one thread.
        let _ = blocked.recv();
        ensure!(guard.is_held(), "lost while its holder's executor was blocked: {:?}", guard.loss());
        Ok(guard.release().await?)
    });
    let watching = async move {
        // Without a hold, the other side reports why.
        let Ok(hold) = had.await else { return Ok(()) };
        let kept = outlast_leases(&[hold], &other).await;
        drop(unblock);
        kept
    };
    let (busy, watching) = tokio::join!(busy, watching);
    watching.and(busy)
}

/// Waits until the leases that these have now are over, but for renewals. Another client is refused all the while.
async fn outlast_leases(holds: &[Hold], other: &Client) -> Check {
    let ends: Vec<_> = holds.iter().filter_map(Hold::deadline).collect();
    while ends.iter().any(|end| !end.has_passed()) {
        still_exclude(other, holds).await?;
        pause::look_again().await;
    }
    still_exclude(other, holds).await
}
