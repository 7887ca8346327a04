//! What people can see and do: who holds what and who waits for it, and a forced release.

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, ensure_matches, eventually, expired, lost_with, still_held, within},
    pause,
};
use std::time::Duration;
use tenure_core::{Capability, Error, Holder, Mode, Moment, StandingKind, Waiter};

cases!("people":
    holders_tells, list_by_prefix, force_release_frees_and_notifies_holder, label_shown, waiting_tells_in_order,
);

/// How long what happens in the background may take.
const SOON: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// The one holder.
fn only(mut holders: Vec<Holder>) -> Check<Holder> {
    match (holders.pop(), holders.pop()) {
        (Some(holder), None) => Ok(holder),
        (one, other) => Err(Stop::failed(format_args!("not one holder, but {one:?} and {other:?}"))),
    }
}

async fn holders_tells(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(20);
    ensure!(other.holders(&name).await?.is_empty());
    let before = Moment::now();
    let guard = one.lock(&name).lease(lease).acquire().await?;
    let granted = Moment::now();
    pause::settle(Duration::from_millis(300)).await;
    let sent = Moment::now();
    let holder = only(other.holders(&name).await?)?;
    let answered = Moment::now();
    ensure_eq!(holder.name, *guard.name());
    ensure_eq!((holder.claim, holder.token), (Some(guard.claim()), Some(guard.token())));
    ensure_eq!(holder.mode, Mode::Exclusive);
    ensure_eq!(holder.info.pid, std::process::id());
    ensure!(!holder.info.host.is_empty());
    ensure_eq!(holder.info.label, None);
    ensure!(holder.since.is_some());
    // By the store's clock, which may count whole milliseconds.
    let tick = Duration::from_millis(2);
    let age = holder.age.ok_or_else(|| Stop::failed("the age is not told"))?;
    let (at_least, at_most) = (sent.since(granted).saturating_sub(tick), answered.since(before) + tick);
    ensure!(
        age >= at_least && age <= at_most,
        "held for {at_least:?} to {at_most:?}, and the store says {age:?}"
    );
    match (stage.capabilities().standing, holder.left) {
        (StandingKind::Lease, Some(left)) => {
            ensure!(
                left <= lease && left + at_most >= lease,
                "after {at_most:?} the store says that {left:?} is left of {lease:?}"
            );
        }
        (StandingKind::Session, _) => {}
        (StandingKind::Lease, None) => return Err(Stop::failed("what is left of the lease is not told")),
    }
    guard.release().await?;
    ensure!(other.holders(&name).await?.is_empty());
    if stage.needs(Need::Lease).is_ok() {
        let (guard, rest) = expired(one.lock(&name)).await?;
        // By then it has expired in the store too.
        pause::outlast(rest + tick).await;
        let told = other.holders(&name).await?;
        ensure!(told.is_empty(), "a lease that has run out still has a holder: {told:?}");
        lost_with(guard.release().await)?;
    }
    Ok(())
}

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
        ensure!(listed, "it was granted, and another client's list lacks it: {guard:?}");
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
        ensure_eq!(listed, meant, "the names held that begin with {prefix:?}, in order");
    }
    inside.release().await?;
    let all = other.list("").await?;
    for guard in &guards {
        let told = all.iter().find(|holder| holder.name == *guard.name());
        let told = told.ok_or_else(|| Stop::failed(format_args!("{guard:?} is not in the list of all")))?;
        ensure_eq!((told.claim, told.token), (Some(guard.claim()), Some(guard.token())));
    }
    let last = guards.pop().map(|guard| (guard.name().clone(), guard));
    let Some((name, guard)) = last else { return Ok(()) };
    guard.release().await?;
    ensure!(other.list(&*name).await?.is_empty());
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn force_release_frees_and_notifies_holder(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(6);
    ensure!(other.force_release(&name).await?.is_empty());
    let guard = one.lock(&name).lease(lease).acquire().await?;
    let waiting = other.lock(&name).wait(PATIENCE);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    eventually!(PATIENCE, other.probe.calls().contending(&name) == 1);
    let put_out = only(other.force_release(&name).await?)?;
    ensure_eq!((put_out.claim, put_out.token), (Some(guard.claim()), Some(guard.token())));
    let bound = stage.at_most(stage.capabilities().ask_again);
    let successor = within(bound, "the waiter's grant after a forced release", waiter).await???;
    // The holder learns of it from its renewal, a third of the lease later.
    within(stage.at_most(lease / 3), "the holder's news of the forced release", guard.lost()).await?;
    ensure!(!guard.is_held());
    lost_with(guard.release().await)?;
    still_held(&successor)?;
    let present = only(one.holders(&name).await?)?;
    ensure_eq!(present.claim, Some(successor.claim()));
    Ok(successor.release().await?)
}

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
        ensure_eq!(told.info.label.as_deref(), Some(label));
        let listed = only(other.list(&name).await?)?;
        ensure_eq!(listed.info, told.info);
        guard.release().await?;
    }
    // A label belongs to the grant, not to the lock's name or the client.
    let name = stage.name("0");
    let guard = one.lock(&name).acquire().await?;
    ensure_eq!(only(other.holders(&name).await?)?.info.label, None);
    guard.release().await?;
    let too_long = one.lock(&name).label("x".repeat(201)).try_acquire().await;
    ensure!(too_long.is_err(), "a label of 201 bytes was accepted");
    Ok(())
}

fn labels(waiters: &[Waiter]) -> Vec<&str> {
    waiters.iter().filter_map(|waiter| waiter.info.label.as_deref()).collect()
}

/// Those who wait in the store's queue; a store without one says that it has none.
async fn waiting_tells_in_order(stage: &Stage) -> Check {
    let ([one, two, three, four], name) = (stage.clients().await?, stage.name("a"));
    let told = one.waiting(&name).await;
    if !stage.capabilities().waiting {
        ensure_matches!(told, Err(Error::Unsupported { capability: Capability::Waiting, .. }));
        return Ok(());
    }
    ensure!(told?.is_empty());
    let guard = one.lock(&name).acquire().await?;
    ensure!(one.waiting(&name).await?.is_empty(), "the holder is among those who wait");
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
        let lock = lock.label(number.to_string()).wait(PATIENCE);
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
        // The next one comes after it.
        eventually!(PATIENCE, one.waiting(&name).await?.len() == number + 1);
    }
    let told = one.waiting(&name).await?;
    ensure_eq!(labels(&told), ["0", "1", "2"]);
    for (number, waiter) in told.iter().enumerate() {
        ensure_eq!((waiter.name.as_str(), waiter.mode), (name.as_str(), mode(number)));
        ensure_eq!(waiter.info.pid, std::process::id());
        ensure!(!waiter.info.host.is_empty());
        ensure!(waiter.since.is_some() && waiter.age.is_some());
    }
    ensure!(told.is_sorted_by_key(|waiter| waiter.since), "who came later is shown earlier: {told:?}");
    // It gives up.
    tasks.remove(1).abort();
    eventually!(SOON, labels(&one.waiting(&name).await?) == ["0", "2"]);
    guard.release().await?;
    let first = within(PATIENCE, "the grant of the first in the queue", tasks.remove(0)).await???;
    ensure_eq!(Some(first.claim()), told[0].claim);
    eventually!(PATIENCE, labels(&one.waiting(&name).await?) == ["2"]);
    first.release().await?;
    let last = within(PATIENCE, "the grant of the last in the queue", tasks.remove(0)).await???;
    ensure_eq!(Some(last.claim()), told[2].claim);
    eventually!(PATIENCE, one.waiting(&name).await?.is_empty());
    Ok(last.release().await?)
}
