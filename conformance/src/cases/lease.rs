//! Leases: how long a grant lasts, and how it is renewed (clauses L1 to L4, L6, L7, B2).

mod from_send;

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, at_most, ensure, ensure_eq, ensure_matches, eventually, expired, kept_out, lost_with,
        millis, still_held, within,
    },
    pause,
};
use from_send::{
    deadline_counts_from_send, delayed_answer_counts_from_send, delayed_proof_counts_from_send,
    stalled_answer_counts_from_send,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tenure_core::{
    Error, Guard, LossCause, Moment,
    lease::{MAX_LEASE, MIN_LEASE, drift_allowance},
};

cases!("lease":
    expires_on_time, renewed_beyond_lease.policy(), extend_survives_original_lease,
    extend_after_expiry_is_lost.policy(), max_hold_ends.policy(), renewal_stops_after_release.policy(),
    deadline_counts_from_send.policy(), stalled_answer_counts_from_send,
    delayed_answer_counts_from_send.alone(), delayed_proof_counts_from_send.alone(),
    late_renewal_does_not_undo_extend.policy(), cancelled_extend_is_harmless.policy(),
    crossing_extends_keep_longer_lease.policy(), late_grant_is_withdrawn.policy(),
    bad_durations_refused.policy(), many_renewals_one_batch.alone(),
);

/// A lease that is renewed. It does not run out where a machine stands still for two seconds just when the renewal is
/// due.
const RENEWED: Duration = Duration::from_secs(6);
/// A lease that runs out: a third of it is longer than a busy store takes for an answer, and a grant that is answered
/// later is renewed first.
const UNRENEWED: Duration = Duration::from_secs(3);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(15);

/// After a suspension of the machine, a moment has the noise of two clocks.
const TICK: Duration = Duration::from_millis(1);

/// Stops the case if the lock was lost, or another client can acquire it.
async fn still_excludes(other: &Client, name: &str, guard: &Guard) -> Check {
    still_held(guard)?;
    kept_out(&other.lock(name)).await
}

/// A lease without renewals ends on time: the next client is granted the lock neither early nor late.
async fn expires_on_time(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (UNRENEWED, stage.clients().await?, stage.name("a"));
    let before = Moment::now();
    let guard = one.lock(&name).lease(lease).renew(false).acquire().await?;
    let granted = Moment::now();
    // None if the machine stalled so long that it has passed.
    let deadline = guard.deadline();
    let taken = other.lock(&name).wait(PATIENCE).acquire().await?;
    let had = Moment::now();
    ensure!(
        !guard.is_held(),
        "the lock was granted to another client while its former holder still holds it: {guard:?}, {taken:?}"
    );
    ensure!(
        deadline.is_none_or(|deadline| had >= deadline),
        "granted to another client {:?} before the holder's deadline",
        deadline.map(|deadline| deadline.since(had))
    );
    let soonest = lease.saturating_sub(drift_allowance(lease));
    ensure!(had.since(before) >= soonest, "a lease of {lease:?} ended after only {:?}", had.since(before));
    let took = had.since(granted);
    ensure!(took < at_most(lease + EXPIRY), "a lease of {lease:?} ended only after {took:?}");
    // On the wall clock, a grant that came late is renewed once.
    if Moment::are_virtual() {
        ensure_eq!(one.probe.count(Method::Renew, &name), 0, "renewals with `renew(false)`");
    }
    taken.release().await?;
    ensure_eq!(lost_with(guard.release().await)?, LossCause::Expired);
    Ok(())
}

/// A renewed lock is held for several leases, and excludes all the time.
async fn renewed_beyond_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    let until = Moment::now() + lease * 4;
    while !until.has_passed() {
        still_excludes(&other, &name, &guard).await?;
        pause::look_again().await;
    }
    Ok(guard.release().await?)
}

/// `extend` makes a lease longer, then shorter. The lock excludes for as long as the newest lease.
async fn extend_survives_original_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).renew(false).acquire().await?;
    pause::keep(lease / 4).await;
    guard.extend(lease * 2).await?;
    // Past the first lease, and past half of the second.
    pause::keep(lease + lease / 4).await;
    still_excludes(&other, &name, &guard).await?;
    // The lease is made shorter again.
    guard.extend(lease).await?;
    within(at_most(lease), "the loss after `extend` with a shorter lease", guard.lost()).await?;
    let taken = other.lock(&name).wait(at_most(EXPIRY)).acquire().await?;
    taken.release().await?;
    lost_with(guard.release().await).map(drop)
}

