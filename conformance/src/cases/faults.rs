//! Faults of the server, the network and clients: no name has two holders, no request hangs, and everything works again
//! afterwards (clauses F1 to F4).

pub(super) mod clock;
mod scene;

use super::contention::Contention;
use crate::{
    Check, Need, Stage,
    case::cases,
    check::{
        Stop, at_most, deadline, ensure, ensure_matches, eventually, lost_with, rises, still_held, waits,
        within,
    },
    pause,
    saboteur::Hurt,
};
use scene::{LONG_LEASE, OUTAGE, PATIENCE, Scene, granted};
use std::time::Duration;
use tenure_core::{Error, Hold, LossCause, Moment, StandingKind};
use tokio::sync::oneshot;

cases!("faults":
    server_frozen_past_lease.alone().shared(), connection_silent_past_lease.alone(),
    dying_session_grants_nothing.alone(), server_restarted.alone().shared(),
    connection_reset_mid_acquire.alone(), connection_reset_mid_release.alone(),
    reply_delayed_past_timeout.alone(), client_killed.shared(), client_frozen_past_lease.shared(),
    server_unreachable_fails_in_time.alone(), reconnects_after_outage.alone(),
);

const LEASE: Duration = Duration::from_secs(2);
/// Half of it is left when a server is back, and it is renewed within seconds after that.
const RESTART: Duration = Duration::from_secs(12);
/// How far the clocks of a store and a client may differ within a lease: 1 %, as in clause L3, and a millisecond or
/// two.
const TICK: Duration = Duration::from_millis(22);
/// Longer than any store's client waits for an answer by default.
const PAST_TIMEOUT: Duration = Duration::from_secs(8);

/// Whether a lock may be lost for this reason when its server is silent.
fn is_of_silence(cause: LossCause) -> bool {
    matches!(cause, LossCause::Expired | LossCause::SessionEnded)
}

