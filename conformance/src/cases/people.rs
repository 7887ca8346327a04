//! Holders, waiters and forced releases, as people see and use them (clauses P1 to P3).

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{
        Stop, at_most, ensure, ensure_eq, ensure_matches, eventually, expired, lost_with, still_held, waits,
        within,
    },
    pause,
};
use std::time::Duration;
use tenure_core::{Capability, Error, Holder, LossCause, Mode, Moment, StandingKind, Waiter};

cases!("people":
    holders_describes_grant, list_by_prefix, force_release_frees_and_notifies_holder, label_shown,
    waiting_lists_queue_in_order,
);

/// How long work in the background may take.
const SOON: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// The one holder.
fn only(mut holders: Vec<Holder>) -> Check<Holder> {
    match (holders.pop(), holders.pop()) {
        (Some(holder), None) => Ok(holder),
        (one, other) => Err(Stop::failed(format_args!("expected one holder, got {one:?} and {other:?}"))),
    }
}

/// `holders` describes a grant, and is empty after its release or expiry.
async fn holders_describes_grant(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(20);
    let told = other.holders(&name).await?;
    ensure!(told.is_empty(), "`holders` of a free name must be empty: {told:?}");
    let before = Moment::now();
    let guard = one.lock(&name).lease(lease).acquire().await?;
    let granted = Moment::now();
    pause::settle(Duration::from_millis(300)).await;
    let sent = Moment::now();
    let holder = only(other.holders(&name).await?)?;
    let answered = Moment::now();
    ensure_eq!(holder.name, *guard.name(), "the holder's name");
    let told = (holder.claim, holder.token);
    ensure_eq!(told, (Some(guard.claim()), Some(guard.token())), "the holder's claim and token");
    ensure_eq!(holder.mode, Mode::Exclusive, "the holder's mode");
    ensure_eq!(holder.info.pid, std::process::id(), "the holder's process");
    ensure!(!holder.info.host.is_empty(), "`holders` must tell the holder's host: {holder:?}");
    ensure_eq!(holder.info.label, None, "the label of a holder without one");
    ensure!(holder.since.is_some(), "`holders` must tell since when: {holder:?}");
    // By the store's clock, exact to 10 ms, and perhaps in whole milliseconds; or behind it by the margin.
    let tick = Duration::from_millis(12) + stage.capabilities().margin;
    let age = holder.age.ok_or_else(|| {
        Stop::failed("`holders` must tell how long a grant has been held, but `age` is None")
    })?;
    let (at_least, at_most) = (sent.since(granted).saturating_sub(tick), answered.since(before) + tick);
    ensure!(
        age >= at_least && age <= at_most,
        "the grant has been held for {at_least:?} to {at_most:?}, but `holders` says {age:?}"
    );
    match (stage.capabilities().standing, holder.left) {
        (StandingKind::Lease, Some(left)) => {
            ensure!(
                left <= lease + stage.capabilities().margin && left + at_most >= lease,
                "at most {at_most:?} after a grant with a lease of {lease:?}, `holders` says that {left:?} is left"
            );
        }
        (StandingKind::Session, _) => {}
        (StandingKind::Lease, None) => {
            return Err(Stop::failed(
                "`holders` must tell how much of the lease is left, but `left` is None",
            ));
        }
    }
    guard.release().await?;
    let told = other.holders(&name).await?;
    ensure!(told.is_empty(), "`holders` must be empty after the release: {told:?}");
    if stage.needs(Need::Lease).is_ok() {
        let (guard, rest) = expired(one.lock(&name)).await?;
        // By then it has expired in the store too.
        pause::outlast(rest + tick + stage.overtime()).await;
        let told = other.holders(&name).await?;
        ensure!(told.is_empty(), "`holders` must not list an expired lease: {told:?}");
        lost_with(guard.release().await)?;
    }
    Ok(())
}

