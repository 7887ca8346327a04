//! Succession inside a process: holds that follow each other with one grant of the store.

use crate::{
    Check, Client, Method, Need, Stage,
    case::cases,
    check::{ensure, ensure_eq, ensure_matches, free_at_once, kept_out, rises, still_held, within},
};
use futures_util::FutureExt;
use std::{future::Future, pin::Pin, time::Duration};
use tenure_core::{Capability, Error, Guard, Lock, Locks, LossCause};

cases!("succession":
    one_grant_for_a_chain.policy(), cancelled_successors_leave_nothing.policy(), force_is_noticed, refused_where_tokens_are_not_reserved,
);

/// A third of it is far longer than a chain of these cases takes on a busy machine.
const LEASE: Duration = Duration::from_mins(5);
const PATIENCE: Duration = Duration::from_secs(20);
const SUCCESSORS: u32 = 3;

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Turns succession on.
fn with_succession(client: &Client) -> Check {
    Locks::clone(client).with_succession(SUCCESSORS)?;
    Ok(())
}

/// Begins to wait for the lock, behind whoever holds it.
fn waiting(lock: &Lock) -> Check<Waiting> {
    let lock = lock.clone();
    let mut waiting: Waiting = Box::pin(async move { lock.acquire().await });
    ensure!(waiting.as_mut().now_or_never().is_none(), "acquired at once, while another holds it");
    Ok(waiting)
}

async fn one_grant_for_a_chain(stage: &Stage) -> Check {
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
        guard = within(PATIENCE, "the turn of the next in this client", next).await??;
        still_held(&guard)?;
        rises(token, guard.token())?;
        if number <= SUCCESSORS {
            ensure_eq!((guard.claim(), guard.deadline()), (claim, deadline));
        } else {
            ensure!(guard.claim() != claim, "one grant has {number} successors");
        }
    }
    let last = guard.token();
    guard.release().await?;
    let after = free_at_once(&other.lock(&name)).await?;
    rises(last, after.token())?;
    ensure_eq!(one.probe.count(Method::Acquire, &name), 2);
    ensure_eq!(one.probe.count(Method::Release, &name), 2);
    Ok(after.release().await?)
}

async fn cancelled_successors_leave_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Succession)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    with_succession(&one)?;
    let lock = one.lock(&name).lease(LEASE);
    let guard = lock.acquire().await?;
    let (first, second, third) = (waiting(&lock)?, waiting(&lock)?, waiting(&lock)?);
    let claim = guard.claim();
    // One goes while it waits, and one when it has been given the grant and does not know it yet.
    drop(first);
    guard.release().await?;
    drop(second);
    let guard = within(PATIENCE, "the turn of the one that stays", third).await??;
    ensure_eq!(guard.claim(), claim);
    let last = waiting(&lock)?;
    guard.release().await?;
    drop(last);
    let next = within(PATIENCE, "a lock that nobody is left to hold", other.lock(&name).acquire()).await??;
    Ok(next.release().await?)
}

async fn force_is_noticed(stage: &Stage) -> Check {
    stage.needs(Need::Succession)?;
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    with_succession(&one)?;
    let lock = one.lock(&name).lease(LEASE);
    let guard = lock.acquire().await?;
    let next = waiting(&lock)?;
    ensure_eq!(other.force_release(&name).await?.len(), 1);
    let successor = free_at_once(&other.lock(&name)).await?;
    // It hands on what it has lost, and the store is asked by the last of them.
    guard.release().await?;
    let guard = within(PATIENCE, "the turn of the next in this client", next).await??;
    rises(guard.token(), successor.token())?;
    ensure_matches!(guard.release().await, Err(Error::Lost { cause: LossCause::Forced, .. }));
    still_held(&successor)?;
    kept_out(&one.lock(&name)).await?;
    Ok(successor.release().await?)
}

async fn refused_where_tokens_are_not_reserved(stage: &Stage) -> Check {
    let client = stage.client().await?;
    let refused = Locks::clone(&client).with_succession(SUCCESSORS);
    if stage.capabilities().succession > 0 {
        ensure!(refused.is_ok(), "the store can, but {refused:?}");
        return Ok(());
    }
    ensure_matches!(refused, Err(Error::Unsupported { capability: Capability::Succession, .. }));
    Ok(())
}