/// Checks that a lock with a short lease was released, or that the release took longer than the lease, as it may on a
/// busy machine.
fn over(outcome: Result<(), Error>) -> Check {
    match outcome {
        Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Fails if the next holder is granted the name while the first still believes that it holds it. If the store
/// forgets, the first may believe so until its deadline at that moment.
async fn never_both(first: Hold, next: oneshot::Receiver<Hold>, forgets: bool) -> Check {
    // If there is no grant, the waiter reports why.
    let Ok(next) = next.await else { return Ok(()) };
    let Some(until) = first.deadline() else { return Ok(()) };
    ensure!(forgets, "the name was granted to {next:?} while another client holds it: {first:?}");
    while next.is_held() {
        let over = until.has_passed();
        if !first.is_held() {
            break;
        }
        ensure!(
            !over,
            "the older holder was renewed although the name was granted anew: {first:?}, {next:?}"
        );
        pause::look_again().await;
    }
    Ok(())
}

/// The server freezes for longer than a lease. The holder reports the loss in time, and a waiter is granted the lock.
async fn server_frozen_past_lease(stage: &Stage) -> Check {
    silent_past_lease(stage, Hurt::Freeze).await
}

/// Like a frozen server, for stores where only the connection can be disturbed. Requests sent meanwhile arrive late.
async fn connection_silent_past_lease(stage: &Stage) -> Check {
    silent_past_lease(stage, Hurt::HalfOpen).await
}

async fn silent_past_lease(stage: &Stage, hurt: Hurt) -> Check {
    let scene = Scene::set(stage, &[hurt]).await?;
    let guard = scene.one.lock(&scene.name).lease(LEASE).acquire().await?;
    let waiter = scene.waiter();
    match hurt {
        Hurt::Freeze => scene.saboteur.hurt(Hurt::Freeze).await?,
        _ => scene.saboteur.hurt(Hurt::HalfOpen).await?,
    }
    let (silent, deadline) = (Moment::now(), guard.deadline());
    let cause = within(PATIENCE, "the loss of a lock while its server is silent", guard.lost()).await?;
    let after = Moment::now().since(silent);
    ensure!(
        is_of_silence(cause),
        "the server was silent, so the loss must be by expiry or the session's end, not \"{cause}\""
    );
    let latest = match (stage.capabilities().standing, deadline) {
        (StandingKind::Lease, _) => LEASE,
        (StandingKind::Session, Some(deadline)) => deadline.since(silent),
        (StandingKind::Session, None) => PATIENCE,
    };
    ensure!(
        after <= at_most(latest),
        "the server fell silent when {latest:?} of the lease were left, but the holder reported the loss only after {after:?}"
    );
    match hurt {
        Hurt::Freeze => scene.saboteur.undo(Hurt::Freeze).await?,
        _ => scene.heal().await?,
    }
    let next = granted(waiter).await?;
    rises(guard.token(), next.token())?;
    ensure!(!guard.is_held(), "a lost lock was revived when the server came back: {guard:?}");
    lost_with(guard.release().await)?;
    // A server that was silent so long may also end the next holder's session, just after the grant.
    scene.released(next.release().await).await?;
    scene.end().await
}

/// A claim is granted in a session that its client gives up before the server does. The client asks again in its next
/// session, and the old grant ends with the old session.
async fn dying_session_grants_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Session)?;
    let saboteur = stage.saboteur(&[Hurt::DropReplies])?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let first = one.lock(&name).lease(LEASE).acquire().await?;
    let session = first.deadline().map(Moment::left).unwrap_or_default();
    let before = first.token();
    over(first.release().await)?;
    saboteur.hurt(Hurt::DropReplies).await?;
    let acquiring = waits(one.lock(&name).lease(LEASE).wait(PATIENCE));
    // By then the session is over for the client. The server has heard from it all the while.
    pause::outlast(session + session / 8).await;
    saboteur.mend().await?;
    let guard = granted(acquiring).await?;
    rises(before, guard.token())?;
    // By then the server has ended the old session too.
    let until = Moment::now() + session * 2;
    while !until.has_passed() {
        match other.lock(&name).lease(LEASE).try_acquire().await {
            Ok(Some(second)) => {
                let both = guard.is_held() && second.is_held();
                ensure!(
                    !both,
                    "the name was granted twice after the end of an old session: {guard:?}, {second:?}"
                );
                second.release().await?;
                break;
            }
            Ok(None) => {}
            // Its own session may have ended as well.
            Err(error) => ensure!(
                error.is_retryable(),
                "the server is back, so the error must be one that a retry may mend: {error}"
            ),
        }
        pause::look_again().await;
    }
    match guard.release().await {
        Ok(()) | Err(Error::Lost { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The server restarts during a lease. A store that keeps its grants keeps this one, if it is back in time for a
/// renewal. If the store forgets, the holder may count on its lock until the deadline that it had.
async fn server_restarted(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::Kill]).await?;
    let forgets = stage.subject().forgets(Hurt::Kill);
    let guard = scene.one.lock(&scene.name).lease(RESTART).acquire().await?;
    let first = guard.token();
    let (tell, told) = oneshot::channel();
    let lock = scene.other.rival(&scene.name).lease(PATIENCE).wait(OUTAGE);
    let waiter = tokio::spawn(async move {
        let next = lock.acquire().await?;
        // The watcher may have ended.
        let _ = tell.send(next.hold());
        Ok::<_, Error>(next)
    });
    let watch = tokio::spawn(never_both(guard.hold(), told, forgets));
    let in_time = Moment::now() + deadline(&guard)?.left() / 2;
    scene.saboteur.restart().await?;
    let must_stay = !forgets && scene.standing == StandingKind::Lease && !in_time.has_passed();
    let back = guard.deadline();
    eventually!(
        at_most(RESTART),
        guard.deadline().is_none() || guard.deadline() > back,
        "a renewal or the loss of a lock, after the server is back: {guard:?}"
    );
    match guard.release().await {
        Ok(()) => {}
        Err(Error::Lost { cause, .. }) => {
            ensure!(
                !must_stay,
                "the server was back with its data before half the lease had passed, but the lock was lost: {cause}"
            );
            let forgotten = forgets && matches!(cause, LossCause::Forgotten | LossCause::TakenOver);
            ensure!(
                forgotten || is_of_silence(cause),
                "the server restarted, and the lock was lost for a cause that this cannot have: {cause}"
            );
        }
        Err(error) => return Err(error.into()),
    }
    let next = granted(waiter).await?;
    watch.await??;
    rises(first, next.token())?;
    // The next holder's session was silent too while the server was away, so it may end just after the grant.
    scene.released(next.release().await).await?;
    scene.end().await
}

/// Connections are reset during an acquire. Its grant excludes other clients, and its release frees the name.
async fn connection_reset_mid_acquire(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::DropReplies, Hurt::Cut]).await?;
    // In each round the connection ends at another point of the acquisition: before, at, or after the lost reply.
    for pause in [0, 1, 5, 20, 100] {
        scene.next_round().await?;
        scene.saboteur.hurt(Hurt::DropReplies).await?;
        let acquiring = waits(scene.one.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE));
        pause::settle(Duration::from_millis(pause)).await;
        ensure!(!acquiring.is_finished(), "replies were dropped, so no acquisition can succeed");
        scene.saboteur.hurt(Hurt::Cut).await?;
        scene.heal().await?;
        let guard = granted(acquiring).await?;
        scene.excludes(&guard).await?;
        scene.hand_on(guard).await?;
    }
    scene.end().await
}