/// `list` returns the held names with a prefix, in order. No character of the prefix is a pattern.
async fn list_by_prefix(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let [one, other] = stage.clients().await?;
    let lasts = ["b", "a", "a/1", "a/2", "ab", "A", "x%", "xy", "x_", "x%z", "*", "é", "["];
    let mut guards = Vec::new();
    for last in lasts {
        let guard = one.lock(stage.name(last)).acquire().await?;
        // At once, also if another server of an ensemble is asked than the one that granted it.
        let listed = other.list(&**guard.name()).await?;
        let listed = listed.iter().any(|holder| holder.claim == Some(guard.claim()));
        ensure!(listed, "a lock was granted, but another client's `list` lacks it: {guard:?}");
        guards.push(guard);
    }
    // A name that contains the prefix, but does not begin with it.
    let inside = one.lock(format!("x{}", stage.name("a"))).acquire().await?;
    // Patterns of any store's query language are ordinary characters.
    for prefix in ["", "a", "a/", "A", "x%", "x_", "x", "*", "é", "[", "?", "b", "b0", "B"] {
        let mut meant: Vec<String> =
            lasts.iter().filter(|last| last.starts_with(prefix)).map(|last| stage.name(last)).collect();
        meant.sort();
        let listed = other.list(stage.name(prefix)).await?;
        let listed: Vec<String> = listed.iter().map(|holder| holder.name.to_string()).collect();
        ensure_eq!(listed, meant, "held names that begin with {prefix:?}, in order");
    }
    inside.release().await?;
    let all = other.list("").await?;
    for guard in &guards {
        let told = all.iter().find(|holder| holder.name == *guard.name());
        let told = told.ok_or_else(|| {
            Stop::failed(format_args!("`list` with an empty prefix lacks a held lock: {guard:?}"))
        })?;
        let told = (told.claim, told.token);
        ensure_eq!(
            told,
            (Some(guard.claim()), Some(guard.token())),
            "claim and token in the list, of {guard:?}"
        );
    }
    let last = guards.pop().map(|guard| (guard.name().clone(), guard));
    let Some((name, guard)) = last else { return Ok(()) };
    guard.release().await?;
    let listed = other.list(&*name).await?;
    ensure!(listed.is_empty(), "`list` still has a released name: {listed:?}");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// A forced release ends a grant. A waiter is granted the lock, and the former holder reports the loss.
async fn force_release_frees_and_notifies_holder(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(6);
    let put_out = other.force_release(&name).await?;
    ensure!(put_out.is_empty(), "a forced release of a free name must end no grant: {put_out:?}");
    let guard = one.lock(&name).lease(lease).acquire().await?;
    let waiter = waits(other.lock(&name).wait(PATIENCE));
    eventually!(PATIENCE, other.probe.calls().contending(&name) == 1, "one waiter's request");
    let put_out = only(other.force_release(&name).await?)?;
    let put_out = (put_out.claim, put_out.token);
    ensure_eq!(
        put_out,
        (Some(guard.claim()), Some(guard.token())),
        "claim and token that a forced release ended"
    );
    let bound = at_most(stage.capabilities().ask_again);
    let successor = within(bound, "the waiter's grant after a forced release", waiter).await???;
    // The holder hears of it at its renewal, a third of the lease later.
    let hears = within(at_most(lease / 3), "the former holder's loss after a forced release", guard.lost());
    let cause = hears.await?;
    let mut causes = vec![LossCause::Forced, LossCause::TakenOver, LossCause::Forgotten, LossCause::Expired];
    // A database ends the session: the holder is told at once, and of the cause if it learns that soon.
    if stage.capabilities().standing == StandingKind::Session {
        causes.push(LossCause::SessionEnded);
    }
    ensure!(causes.contains(&cause), "the cause of a loss by force must be one of {causes:?}, not {cause:?}");
    ensure!(!guard.is_held(), "the former holder still believes that it holds the lock: {guard:?}");
    ensure_eq!(lost_with(guard.release().await)?, cause);
    still_held(&successor)?;
    let present = only(one.holders(&name).await?)?;
    ensure_eq!(present.claim, Some(successor.claim()), "the holder's claim after a forced release");
    Ok(successor.release().await?)
}

/// `holders` and `list` show the label of a grant as it was given. Labels of more than 200 bytes are refused.
async fn label_shown(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let [one, other] = stage.clients().await?;
    let longest = "é".repeat(100);
    for (number, label) in
        ["nightly backup", "it's \"quoted\", 100 % {json: 'no'} \\ 🔒", "", &longest].into_iter().enumerate()
    {
        let name = stage.name(&number.to_string());
        let guard = one.lock(&name).label(label).acquire().await?;
        let told = only(other.holders(&name).await?)?;
        ensure_eq!(told.info.label.as_deref(), Some(label), "the holder's label");
        let listed = only(other.list(&name).await?)?;
        ensure_eq!(listed.info, told.info, "the holder in `list`, compared with `holders`");
        guard.release().await?;
    }
    // A label belongs to the grant, not to the lock's name or the client.
    let name = stage.name("0");
    let guard = one.lock(&name).acquire().await?;
    let told = only(other.holders(&name).await?)?;
    ensure_eq!(told.info.label, None, "the label of a grant without one, after a grant with one");
    guard.release().await?;
    let too_long = one.lock(&name).label("x".repeat(201)).try_acquire().await;
    ensure!(too_long.is_err(), "a label of 201 bytes was accepted");
    Ok(())
}

fn labels(waiters: &[Waiter]) -> Vec<&str> {
    waiters.iter().filter_map(|waiter| waiter.info.label.as_deref()).collect()
}

/// Three clients wait in the store's queue, and one gives up. `waiting` lists them in order, and not the holder. A
/// store without a queue answers that it has none.
async fn waiting_lists_queue_in_order(stage: &Stage) -> Check {
    let ([one, two, three, four], name) = (stage.clients().await?, stage.name("a"));
    let told = one.waiting(&name).await;
    if !stage.capabilities().waiting {
        ensure_matches!(told, Err(Error::Unsupported { capability: Capability::Waiting, .. }));
        return Ok(());
    }
    let told = told?;
    ensure!(told.is_empty(), "`waiting` of a free name must be empty: {told:?}");
    let guard = one.lock(&name).acquire().await?;
    let told = one.waiting(&name).await?;
    ensure!(told.is_empty(), "`waiting` must not list the holder: {told:?}");
    let mode = |number| match number {
        1 if stage.capabilities().shared => Mode::Shared,
        _ => Mode::Exclusive,
    };
    let mut tasks = Vec::new();
    for (number, client) in [&two, &three, &four].into_iter().enumerate() {
        let lock = match mode(number) {
            Mode::Shared => client.rw(&name).read(),
            _ => client.lock(&name),
        };
        tasks.push(waits(lock.label(number.to_string()).wait(PATIENCE)));
        // The next waiter comes after it.
        eventually!(
            PATIENCE,
            one.waiting(&name).await?.len() == number + 1,
            "`waiting` lists {} waiters",
            number + 1
        );
    }
    let told = one.waiting(&name).await?;
    ensure_eq!(labels(&told), ["0", "1", "2"], "labels of the waiters, in order");
    for (number, waiter) in told.iter().enumerate() {
        let told = (waiter.name.as_str(), waiter.mode);
        ensure_eq!(told, (name.as_str(), mode(number)), "name and mode of waiter {number}");
        ensure_eq!(waiter.info.pid, std::process::id(), "process of waiter {number}");
        ensure!(!waiter.info.host.is_empty(), "`waiting` must tell the host: {waiter:?}");
        ensure!(
            waiter.since.is_some() && waiter.age.is_some(),
            "`waiting` must tell `since` and `age`: {waiter:?}"
        );
    }
    // Their times may be wrong by the margin.
    let margin = stage.capabilities().margin;
    ensure!(
        told.is_sorted_by(|one, next| one.since <= next.since.map(|since| since + margin)),
        "`waiting` must list waiters in the order of their arrival: {told:?}"
    );
    // Waiter 1 gives up.
    tasks.remove(1).abort();
    eventually!(
        SOON,
        labels(&one.waiting(&name).await?) == ["0", "2"],
        "`waiting` lists waiters 0 and 2 only"
    );
    guard.release().await?;
    let first = within(PATIENCE, "the grant of waiter 0", tasks.remove(0)).await???;
    ensure_eq!(told[0].claim, Some(first.claim()), "the claim of waiter 0, compared with its grant");
    eventually!(PATIENCE, labels(&one.waiting(&name).await?) == ["2"], "`waiting` lists waiter 2 only");
    first.release().await?;
    let last = within(PATIENCE, "the grant of waiter 2", tasks.remove(0)).await???;
    ensure_eq!(told[2].claim, Some(last.claim()), "the claim of waiter 2, compared with its grant");
    eventually!(PATIENCE, one.waiting(&name).await?.is_empty(), "`waiting` lists no waiter");
    Ok(last.release().await?)
}
