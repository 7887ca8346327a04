//! Cancelling a wait: at any point, and without leaving anything behind (clause W3).

use crate::{
    Check, Client, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, ensure_matches, eventually, free_at_once, kept_out, within},
    pause,
};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};
use tenure_core::{Error, Moment};
use tokio::sync::oneshot;

cases!("waiting":
    cancel_at_every_await, cancel_races_grant, refused_claim_leaves_nothing,
    unpolled_future_blocks_no_other_lock,
);

/// How soon after a cancelled wait the lock can be acquired, also where that takes a new connection of a busy server.
/// Leases here are 30 s, so a leaked one is in the way.
const SOON: Duration = Duration::from_secs(20);

/// Proves that the next client is granted the lock.
async fn next_gets_in(next: &Client, name: &str, after: &str) -> Check {
    let taken = next.lock(name).wait(SOON).acquire().await;
    let guard = taken.map_err(|error| {
        Stop::failed(format_args!(
            "{after}, so the lock must be free, but it was not granted within {SOON:?}: {error}"
        ))
    })?;
    Ok(guard.release().await?)
}

/// Polls the future this many times, and drops it if it is not done by then.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        left -= 1;
        if left == 0 { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// More polls than any store's acquire takes.
const MOST_POLLS: usize = 500;

/// An acquire is dropped at each of its awaits in turn, of a free and of a held lock. The next client is granted the
/// lock each time.
async fn cancel_at_every_await(stage: &Stage) -> Check {
    let ([one, other, next], name) = (stage.clients().await?, stage.name("a"));
    // A free lock.
    for polls in 1.. {
        ensure!(polls < MOST_POLLS, "an acquire was not done after {polls} polls");
        let lock = other.lock(&name);
        if let Some(guard) = polled(polls, lock.acquire()).await {
            guard?.release().await?;
            break;
        }
        next_gets_in(&next, &name, &format!("an acquire was dropped at poll {polls}")).await?;
    }
    // A lock that is held at first.
    for polls in 1.. {
        ensure!(polls < MOST_POLLS, "an acquire was not done after {polls} polls");
        let guard = one.lock(&name).wait(SOON).acquire().await?;
        let lock = other.lock(&name);
        let waiter = tokio::spawn(async move { polled(polls, lock.acquire()).await });
        let waits = || other.probe.calls().contending(&name) > 0;
        eventually!(SOON, waits() || waiter.is_finished(), "one waiter's request");
        guard.release().await?;
        if let Some(guard) = waiter.await? {
            guard?.release().await?;
            break;
        }
        next_gets_in(&next, &name, &format!("a wait was dropped at poll {polls}")).await?;
    }
    eventually!(SOON, other.names_in_use() == 0, "no queue is left in the client of the cancelled waits");
    Ok(())
}

/// An acquire is suspended at an await, neither polled nor dropped, as in a `select!` in a loop. Another lock of this
/// client is granted all the same.
async fn unpolled_future_blocks_no_other_lock(stage: &Stage) -> Check {
    let client = stage.client().await?;
    for polls in 1.. {
        ensure!(polls < MOST_POLLS, "an acquire was not done after {polls} polls");
        let lock = client.lock(stage.name(&format!("a{polls}")));
        let mut unpolled = pin!(lock.acquire());
        if let Some(guard) = polled(polls, unpolled.as_mut()).await {
            return Ok(guard?.release().await?);
        }
        let what = format!(
            "locking and releasing another name, while an acquire of this client is not polled after poll {polls},"
        );
        let other = client.lock(stage.name("b")).wait(SOON);
        let guard = within(SOON * 2, &what, other.acquire()).await??;
        within(SOON * 2, &what, guard.release()).await??;
    }
    Ok(())
}

/// Cancellation and release happen at once, many times. Each wait is granted or leaves nothing behind.
async fn cancel_races_grant(stage: &Stage) -> Check {
    const ROUNDS: u32 = 200;
    // On a slow store, fewer rounds must do.
    const BUDGET: Duration = Duration::from_mins(2);
    let ([one, other, next], name) = (stage.clients().await?, stage.name("a"));
    let (begun, mut rounds, mut had, mut given_up) = (Moment::now(), 0, 0, 0);
    for round in 0..ROUNDS {
        if Moment::now().since(begun) > BUDGET {
            break;
        }
        rounds += 1;
        let taken = one.lock(&name).wait(SOON).acquire().await;
        let guard = taken.map_err(|error| {
            Stop::failed(format_args!("a cancelled wait left a grant behind, in round {round}: {error}"))
        })?;
        let (cancel, told) = oneshot::channel();
        let lock = other.lock(&name);
        let waiter = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = told => None,
                outcome = lock.acquire() => Some(outcome),
            }
        });
        while other.probe.calls().contending(&name) == 0 {
            tokio::task::yield_now().await;
        }
        let release = tokio::spawn(guard.release());
        race(round).await;
        // The waiter may have ended by itself.
        let _ = cancel.send(());
        release.await??;
        match waiter.await? {
            None => given_up += 1,
            Some(outcome) => {
                had += 1;
                outcome?.release().await?;
            }
        }
    }
    ensure_eq!(had + given_up, rounds, "waits that were granted or cancelled");
    // Cancelled claims are withdrawn by the end of closing, so the lock is free at once.
    other.close().await;
    one.close().await;
    Ok(free_at_once(&next.lock(&name)).await?.release().await?)
}

/// A pause that differs in each round, from none to a few milliseconds.
async fn race(round: u32) {
    for _ in 0..round % 8 {
        tokio::task::yield_now().await;
    }
    if round.is_multiple_of(3) {
        pause::settle(Duration::from_micros(250) * (round % 16)).await;
    }
}

/// A try is refused and a wait times out. Neither delays the next client after the release.
async fn refused_claim_leaves_nothing(stage: &Stage) -> Check {
    let ([one, tried, waited, next], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    kept_out(&tried.lock(&name)).await?;
    let outcome = waited.lock(&name).wait(Duration::from_millis(300)).acquire().await;
    ensure_matches!(outcome, Err(Error::Timeout { .. }));
    eventually!(
        SOON,
        tried.names_in_use() + waited.names_in_use() == 0,
        "no queue is left in the refused clients"
    );
    tried.close().await;
    waited.close().await;
    guard.release().await?;
    one.close().await;
    Ok(free_at_once(&next.lock(&name)).await?.release().await?)
}
