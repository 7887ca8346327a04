//! Several clients on one backend, of which one closes: the others go on (clauses U3, L4, W7).

use crate::{
    Check, Stage,
    case::cases,
    check::{deadline, ensure, eventually, kept_out, still_held, within},
};
use std::time::Duration;
use tenure_core::{Moment, Wakeup};

cases!("closing": others_go_on.punctual());

/// A lease that expires during the case unless it is renewed.
const LEASE: Duration = Duration::from_secs(3);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 7;

async fn others_go_on(stage: &Stage) -> Check {
    let ([holder, one], name) = (stage.clients().await?, stage.name("a"));
    let kept = one.lock(stage.name("kept")).lease(LEASE).acquire().await?;
    let first = deadline(&kept)?;
    let mut delays = Vec::new();
    for _ in 0..ROUNDS {
        let other = stage.client_beside(&one);
        other.lock(stage.name("brief")).acquire().await?.release().await?;
        let guard = holder.lock(&name).wait(PATIENCE).acquire().await?;
        let lock = one.lock(&name).wait(PATIENCE);
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            Check::Ok((guard, Moment::now()))
        });
        eventually!(PATIENCE, one.probe.calls().contending(&name) == 1);
        // Until it has been refused and is asleep.
        tokio::time::sleep(Duration::from_millis(150)).await;
        within(PATIENCE, "closing beside another client", other.close()).await?;
        // Until it is asleep again, should its connection have been replaced.
        tokio::time::sleep(Duration::from_millis(400)).await;
        ensure!(!waiter.is_finished(), "another client closed, and the wait was over: {:?}", waiter.await?);
        still_held(&guard)?;
        let released = Moment::now();
        guard.release().await?;
        let (guard, had) = waiter.await??;
        delays.push(had.since(released));
        guard.release().await?;
    }
    while !first.has_passed() {
        still_held(&kept)?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Only a renewal can have given it another deadline.
    still_held(&kept)?;
    kept_out(&holder.lock(kept.name().as_str())).await?;
    kept.release().await?;
    delays.sort_unstable();
    let capabilities = stage.capabilities();
    let bound = match capabilities.wakeup {
        // Whoever is not told asks again after more than this in most rounds.
        Wakeup::Push | Wakeup::Queue => capabilities.ask_again / 8,
        Wakeup::Poll => capabilities.ask_again * 2,
    };
    let median = delays[ROUNDS / 2];
    ensure!(
        median <= bound,
        "another client closed, and a waiter was granted the lock {median:?} after its release (median), later than \
         {bound:?}: {delays:?}"
    );
    Ok(())
}