/// Connections are reset during a release. The release ends, and the next client is granted the name.
async fn connection_reset_mid_release(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::DropReplies, Hurt::Cut]).await?;
    for pause in [0, 1, 5, 20, 100] {
        scene.next_round().await?;
        let guard = scene.one.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
        let before = guard.token();
        scene.saboteur.hurt(Hurt::DropReplies).await?;
        let releasing = tokio::spawn(guard.release());
        pause::settle(Duration::from_millis(pause)).await;
        let early = releasing.is_finished();
        scene.saboteur.hurt(Hurt::Cut).await?;
        scene.heal().await?;
        let released = within(PATIENCE, "a release whose connection was reset", releasing).await??;
        ensure!(!early || released.is_err(), "replies were dropped, so no release can succeed");
        scene.released(released).await?;
        let next = scene.other.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
        rises(before, next.token())?;
        next.release().await?;
    }
    scene.end().await
}

/// The reply comes after the client's timeout. The attempt ends with a retryable error or its grant, and leaves
/// nothing behind.
async fn reply_delayed_past_timeout(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::DelayReplies]).await?;
    let first = scene.one.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
    let before = first.token();
    first.release().await?;
    scene.saboteur.inject(Hurt::DelayReplies.by(PAST_TIMEOUT)).await?;
    // Where a failover may have the store forget the withdrawal, the lease ends the grant.
    let lease = if stage.subject().forgets(Hurt::DelayReplies) { PATIENCE / 2 } else { LONG_LEASE };
    let asked = Moment::now();
    match scene.one.lock(&scene.name).lease(lease).try_acquire().await {
        Err(error) => ensure!(
            error.is_retryable(),
            "the reply was late, so the error must be one that a retry may mend: {error}"
        ),
        Ok(Some(guard)) => {
            let after = Moment::now().since(asked);
            ensure!(
                after + TICK >= PAST_TIMEOUT,
                "the reply was to be {PAST_TIMEOUT:?} late, but came after {after:?}"
            );
            guard.release().await?;
        }
        Ok(None) => {
            return Err(Stop::failed(
                "a free name was refused when the reply was late: expected a grant or an error",
            ));
        }
    }
    scene.heal().await?;
    let next = scene.other.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
    rises(before, next.token())?;
    next.release().await?;
    scene.end().await
}

