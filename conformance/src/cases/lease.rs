//! Leases: how long a grant lasts, and how it is renewed (clauses L1 to L4, L6, L7, B2).

mod from_send;

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{
        EXPIRY, Stop, ensure, ensure_eq, ensure_matches, eventually, expired, kept_out, lost_with,
        still_held, within,
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
    lease::{DEFAULT_LEASE, MAX_LEASE, MIN_LEASE, drift_allowance},
};

cases!("lease":
    expires_on_time, renewed_beyond_lease, renew_off_expires.policy(), extend_survives_original_lease,
    extend_after_expiry_is_lost.policy(), per_lock_lease.policy(), max_hold_ends, renewal_stops_after_release.policy(),
    deadline_counts_from_send.policy(), stalled_answer_counts_from_send, delayed_answer_counts_from_send.alone(),
    delayed_proof_counts_from_send.alone(), extend_meets_renewal.policy(), extend_given_up_is_harmless.policy(),
    extensions_cross.policy(), slow_acquire_refused.policy(),
    bad_durations_refused.policy(),
    many_renewals_one_batch.alone(),
);

/// A lease that is renewed. It does not run out where a machine stands still for two seconds just when the renewal is due.
const RENEWED: Duration = Duration::from_secs(6);
/// A lease that runs out: a third of it is longer than a busy store takes for an answer, and a grant that is answered
/// later is renewed first.
const UNRENEWED: Duration = Duration::from_secs(3);
/// For waits that end by themselves when all is well.
const PATIENCE: Duration = Duration::from_secs(15);

/// On a machine that was suspended, a moment has the noise of two clocks.
const TICK: Duration = Duration::from_millis(1);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Stops the case if anybody else can acquire the lock.
async fn still_excludes(other: &Client, name: &str, guard: &Guard) -> Check {
    still_held(guard)?;
    kept_out(&other.lock(name)).await
}

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
    ensure!(!guard.is_held(), "two guards say that they hold the lock");
    ensure!(
        deadline.is_none_or(|deadline| had >= deadline),
        "granted {:?} before the holder's deadline",
        deadline.map(|deadline| deadline.since(had))
    );
    let soonest = lease.saturating_sub(drift_allowance(lease));
    ensure!(had.since(before) >= soonest, "a lease of {lease:?} ran out after {:?}", had.since(before));
    let took = had.since(granted);
    ensure!(took < stage.at_most(lease + EXPIRY), "a lease of {lease:?} ran out after {took:?}");
    taken.release().await?;
    ensure_eq!(lost_with(guard.release().await)?, LossCause::Expired);
    Ok(())
}

async fn renewed_beyond_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    // On the wall clock, each lease more is a chance for a stall that outlives one.
    let until = Moment::now() + if Moment::are_virtual() { lease * 4 } else { lease * 3 / 2 };
    while !until.has_passed() {
        still_excludes(&other, &name, &guard).await?;
        pause::look_again().await;
    }
    Ok(guard.release().await?)
}

async fn renew_off_expires(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (UNRENEWED, stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).lease(lease).renew(false).acquire().await?;
    let cause = within(lease, "the loss of a lock without renewal", guard.lost()).await?;
    ensure_eq!(cause, LossCause::Expired);
    let taken = other.lock(&name).wait(EXPIRY).acquire().await?;
    ensure_eq!(one.probe.count(Method::Renew, &name), 0);
    taken.release().await?;
    lost_with(guard.release().await).map(drop)
}

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
    within(stage.at_most(lease), "the loss after a shorter lease", guard.lost()).await?;
    let taken = other.lock(&name).wait(stage.at_most(EXPIRY)).acquire().await?;
    taken.release().await?;
    lost_with(guard.release().await).map(drop)
}

async fn extend_after_expiry_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (guard, rest) = expired(one.lock(&name)).await?;
    ensure_eq!(lost_with(guard.extend(PATIENCE).await)?, LossCause::Expired);
    ensure!(!guard.is_held(), "extending revived a lost lock");
    let taken = other.lock(&name).wait(rest + EXPIRY).acquire().await?;
    lost_with(guard.extend(PATIENCE).await)?;
    still_held(&taken)?;
    Ok(taken.release().await?)
}