/// `extend` after the lease has expired is `Err(Lost)`, and does not harm the successor.
async fn extend_after_expiry_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (guard, rest) = expired(one.lock(&name)).await?;
    ensure_eq!(lost_with(guard.extend(PATIENCE).await)?, LossCause::Expired);
    ensure!(!guard.is_held(), "`extend` revived a lost lock: {guard:?}");
    let taken = other.lock(&name).wait(rest + EXPIRY).acquire().await?;
    lost_with(guard.extend(PATIENCE).await)?;
    still_held(&taken)?;
    Ok(taken.release().await?)
}

/// A renewed lock with `max_hold` is lost at its end, with that cause, and the next client is granted it.
async fn max_hold_ends(stage: &Stage) -> Check {
    let (lease, longest) = (RENEWED, millis(7000));
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let before = Moment::now();
    let guard = one.lock(&name).lease(lease).max_hold(longest).acquire().await?;
    let granted = Moment::now();
    let ends_in_time = || guard.deadline().is_none_or(|deadline| deadline <= granted + longest);
    ensure!(ends_in_time(), "the deadline is later than `max_hold({longest:?})` allows: {guard:?}");
    // It has been renewed by then.
    pause::keep(longest * 3 / 4).await;
    ensure!(ends_in_time(), "the deadline is later than `max_hold({longest:?})` allows: {guard:?}");
    let cause = within(longest, "the loss at the end of `max_hold`", guard.lost()).await?;
    ensure_eq!(cause, LossCause::MaxHold);
    let (least, took) = (longest.saturating_sub(TICK), Moment::now().since(before));
    ensure!(
        took >= least && took <= longest + TICK,
        "a lock with `max_hold({longest:?})` was lost after {took:?}"
    );
    ensure!(!guard.is_held(), "a lock is still held after the end of `max_hold`: {guard:?}");
    let next = other.lock(&name);
    let taken =
        within(lease + EXPIRY, "the next grant after the end of `max_hold`", next.acquire()).await??;
    ensure!(guard.deadline().is_none(), "a lost lock has a deadline: {guard:?}");
    taken.release().await?;
    ensure_eq!(lost_with(guard.release().await)?, LossCause::MaxHold);
    Ok(())
}

/// A lock is released, another is dropped. No request about them is sent afterwards.
async fn renewal_stops_after_release(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, client, name) = (RENEWED, stage.client().await?, stage.name("a"));
    let lock = client.lock(&name).lease(lease);
    let guard = lock.acquire().await?;
    eventually!(PATIENCE, client.probe.count(Method::Renew, &name) >= 1, "a renewal");
    guard.release().await?;
    let dropped = lock.acquire().await?;
    drop(dropped);
    eventually!(PATIENCE, client.probe.count(Method::Release, &name) >= 2, "a release of the dropped guard");
    // Without releases, because one whose answer is late is sent again.
    let asked = || {
        let calls = client.probe.calls().about(&name).into_iter();
        calls.filter(|call| call.method != Method::Release).collect::<Vec<_>>()
    };
    let before = asked().len();
    pause::linger(lease * 2).await;
    let after = asked();
    ensure_eq!(
        after.len(),
        before,
        "requests for a lock, before and after its release (the last is {:?})",
        after.last()
    );
    Ok(())
}

/// A renewal for the old lease reaches the store after an extension. The lock stays held for the extended lease.
async fn late_renewal_does_not_undo_extend(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    // In the first round, the late renewal is answered. In the second, the client no longer waits for its answer.
    for late in [millis(200), millis(1400)] {
        one.probe.next(Method::Renew, Fault::Straggle(late));
        let sent = one.probe.count(Method::Renew, &name);
        let guard = one.lock(&name).lease(lease).wait(PATIENCE).acquire().await?;
        eventually!(PATIENCE, one.probe.count(Method::Renew, &name) > sent, "a renewal");
        guard.extend(millis(20_000)).await?;
        pause::outlast(lease + millis(800)).await;
        still_excludes(&other, &name, &guard).await?;
        guard.release().await?;
    }
    Ok(())
}