/// A process that holds a lock is killed. The name is granted again; on a store with leases, not before the lease has expired.
async fn client_killed(stage: &Stage) -> Check {
    stage.needs(Need::Processes)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let contention = Contention::begin(stage, &[]).await?;
    let mut victim = stage.victim().await?;
    let asked = Moment::now();
    let token = victim.hold(&name, LEASE).await?;
    victim.keeps_out(&client.rival(&name)).await?;
    victim.kill().await?;
    let next = client.rival(&name).wait(PATIENCE).acquire().await?;
    if stage.capabilities().standing == StandingKind::Lease {
        let since = Moment::now().since(asked);
        ensure!(
            since + TICK >= LEASE,
            "a killed process held the lock with a lease of {LEASE:?}, but it was granted again after {since:?}"
        );
    }
    rises(token, next.token())?;
    next.release().await?;
    contention.goes_on().await
}

/// A process freezes for longer than its lease. Afterwards it knows of its loss, and its release does not harm its
/// successor.
async fn client_frozen_past_lease(stage: &Stage) -> Check {
    stage.needs(Need::Processes)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let contention = Contention::begin(stage, &[]).await?;
    let mut victim = stage.victim().await?;
    let token = victim.hold(&name, LEASE).await?;
    victim.keeps_out(&client.rival(&name)).await?;
    victim.stop()?;
    let next = client.rival(&name).wait(PATIENCE).acquire().await?;
    rises(token, next.token())?;
    victim.resume()?;
    ensure!(
        !victim.is_held().await?,
        "a process that was frozen past its lease still believes that it holds the lock"
    );
    let cause = victim.loss().await?;
    ensure!(
        [LossCause::Expired, LossCause::TakenOver, LossCause::SessionEnded]
            .iter()
            .any(|known| cause.as_deref() == Some(known.as_str())),
        "a process that was frozen past its lease reports a wrong cause of the loss: {cause:?}"
    );
    still_held(&next)?;
    ensure!(
        victim.release().await.is_err(),
        "a process that was frozen past its lease must get an error from `release`"
    );
    next.release().await?;
    contention.goes_on().await
}

/// The server refuses connections, or is silent. A try and a wait end in time, and work again afterwards.
async fn server_unreachable_fails_in_time(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::Refuse, Hurt::HalfOpen, Hurt::Cut]).await?;
    for hangs in [false, true] {
        scene.next_round().await?;
        if hangs {
            scene.saboteur.hurt(Hurt::HalfOpen).await?;
        } else {
            scene.saboteur.hurt(Hurt::Refuse).await?;
            scene.saboteur.hurt(Hurt::Cut).await?;
        }
        let lock = scene.one.lock(&scene.name).lease(LEASE);
        // The bound is the lease: after a longer timeout of the store, nothing of it would be left.
        let tried =
            within(at_most(LEASE), "an attempt while the server is unreachable", lock.try_acquire()).await?;
        ensure_matches!(tried, Err(Error::Unavailable { .. }));
        let wait = Duration::from_secs(1);
        let waited =
            within(at_most(wait), "a wait while the server is unreachable", lock.wait(wait).acquire())
                .await?;
        ensure_matches!(waited, Err(Error::Timeout { .. } | Error::Unavailable { .. }));
        scene.heal().await?;
        let guard = scene.one.lock(&scene.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
        scene.hand_on(guard).await?;
    }
    scene.end().await
}

/// A client waits while the server is down. It is granted the lock after the restart.
async fn reconnects_after_outage(stage: &Stage) -> Check {
    let scene = Scene::set(stage, &[Hurt::Kill]).await?;
    let guard = scene.one.lock(&scene.name).lease(LEASE).acquire().await?;
    let before = guard.token();
    over(guard.release().await)?;
    scene.saboteur.hurt(Hurt::Kill).await?;
    let waiter = scene.waiter();
    pause::linger(LEASE).await;
    ensure!(!waiter.is_finished(), "a wait ended while the server was down: {:?}", waiter.await?);
    scene.saboteur.restart().await?;
    let next = granted(waiter).await?;
    rises(before, next.token())?;
    scene.hand_on(next).await?;
    scene.end().await
}
