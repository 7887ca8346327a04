//! Succession in one client: several holders in turn with one grant of the store.

use crate::{
    Check, Client, Method, Need, Stage,
    case::cases,
    check::{ensure, ensure_eq, ensure_matches, free_at_once, kept_out, rises, still_held, within},
};
use futures_util::FutureExt;
use std::{future::Future, pin::Pin, time::Duration};
use tenure_core::{Capability, Error, Guard, Lock, Locks, LossCause};

cases!("succession":
    chain_needs_one_grant.policy(), forced_release_reaches_last_successor.policy(),
    refused_without_reserved_tokens.policy(),
);

/// A third of it is far longer than a chain takes here on a busy machine.
const LEASE: Duration = Duration::from_mins(5);
const PATIENCE: Duration = Duration::from_secs(20);
const SUCCESSORS: u32 = 3;

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Turns succession on.
fn with_succession(client: &Client) -> Check {
    Locks::clone(client).with_succession(SUCCESSORS)?;
    Ok(())
}

/// Begins to wait for the lock, behind its holder.
fn waiting(lock: &Lock) -> Check<Waiting> {
    let lock = lock.clone();
    let mut waiting: Waiting = Box::pin(async move { lock.acquire().await });
    ensure!(waiting.as_mut().now_or_never().is_none(), "a waiter was granted a held lock");
    Ok(waiting)
}

/// Waiters of one client follow each other with one grant, until its reserved tokens are used up.
async fn chain_needs_one_grant(stage: &Stage) -> Check {
    stage.needs(Need::Succession)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    with_succession(&one)?;
    let lock = one.lock(&name).lease(LEASE);
    let mut guard = lock.acquire().await?;
    let successors = (0..=SUCCESSORS).map(|_| waiting(&lock)).collect::<Check<Vec<_>>>()?;
    for (number, next) in (1..).zip(successors) {
        kept_out(&other.lock(&name)).await?;
        let (claim, token, deadline) = (guard.claim(), guard.token(), guard.deadline());
        guard.release().await?;
        guard = within(PATIENCE, "the grant of the next waiter in this client", next).await??;
        still_held(&guard)?;
        rises(token, guard.token())?;
        if number <= SUCCESSORS {
            let inherited = (guard.claim(), guard.deadline());
            ensure_eq!(inherited, (claim, deadline), "claim and deadline of successor {number}");
        } else {
            ensure!(
                guard.claim() != claim,
                "a grant with {SUCCESSORS} reserved tokens has a successor more: {guard:?}"
            );
        }
    }
    let last = guard.token();
    guard.release().await?;
    let after = free_at_once(&other.lock(&name)).await?;
    rises(last, after.token())?;
    ensure_eq!(one.probe.count(Method::Acquire, &name), 2, "acquire requests of five holders");
    ensure_eq!(one.probe.count(Method::Release, &name), 2, "release requests of five holders");
    Ok(after.release().await?)
}

/// A grant is released by force while a successor waits. The last successor reports the loss.
async fn forced_release_reaches_last_successor(stage: &Stage) -> Check {
    stage.needs(Need::Succession)?;
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    with_succession(&one)?;
    let lock = one.lock(&name).lease(LEASE);
    let guard = lock.acquire().await?;
    let next = waiting(&lock)?;
    ensure_eq!(other.force_release(&name).await?.len(), 1, "grants that a forced release ended");
    let successor = free_at_once(&other.lock(&name)).await?;
    // The holder hands on the lost grant. Only the last successor asks the store.
    guard.release().await?;
    let guard = within(PATIENCE, "the grant of the next waiter in this client", next).await??;
    rises(guard.token(), successor.token())?;
    ensure_matches!(guard.release().await, Err(Error::Lost { cause: LossCause::Forced, .. }));
    still_held(&successor)?;
    kept_out(&one.lock(&name)).await?;
    Ok(successor.release().await?)
}

/// On a store that reserves no tokens, succession is `Err(Unsupported)`.
async fn refused_without_reserved_tokens(stage: &Stage) -> Check {
    let client = stage.client().await?;
    let refused = Locks::clone(&client).with_succession(SUCCESSORS);
    if stage.capabilities().succession > 0 {
        ensure!(
            refused.is_ok(),
            "`Capabilities::succession` is greater than 0, but `with_succession` returned {refused:?}"
        );
        return Ok(());
    }
    ensure_matches!(refused, Err(Error::Unsupported { capability: Capability::Succession, .. }));
    Ok(())
}