/// Of two extensions, the shorter is carried out last and answered first. The lock stays held for the longer lease,
/// which the client requests once more.
async fn crossing_extends_keep_longer_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).renew(false).wait(PATIENCE).acquire().await?;
    one.probe.next(Method::Renew, Fault::Straggle(millis(200)));
    one.probe.next(Method::Renew, Fault::DelayReply(millis(400)));
    let (shorter, longer) = tokio::join!(guard.extend(lease), guard.extend(millis(20_000)));
    shorter?;
    longer?;
    pause::outlast(lease + millis(800)).await;
    still_excludes(&other, &name, &guard).await?;
    Ok(guard.release().await?)
}

/// `extend` is cancelled without an answer. The lock is still renewed, and excludes.
async fn cancelled_extend_is_harmless(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    // The first round is during a renewal, the second is not.
    one.probe.next(Method::Renew, Fault::DelayReply(millis(200)));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    for renewals in [1, 3] {
        eventually!(PATIENCE, one.probe.count(Method::Renew, &name) >= renewals, "{renewals} renewals");
        // The next request is that of the extension.
        one.probe.next(Method::Renew, Fault::Hang);
        let given_up = tokio::time::timeout(millis(50), guard.extend(lease * 2)).await;
        ensure!(given_up.is_err(), "`extend` ended without an answer of the store: {given_up:?}");
        pause::keep(lease * 2).await;
        still_excludes(&other, &name, &guard).await?;
    }
    one.probe.heal();
    Ok(guard.release().await?)
}

/// The store's answer comes after the lease. The client withdraws that claim and returns no expired grant.
async fn late_grant_is_withdrawn(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (millis(5000), stage.clients().await?, stage.name("a"));
    let lock = one.lock(&name).lease(lease).renew(false).wait(PATIENCE);
    let too_slow = Fault::DelayReply(lease + millis(200));
    one.probe.next(Method::Acquire, too_slow);
    let guard = lock.acquire().await?;
    ensure!(guard.is_held(), "`acquire` returned a grant whose lease had expired: {guard:?}");
    let asked_with = |method| {
        let calls = one.probe.calls().about(&name).into_iter().filter(move |call| call.method == method);
        let mut claims: Vec<_> = calls.flat_map(|call| call.about).filter_map(|(_, claim)| claim).collect();
        // A request without a prompt answer is sent again, for the same claim.
        claims.dedup();
        claims
    };
    let (acquired, withdrawn) = (asked_with(Method::Acquire), asked_with(Method::Withdraw));
    ensure_eq!(acquired.len(), 2, "claims requested: one answered too late, one in time");
    ensure_eq!(withdrawn, [acquired[0]], "claims withdrawn: the one answered too late");
    ensure_eq!(guard.claim(), acquired[1], "the claim of the guard: the one answered in time");
    guard.release().await?;
    one.probe.next(Method::TryAcquire, too_slow);
    ensure_matches!(lock.try_acquire().await, Err(Error::Unavailable { .. }));
    let tried = asked_with(Method::TryAcquire);
    eventually!(
        PATIENCE,
        asked_with(Method::Withdraw)[1..] == tried,
        "a withdrawal of the attempt answered too late"
    );
    let taken = other.lock(&name).wait(lease + EXPIRY).acquire().await?;
    Ok(taken.release().await?)
}

/// Durations out of range are errors that name the range. None reaches the store.
async fn bad_durations_refused(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let lock = client.lock(&name).wait(millis(100));
    let (least, most) = (format!("{MIN_LEASE:?}"), format!("{MAX_LEASE:?}"));
    let too_short = millis(99);
    for (option, given, bad) in [
        ("lease", Duration::ZERO, lock.clone().lease(Duration::ZERO)),
        ("lease", too_short, lock.clone().lease(too_short)),
        ("lease", MAX_LEASE + millis(1), lock.clone().lease(MAX_LEASE + millis(1))),
        ("lease", Duration::MAX, lock.clone().lease(Duration::MAX)),
        ("wait", MAX_LEASE + millis(1), lock.clone().wait(MAX_LEASE + millis(1))),
        ("wait", Duration::MAX, lock.clone().wait(Duration::MAX)),
        ("max_hold", Duration::ZERO, lock.clone().max_hold(Duration::ZERO)),
        ("max_hold", Duration::MAX, lock.clone().max_hold(Duration::MAX)),
    ] {
        for outcome in [bad.acquire().await.err(), bad.try_acquire().await.err()] {
            names_the_range(outcome, option, given, &most)?;
        }
    }
    let asked = client.probe.calls().all();
    ensure!(asked.is_empty(), "invalid durations must not reach the store: {asked:?}");
    let guard = lock.wait(PATIENCE).acquire().await?;
    for given in [Duration::ZERO, too_short, Duration::MAX] {
        names_the_range(guard.extend(given).await.err(), "lease", given, &least)?;
    }
    still_held(&guard)?;
    ensure_eq!(client.probe.count(Method::Renew, &name), 0, "renewals with invalid durations");
    Ok(guard.release().await?)
}

