//! Deadlines, which count from when the request was sent, however late its answer is (clause L3).

use crate::{
    Check, Fault, Method, Need, Stage,
    check::{Stop, deadline, ensure, eventually, free_at_once, millis, within},
    pause,
    saboteur::Hurt,
};
use std::time::Duration;
use tenure_core::{Guard, Moment, lease::drift_allowance};

/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(15);

/// Stops the case unless the deadline counts from when the request was sent: the answer took at least `slow`.
fn counts_from_send(guard: &Guard, lease: Duration, slow: Duration, answered: Moment, what: &str) -> Check {
    let deadline = deadline(guard)?;
    let latest = answered + lease.saturating_sub(drift_allowance(lease));
    let after_send = deadline + slow;
    ensure!(
        after_send <= latest,
        "the {what} was slow, and the deadline is {:?} too late: it must count from before the request was sent",
        after_send.since(latest)
    );
    Ok(())
}

/// Each answer of the store is late. Deadlines count from when the request was sent.
pub(super) async fn deadline_counts_from_send(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    // Nothing here is so late that it is renewed.
    let (lease, slow) = (millis(12_000), millis(350));
    let (client, name) = (stage.client().await?, stage.name("a"));
    let counts_from_send =
        |guard: &Guard, what: &str| counts_from_send(guard, lease, slow, Moment::now(), what);
    for try_only in [false, true] {
        // Repeated requests too: without this, their answers would be prompt.
        for method in [Method::Acquire, Method::TryAcquire, Method::Renew] {
            client.probe.always(method, Fault::DelayReply(slow));
        }
        let lock = client.lock(&name).lease(lease).renew(false);
        let guard = if try_only { free_at_once(&lock).await? } else { lock.acquire().await? };
        counts_from_send(&guard, "grant")?;
        guard.extend(lease).await?;
        counts_from_send(&guard, "extension")?;
        guard.release().await?;
        client.probe.heal();
    }
    // Repeated renewals too.
    client.probe.always(Method::Renew, Fault::DelayReply(slow));
    let guard = client.lock(&name).lease(lease).acquire().await?;
    let first = guard.deadline();
    eventually!(PATIENCE, guard.deadline() != first, "a renewal that moves the deadline");
    counts_from_send(&guard, "renewal")?;
    Ok(guard.release().await?)
}

/// The store's own code gets its answers late. The deadline must still count from before its first await: otherwise two
/// clients hold the lock.
pub(super) async fn stalled_answer_counts_from_send(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, stall) = (millis(20_000), millis(300));
    let (client, name) = (stage.client().await?, stage.name("a"));
    let lock = client.lock(&name).lease(lease).renew(false);
    for try_only in [false, true] {
        let mut counts = Ok(());
        // A machine may stall now and then; a store that takes the wrong time does so every time.
        for _ in 0..3 {
            client.probe.next(Method::Acquire, Fault::Stall(stall));
            client.probe.next(Method::TryAcquire, Fault::Stall(stall));
            let asked = Moment::now();
            let guard = if try_only { free_at_once(&lock).await? } else { lock.acquire().await? };
            let answered = Moment::now();
            // A store that waits for no answer gets none late.
            let waited = answered.since(asked) >= stall;
            counts =
                if waited { counts_from_send(&guard, lease, stall / 2, answered, "grant") } else { Ok(()) };
            guard.release().await?;
            client.probe.heal();
            if counts.is_ok() {
                break;
            }
        }
        counts?;
    }
    Ok(())
}

/// The server's answers are late: to an attempt, to an acquisition of a free lock, and to a waiter. Each deadline
/// counts from before the request.
pub(super) async fn delayed_answer_counts_from_send(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let saboteur = stage.saboteur(&[Hurt::DelayReplies])?;
    let (lease, slow) = (millis(20_000), millis(400));
    let ([client, other], name) = (stage.clients().await?, stage.name("a"));
    let lock = client.lock(&name).lease(lease).renew(false).wait(PATIENCE);
    // Connect first.
    for client in [&client, &other] {
        client.lock(&name).acquire().await?.release().await?;
    }
    saboteur.inject(Hurt::DelayReplies.by(slow)).await?;
    let guard = free_at_once(&lock).await?;
    counts_from_send(&guard, lease, slow * 3 / 4, Moment::now(), "answer to an attempt")?;
    guard.release().await?;
    let guard = lock.acquire().await?;
    counts_from_send(&guard, lease, slow * 3 / 4, Moment::now(), "answer")?;
    guard.release().await?;
    let held = other.lock(&name).lease(lease).wait(PATIENCE).acquire().await?;
    let waiting = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        Check::Ok((guard, Moment::now()))
    });
    eventually!(PATIENCE, client.probe.calls().contending(&name) > 0);
    pause::outlast(slow * 2).await;
    held.release().await?;
    let (guard, had) = within(PATIENCE, "a waiter's grant after the release", waiting).await???;
    counts_from_send(&guard, lease, slow * 3 / 4, had, "answer to a waiter")?;
    saboteur.mend().await?;
    Ok(guard.release().await?)
}

/// The answers to a session's heartbeats are late. The deadline must count from when each was sent.
///
/// The delay is a small part of the session, because a client may leave a server that is silent for longer: a machine
/// that stalls in addition would end the session.
pub(super) async fn delayed_proof_counts_from_send(stage: &Stage) -> Check {
    stage.needs(Need::Session)?;
    let saboteur = stage.saboteur(&[Hurt::DelayReplies])?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    // A stall of the machine only shortens the time that is left after a heartbeat.
    let prompt = left_after_each(&guard, 2).await?.into_iter().max().unwrap_or_default();
    let slow = prompt / 12;
    saboteur.inject(Hurt::DelayReplies.by(slow)).await?;
    // One heartbeat may have been answered before.
    let slowed = left_after_each(&guard, 3).await?.split_off(1);
    // A store that takes the wrong time does so every time.
    ensure!(
        slowed.iter().any(|left| *left + slow / 2 <= prompt),
        "a heartbeat with a prompt answer leaves the session {prompt:?}, and heartbeats answered after {slow:?} leave it \
         {slowed:?}: the deadline must count from when a heartbeat is sent"
    );
    saboteur.mend().await?;
    Ok(guard.release().await?)
}

/// The time left to a session right after each of its next heartbeats.
async fn left_after_each(guard: &Guard, heartbeats: usize) -> Check<Vec<Duration>> {
    let (mut left, mut seen) = (Vec::new(), guard.deadline());
    for _ in 0..heartbeats {
        eventually!(PATIENCE, guard.deadline() != seen, "a heartbeat that moves the deadline");
        seen = guard.deadline();
        left.push(
            seen.ok_or_else(|| Stop::failed("the session ended although its heartbeats are answered"))?
                .left(),
        );
    }
    Ok(left)
}