async fn per_lock_lease(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let [one, other] = stage.clients().await?;
    let (short, long, usual) = (stage.name("short"), stage.name("long"), stage.name("usual"));
    let brief = one.lock(&short).lease(UNRENEWED).renew(false).acquire().await?;
    let lengthy = one.lock(&long).lease(millis(20_000)).renew(false).acquire().await?;
    let plain = one.lock(&usual).renew(false).acquire().await?;
    let left = plain.deadline().map(Moment::left).unwrap_or_default();
    ensure!(
        left > DEFAULT_LEASE / 2 && left <= DEFAULT_LEASE,
        "{left:?} is left of the default lease, {DEFAULT_LEASE:?}"
    );
    let taken = other.lock(&short).wait(UNRENEWED + EXPIRY).acquire().await?;
    still_excludes(&other, &long, &lengthy).await?;
    still_excludes(&other, &usual, &plain).await?;
    lost_with(brief.release().await)?;
    taken.release().await?;
    lengthy.release().await?;
    Ok(plain.release().await?)
}

async fn max_hold_ends(stage: &Stage) -> Check {
    let (lease, longest) = (RENEWED, millis(7000));
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let before = Moment::now();
    let guard = one.lock(&name).lease(lease).max_hold(longest).acquire().await?;
    let granted = Moment::now();
    let ends_in_time = || guard.deadline().is_none_or(|deadline| deadline <= granted + longest);
    ensure!(ends_in_time(), "{guard:?} believes that it is held beyond max_hold");
    // It has been renewed by then.
    pause::keep(longest * 3 / 4).await;
    ensure!(ends_in_time(), "{guard:?} believes that it is held beyond max_hold");
    let cause = within(stage.at_most(longest), "the end of max_hold", guard.lost()).await?;
    ensure_eq!(cause, LossCause::MaxHold);
    let (least, took) = (longest.saturating_sub(TICK), Moment::now().since(before));
    ensure!(
        took >= least && took <= stage.at_most(longest + TICK),
        "a max_hold of {longest:?} took {took:?}"
    );
    ensure!(!guard.is_held());
    let taken = within(
        stage.at_most(lease + EXPIRY),
        "a lock that its holder may not keep",
        other.lock(&name).acquire(),
    )
    .await??;
    ensure!(guard.deadline().is_none());
    taken.release().await?;
    ensure_eq!(lost_with(guard.release().await)?, LossCause::MaxHold);
    Ok(())
}

async fn renewal_stops_after_release(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, client, name) = (RENEWED, stage.client().await?, stage.name("a"));
    let lock = client.lock(&name).lease(lease);
    let guard = lock.acquire().await?;
    eventually!(PATIENCE, client.probe.count(Method::Renew, &name) >= 1);
    guard.release().await?;
    let dropped = lock.acquire().await?;
    drop(dropped);
    eventually!(PATIENCE, client.probe.count(Method::Release, &name) >= 2);
    // A release whose answer is late is sent again.
    let asked = || {
        let calls = client.probe.calls().about(&name).into_iter();
        calls.filter(|call| call.method != Method::Release).collect::<Vec<_>>()
    };
    let before = asked().len();
    pause::linger(lease * 2).await;
    let after = asked();
    ensure_eq!(after.len(), before, "requests about a released lock: {:?}", after.last());
    Ok(())
}

/// A renewal for the old lease, carried out after the extension, would make the lease shorter than the holder was told.
async fn extend_meets_renewal(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    // The late renewal is answered in the first round. In the second its answer is given up, but it is carried out all
    // the same.
    for late in [millis(200), millis(1400)] {
        one.probe.next(Method::Renew, Fault::Straggle(late));
        let sent = one.probe.count(Method::Renew, &name);
        let guard = one.lock(&name).lease(lease).wait(PATIENCE).acquire().await?;
        eventually!(PATIENCE, one.probe.count(Method::Renew, &name) > sent);
        guard.extend(millis(20_000)).await?;
        pause::outlast(lease + millis(800)).await;
        still_excludes(&other, &name, &guard).await?;
        guard.release().await?;
    }
    Ok(())
}