/// Stops the case unless the error names the option, the given value, and the range.
fn names_the_range(outcome: Option<Error>, option: &str, given: Duration, bound: &str) -> Check {
    let Some(error @ Error::InvalidOption { .. }) = outcome else {
        return Err(Stop::failed(format_args!(
            "{option} = {given:?} is out of range, so the answer must be Err(InvalidOption): got {outcome:?}"
        )));
    };
    let text = error.to_string();
    for part in [option, &format!("{given:?}"), bound] {
        ensure!(text.contains(part), "the error about {option} = {given:?} must name {part:?}: {text}");
    }
    Ok(())
}

/// A thousand locks are renewed. Few requests renew all of them, each within `Capabilities::renew_batch`.
async fn many_renewals_one_batch(stage: &Stage) -> Check {
    const LOCKS: usize = 1000;
    stage.needs(Need::Lease)?;
    let (lease, client) = (millis(18_000), stage.client().await?);
    let names: Vec<String> = (0..LOCKS).map(|number| stage.name(&number.to_string())).collect();
    let take = |name: String| {
        let lock = client.lock(name).lease(lease);
        async move { lock.acquire().await }
    };
    let asked = Moment::now();
    let guards: Vec<Guard> = stream::iter(names).map(take).buffer_unordered(8).try_collect().await?;
    ensure_eq!(guards.len(), LOCKS, "locks granted");
    let begun = Moment::now();
    let first: Vec<Option<Moment>> = guards.iter().map(|guard| guard.deadline()).collect();
    // Not earlier, because checking costs time too.
    pause::keep(lease / 3).await;
    // A renewal moves the deadline, and a loss ends it.
    let waits = || guards.iter().zip(&first).any(|(guard, at)| guard.is_held() && guard.deadline() == *at);
    eventually!(lease, !waits(), "a renewal or the loss of each of {LOCKS} locks");
    let lost: Vec<&Guard> = guards.iter().filter(|guard| !guard.is_held()).collect();
    ensure!(
        lost.is_empty(),
        "{} of {LOCKS} renewed locks were lost, for instance {:?}",
        lost.len(),
        lost.first()
    );
    let calls = client.probe.calls().all().into_iter();
    let sizes: Vec<usize> = calls
        .filter(|call| call.method == Method::Renew && call.sent >= begun)
        .map(|call| call.about.len())
        .collect();
    let (renewed, count, largest) =
        (sizes.iter().sum::<usize>(), sizes.len(), sizes.into_iter().max().unwrap_or(0));
    // They were not acquired at once, so not all fall due at once, but most do. On a slow store these are fewer: a
    // part of the locks acquired within a tenth of the renewal period, by which a renewal may be early.
    let together = (lease / 30).as_millis() * LOCKS as u128 / begun.since(asked).as_millis().max(1);
    let fewest = usize::try_from(together / 6)?.clamp(2, 20);
    ensure!(
        renewed >= count * fewest,
        "{renewed} renewals took {count} requests, expected at least {fewest} renewals in each: `renew` must accept many grants"
    );
    let most = stage.capabilities().renew_batch;
    ensure!(
        largest <= most,
        "{largest} grants were renewed in one request, but `Capabilities::renew_batch` allows {most}"
    );
    let release = |guard: Guard| guard.release();
    stream::iter(guards).map(release).buffer_unordered(8).try_collect::<()>().await.map_err(Stop::from)
}