/// The shorter lease is carried out last and answered first. It must not count as the longer one, which is requested
/// once more although the lock is not renewed.
async fn extensions_cross(stage: &Stage) -> Check {
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

async fn extend_given_up_is_harmless(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (RENEWED, stage.clients().await?, stage.name("a"));
    // The first round is during a renewal, the second is not.
    one.probe.next(Method::Renew, Fault::DelayReply(millis(200)));
    let guard = one.lock(&name).lease(lease).acquire().await?;
    for renewals in [1, 3] {
        eventually!(PATIENCE, one.probe.count(Method::Renew, &name) >= renewals);
        // The extension's, whose request is the next one.
        one.probe.next(Method::Renew, Fault::Hang);
        let given_up = tokio::time::timeout(millis(50), guard.extend(lease * 2)).await;
        ensure!(given_up.is_err(), "an extension that hangs has ended: {given_up:?}");
        pause::keep(lease * 2).await;
        still_excludes(&other, &name, &guard).await?;
    }
    one.probe.heal();
    Ok(guard.release().await?)
}

async fn slow_acquire_refused(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (millis(5000), stage.clients().await?, stage.name("a"));
    let lock = one.lock(&name).lease(lease).renew(false).wait(PATIENCE);
    let too_slow = Fault::DelayReply(lease + millis(200));
    one.probe.next(Method::Acquire, too_slow);
    let guard = lock.acquire().await?;
    ensure!(guard.is_held(), "the caller got a grant that had run out");
    let asked_with = |method| {
        let calls = one.probe.calls().about(&name).into_iter().filter(move |call| call.method == method);
        let mut claims: Vec<_> = calls.flat_map(|call| call.about).filter_map(|(_, claim)| claim).collect();
        // A request without a prompt answer is sent again, for the same claim.
        claims.dedup();
        claims
    };
    let (acquired, withdrawn) = (asked_with(Method::Acquire), asked_with(Method::Withdraw));
    ensure_eq!(acquired.len(), 2, "attempts: one too slow, one in time");
    ensure_eq!(withdrawn, [acquired[0]]);
    ensure_eq!(guard.claim(), acquired[1]);
    guard.release().await?;
    one.probe.next(Method::TryAcquire, too_slow);
    ensure_matches!(lock.try_acquire().await, Err(Error::Unavailable { .. }));
    let tried = asked_with(Method::TryAcquire);
    eventually!(PATIENCE, asked_with(Method::Withdraw)[1..] == tried);
    let taken = other.lock(&name).wait(lease + EXPIRY).acquire().await?;
    Ok(taken.release().await?)
}

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
    ensure!(asked.is_empty(), "the store was asked with bad durations: {asked:?}");
    let guard = lock.wait(PATIENCE).acquire().await?;
    for given in [Duration::ZERO, too_short, Duration::MAX] {
        names_the_range(guard.extend(given).await.err(), "lease", given, &least)?;
    }
    still_held(&guard)?;
    ensure_eq!(client.probe.count(Method::Renew, &name), 0);
    Ok(guard.release().await?)
}

/// Stops the case unless the error names the option, the given value, and the range.
fn names_the_range(outcome: Option<Error>, option: &str, given: Duration, bound: &str) -> Check {
    let Some(error @ Error::InvalidOption { .. }) = outcome else {
        return Err(Stop::failed(format_args!("{option} = {given:?}: {outcome:?}")));
    };
    let text = error.to_string();
    for part in [option, &format!("{given:?}"), bound] {
        ensure!(text.contains(part), "the refusal of {option} = {given:?} does not say {part:?}: {text}");
    }
    Ok(())
}

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
    ensure_eq!(guards.len(), LOCKS);
    let begun = Moment::now();
    let first: Vec<Option<Moment>> = guards.iter().map(|guard| guard.deadline()).collect();
    // Not before: checking costs time too.
    pause::keep(lease / 3).await;
    // A renewal moves the deadline, and a loss ends it.
    let waits = || guards.iter().zip(&first).any(|(guard, at)| guard.is_held() && guard.deadline() == *at);
    eventually!(lease, !waits(), "all are renewed or lost");
    let lost: Vec<&Guard> = guards.iter().filter(|guard| !guard.is_held()).collect();
    ensure!(lost.is_empty(), "{} of {LOCKS} locks were lost, for instance {:?}", lost.len(), lost.first());
    let calls = client.probe.calls().all().into_iter();
    let sizes: Vec<usize> = calls
        .filter(|call| call.method == Method::Renew && call.sent >= begun)
        .map(|call| call.about.len())
        .collect();
    let (renewed, count, largest) =
        (sizes.iter().sum::<usize>(), sizes.len(), sizes.into_iter().max().unwrap_or(0));
    // They were not acquired at once, so they do not all fall due at once; but most do. On a slow store these are fewer:
    // a part of those that were acquired within a tenth of the renewal period, by which a renewal may go early.
    let together = (lease / 30).as_millis() * LOCKS as u128 / begun.since(asked).as_millis().max(1);
    let fewest = usize::try_from(together / 6)?.clamp(2, 20);
    ensure!(
        renewed >= count * fewest,
        "{renewed} renewals took {count} requests, where {fewest} in each are few"
    );
    let most = stage.capabilities().renew_batch;
    ensure!(largest <= most, "{largest} leases were renewed in one request; the store takes {most}");
    let release = |guard: Guard| guard.release();
    stream::iter(guards).map(release).buffer_unordered(8).try_collect::<()>().await.map_err(Stop::from)
}
