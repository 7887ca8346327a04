//! What [`Backend`](tenure_core::Backend) requires of a store, request by request, without `Locks` above it.

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, ensure_matches, rises, within},
    pause,
    saboteur::Hurt,
};
use futures_util::{TryFutureExt, poll};
use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Claim, ClaimId, Conversion, Grant, HolderInfo, LossCause, Mode, Moment,
    Name, Release, Renewal, Standing, StoreError, Token, lease::MIN_LEASE,
};

cases!("store":
    claim_is_idempotent, converted_claim_is_idempotent, forced_claim_is_not_granted_again,
    late_attempt_for_several_takes_back_nothing_held, reserved_tokens_are_nobody_elses, busy_tells_the_rest,
    renewal_of_more_than_is_held_is_lost, stalled_attempt_sees_who_came, stalled_changes_touch_no_successor,
    stalled_renewal_revives_nothing, late_renewal_leaves_the_name_free, unanswered_release_goes_on.alone(), shortest_lease_is_kept.alone(),
);

const LEASE: Duration = Duration::from_secs(20);
const LONG_LEASE: Duration = Duration::from_mins(5);
const PATIENCE: Duration = Duration::from_secs(10);
/// Of grants whose end is waited for. Redlock grants nothing whose lease is over before the answers of a busy machine.
const BRIEF: Duration = Duration::from_millis(1500);
/// Longer than a store takes for an answer when nothing is in its way.
const MOMENT: Duration = Duration::from_secs(2);

pub(super) fn claim(name: &str, lease: Duration) -> Check<Claim> {
    let (id, holder) = (ClaimId::new(), Arc::new(HolderInfo::here(None)));
    Ok(Claim { id, name: Name::new(name)?, mode: Mode::Exclusive, lease, waits: false, reserve: 0, holder })
}

pub(super) async fn granted(store: &dyn Backend, claim: &Claim) -> Check<Grant> {
    match store.try_acquire(claim).await? {
        Attempt::Granted(grant) => Ok(grant),
        busy @ Attempt::Busy { .. } => {
            Err(Stop::failed(format_args!("{:?} is free, but {busy:?}", claim.name)))
        }
    }
}

async fn refused(store: &dyn Backend, name: &str) -> Check<Option<Duration>> {
    match store.try_acquire(&claim(name, LEASE)?).await? {
        Attempt::Busy { expires_in } => Ok(expires_in),
        Attempt::Granted(grant) => {
            Err(Stop::failed(format_args!("{name:?} is held, and was granted: {grant:?}")))
        }
    }
}

async fn released(store: &dyn Backend, grant: &Grant) -> Check {
    ensure_matches!(store.release(grant).await?, Release::Released { .. });
    Ok(())
}

async fn claim_is_idempotent(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let (store, claim) = (client.probe.backend(), claim(&name, LEASE)?);
    let first = granted(&**store, &claim).await?;
    let again = granted(&**store, &claim).await?;
    let waited = within(PATIENCE, "acquiring what the claim holds", store.acquire(&claim)).await??;
    for grant in [&again, &waited] {
        ensure_eq!(grant.token, first.token);
        ensure_eq!((grant.claim, &grant.name), (claim.id, &claim.name));
    }
    // It was one grant, so one release ends it.
    released(&**store, &again).await?;
    let next = granted(&**store, &self::claim(&name, LEASE)?).await?;
    rises(first.token, next.token)?;
    released(&**store, &next).await
}

/// A conversion that is lost leaves a client with less than the store has, or with as much.
async fn converted_claim_is_idempotent(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    stage.needs(Need::Readers)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let (store, modes) = (&**client.probe.backend(), [Mode::Exclusive, Mode::Shared]);
    for (first, then) in modes.into_iter().flat_map(|first| modes.map(|then| (first, then))) {
        let claim = Claim { mode: first, ..claim(&name, LEASE)? };
        let grant = granted(store, &claim).await?;
        if first == Mode::Shared {
            ensure_eq!(store.convert(&grant, Mode::Exclusive).await?, Conversion::Converted);
        }
        let again = granted(store, &Claim { mode: then, ..claim }).await?;
        ensure_eq!((again.claim, again.token), (grant.claim, grant.token));
        refused(store, &name).await?;
        // It was one grant, so one release ends it.
        released(store, &again).await?;
    }
    Ok(())
}

/// A copy of the attempt arrives after the force, and after the next holder. It must not grant the name again to the holder
/// who lost it, whose next renewal would succeed. Where a grant is a session, it would be another session's.
async fn forced_claim_is_not_granted_again(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let (store, wanted) = (&**client.probe.backend(), Claim { waits: true, ..claim(&name, LEASE)? });
    let acquire = || within(PATIENCE, "acquiring a free name", store.acquire(&wanted));
    let first = acquire().await??;
    store.force_release(&wanted.name).await?;
    if let Standing::Session(liveness) = &first.standing {
        within(PATIENCE, "noticing the forced release", liveness.ended()).await?;
    }
    let next = within(PATIENCE, "acquiring a free name", store.acquire(&claim(&name, LEASE)?)).await??;
    released(store, &next).await?;
    match acquire().await? {
        Err(error) => {
            ensure!(
                error.spends_claim(),
                "a claim that was released by force was used again: got {error:?}, expected StoreError::claim_spent"
            );
        }
        Ok(again) => {
            ensure_matches!(again.standing, Standing::Session(_));
            rises(Some(next.token), again.token)?;
            released(store, &again).await?;
            // A release that was carried out does not turn into a loss when it is repeated.
            let repeated = store.release(&again).await?;
            ensure!(
                !matches!(repeated, Release::Lost(LossCause::Forced)),
                "a release that was carried out was repeated: got {repeated:?}, expected another answer than Lost(Forced)"
            );
            return Ok(());
        }
    }
    let renewal = store.renew(std::slice::from_ref(&first)).await?;
    let (is_lost, is_forced) =
        (matches!(renewal[..], [Renewal::Lost(_)]), renewal == [Renewal::Lost(LossCause::Forced)]);
    ensure!(
        is_forced || is_lost && matches!(first.standing, Standing::Session(_)),
        "a grant that was released by force was renewed: got {renewal:?}, expected Lost(Forced)"
    );
    // Its client asks with another claim.
    released(store, &granted(store, &claim(&name, LEASE)?).await?).await
}

/// Two names are granted in one request, and one of them is released by force. A copy of the request arrives late: it grants
/// neither, and the other name stays held.
async fn late_attempt_for_several_takes_back_nothing_held(stage: &Stage) -> Check {
    stage.needs(Need::Together)?;
    // A Cluster keeps names with one tag together.
    let (client, names) = (stage.client().await?, [stage.name("{tag}a"), stage.name("{tag}b")]);
    let store = &**client.probe.backend();
    let claims = [claim(&names[0], LEASE)?, claim(&names[1], LEASE)?];
    let AttemptAll::Granted(grants) = store.try_acquire_all(&claims).await? else {
        return Err(Stop::failed("two free names were refused"));
    };
    store.force_release(&claims[1].name).await?;
    let late = store.try_acquire_all(&claims).await;
    ensure!(
        !matches!(late, Ok(AttemptAll::Granted(_))),
        "a claim that was released by force was granted again: got {late:?}, expected StoreError::claim_spent"
    );
    refused(store, &names[0]).await?;
    let free = granted(store, &claim(&names[1], LEASE)?).await?;
    released(store, &free).await?;
    released(store, &grants[0]).await
}

/// So many that the store's clock does not pass them meanwhile: the tokens of ten seconds.
async fn reserved_tokens_are_nobody_elses(stage: &Stage) -> Check {
    const MANY: u32 = 10_000_000;
    stage.needs(Need::Succession)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let store = &**client.probe.backend();
    let mut last: Option<Token> = None;
    for reserve in [MANY, MANY, 0, 1, 0] {
        let claim = Claim { reserve, ..claim(&name, LEASE)? };
        let (grant, again) = (granted(store, &claim).await?, granted(store, &claim).await?);
        ensure_eq!((grant.reserved, again.reserved), (reserve, reserve));
        ensure_eq!(again.token, grant.token);
        let first = grant.token.get().checked_sub(u64::from(reserve)).and_then(Token::new);
        rises(last, first.ok_or_else(|| Stop::failed("the first of the tokens is not valid"))?)?;
        last = Some(grant.token);
        released(store, &grant).await?;
    }
    Ok(())
}

/// A refusal may tell how long the lease still lasts, and then truly so: also after a renewal for a longer lease and a
/// late copy of the attempt, which shortens nothing. A store that counts whole milliseconds keeps a lease to the end of
/// its last one, so a refusal in the millisecond of the grant tells one more.
async fn busy_tells_the_rest(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (store, outside) = (&**one.probe.backend(), &**other.probe.backend());
    let claim = claim(&name, LEASE)?;
    let mut grant = granted(store, &claim).await?;
    // Nothing has to be reported, but what is reported must be true.
    let tells = async |lease: Duration| {
        let longest = lease + Duration::from_millis(1) + stage.overtime();
        match refused(outside, &name).await? {
            Some(left) if left > longest || left <= lease / 2 => Err(Stop::failed(format_args!(
                "a refusal told how long the lease of {lease:?} lasts: got {left:?}, expected {longest:?} at most"
            ))),
            _ => Ok(()),
        }
    };
    tells(LEASE).await?;
    if stage.needs(Need::Lease).is_ok() {
        grant.lease = LONG_LEASE;
        let answers = store.renew(std::slice::from_ref(&grant)).await?;
        ensure_matches!(answers[..], [Renewal::Renewed]);
        ensure_eq!(granted(store, &claim).await?.token, grant.token);
        tells(LONG_LEASE).await?;
    }
    released(store, &grant).await
}

/// As after an upgrade that a crash of the server took back, and as while a conversion is on its way.
async fn renewal_of_more_than_is_held_is_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    stage.needs(Need::Readers)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let store = &**client.probe.backend();
    let reader = Claim { mode: Mode::Shared, ..claim(&name, LEASE)? };
    let grant = granted(store, &reader).await?;
    let renewed_as = async |mode: Mode, expected: Renewal, when: &'static str| {
        let answers = store.renew(&[Grant { mode, ..grant.clone() }]).await?;
        ensure_eq!(answers, [expected], "a renewal that states {mode:?}, {when}");
        Check::Ok(())
    };
    let (exclusive, shared) = (Mode::Exclusive, Mode::Shared);
    let forgotten = Renewal::Lost(LossCause::Forgotten);
    let beside = granted(store, &Claim { id: ClaimId::new(), ..reader }).await?;
    renewed_as(exclusive, forgotten, "beside another reader").await?;
    renewed_as(shared, Renewal::Renewed, "after one that stated too much").await?;
    released(store, &beside).await?;
    renewed_as(exclusive, forgotten, "of the only reader").await?;
    ensure_eq!(store.convert(&grant, exclusive).await?, Conversion::Converted);
    for mode in [shared, exclusive] {
        renewed_as(mode, Renewal::Renewed, "after an upgrade").await?;
    }
    let writer = Grant { mode: exclusive, ..grant.clone() };
    ensure_eq!(store.convert(&writer, shared).await?, Conversion::Converted);
    renewed_as(exclusive, forgotten, "after a downgrade").await?;
    renewed_as(shared, Renewal::Renewed, "after a downgrade").await?;
    released(store, &grant).await?;
    // A store may keep a grant that was exclusive from the start in another form.
    let alone = granted(store, &claim(&name, LEASE)?).await?;
    let answers = store.renew(&[Grant { mode: shared, ..alone.clone() }]).await?;
    ensure_eq!(answers, [Renewal::Renewed], "a renewal of an exclusive grant that states {shared:?}");
    released(store, &alone).await
}

/// An attempt that is made in steps, with another claim's attempt between the first step and the rest.
async fn stalled_attempt_sees_who_came(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (store, outside) = (&**one.probe.backend(), &**other.probe.backend());
    let (slow, quick) = (claim(&name, LEASE)?, claim(&name, LEASE)?);
    let mut attempt = store.try_acquire(&slow);
    let begun = poll!(attempt.as_mut());
    // A store may grant nothing to others before it is done with the first.
    let meanwhile = tokio::time::timeout(MOMENT, outside.try_acquire(&quick)).await;
    let first = match begun {
        Poll::Ready(answer) => answer,
        Poll::Pending => within(PATIENCE, "an attempt that was begun", attempt).await?,
    };
    let second = match meanwhile {
        Ok(answer) => answer,
        Err(_) => within(PATIENCE, "an attempt after another", outside.try_acquire(&quick)).await?,
    };
    let granted = |answer: &Attempt| matches!(answer, Attempt::Granted(_));
    let (first, second) = (answered(first)?, answered(second)?);
    let both = first.as_ref().is_some_and(granted) && second.as_ref().is_some_and(granted);
    ensure!(!both, "both claims were granted the name: {first:?} and {second:?}");
    store.withdraw(&slow).await?;
    outside.withdraw(&quick).await?;
    let next = self::granted(store, &claim(&name, LEASE)?).await?;
    released(store, &next).await
}

/// Returns the answer, unless it came too late for the store's own timeout.
fn answered<T>(answer: Result<T, StoreError>) -> Check<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_unavailable() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A stale claim's request in steps, with the end of its lease and its successor's grant between the first step and the
/// rest.
async fn stalled_changes_touch_no_successor(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], short) = (stage.clients().await?, BRIEF);
    let (store, outside) = (&**one.probe.backend(), &**other.probe.backend());
    for what in ["renewal", "release", "withdrawal"] {
        let name = stage.name(what);
        let stale = claim(&name, short)?;
        let grants = [granted(store, &stale).await?];
        let mut change: Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> = match what {
            "renewal" => Box::pin(store.renew(&grants).map_ok(drop)),
            "release" => Box::pin(store.release(&grants[0]).map_ok(drop)),
            _ => store.withdraw(&stale),
        };
        let begun = poll!(change.as_mut());
        // A store may grant nothing to others before it is done with the first.
        let next = claim(&name, LEASE)?;
        let successor = tokio::time::timeout(short * 2 + MOMENT, outside.acquire(&next)).await;
        answered(match begun {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => within(PATIENCE, what, change).await?,
        })?;
        let Ok(successor) = successor else {
            outside.withdraw(&next).await?;
            continue;
        };
        let successor = [successor?];
        let stands = outside.renew(&successor).await?;
        ensure_eq!(stands, [Renewal::Renewed], "the successor's renewal after a late {what}");
        refused(store, &name).await?;
        released(outside, &successor[0]).await?;
    }
    Ok(())
}

/// A renewal in steps, with the end of the lease between the first step and the rest.
async fn stalled_renewal_revives_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (client, name, short) = (stage.client().await?, stage.name("a"), BRIEF);
    let store = &**client.probe.backend();
    let over = [granted(store, &claim(&name, short)?).await?];
    let mut renewing = store.renew(&over);
    let begun = poll!(renewing.as_mut());
    // Even if it was carried out at once, the lease that it gave is over by then.
    pause::outlast(short * 2 + stage.overtime()).await;
    answered(match begun {
        Poll::Ready(answers) => answers,
        Poll::Pending => within(PATIENCE, "a renewal that was begun", renewing).await?,
    })?;
    let answer = store.release(&over[0]).await?;
    ensure_matches!(answer, Release::Lost(_), "a release after a late renewal");
    let next = granted(store, &claim(&name, LEASE)?).await?;
    released(store, &next).await
}

/// A renewal comes after the release, as one does that was on its way.
async fn late_renewal_leaves_the_name_free(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (store, outside) = (&**one.probe.backend(), &**other.probe.backend());
    let late = [granted(store, &claim(&name, LEASE)?).await?];
    released(store, &late[0]).await?;
    ensure_matches!(store.renew(&late).await?[..], [Renewal::Lost(_)], "a renewal after the release");
    let next = granted(outside, &claim(&name, LEASE)?).await?;
    ensure_matches!(store.renew(&late).await?[..], [Renewal::Lost(_)], "a renewal beside the next holder");
    released(outside, &next).await
}

/// A release is cancelled before it is answered, and the session lives on: no lease ends the grant.
async fn unanswered_release_goes_on(stage: &Stage) -> Check {
    stage.needs(Need::Session)?;
    let saboteur = stage.saboteur(&[Hurt::HalfOpen])?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let store = &**one.probe.backend();
    let grant = granted(store, &claim(&name, LEASE)?).await?;
    saboteur.hurt(Hurt::HalfOpen).await?;
    let unanswered = tokio::time::timeout(Duration::from_millis(300), store.release(&grant)).await;
    saboteur.mend().await?;
    ensure!(
        !matches!(unanswered, Ok(Ok(_))),
        "the server could not be heard, and a release was answered: {unanswered:?}"
    );
    let next = other.lock(&name).wait(PATIENCE * 3).acquire().await?;
    rises(grant.token, next.token())?;
    Ok(next.release().await?)
}

/// Acquires a name for the shortest lease. Redlock has no answer where that is over before a majority has voted: the
/// machine may have stood still.
async fn brief(store: &dyn Backend, name: &str, collides: bool) -> Result<Grant, Stop> {
    loop {
        match store.acquire(&Claim { waits: true, ..claim(name, MIN_LEASE)? }).await {
            Err(error) if collides && error.is_unavailable() => pause::look_again().await,
            answered => return Ok(answered?),
        }
    }
}

async fn shortest_lease_is_kept(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let store = &**client.probe.backend();
    for _ in 0..5 {
        let brief = within(
            PATIENCE,
            "acquiring a free name",
            brief(store, &name, stage.subject().attempts_collide()),
        )
        .await??;
        let Standing::Lease { sent: before, .. } = brief.standing else {
            return Err(Stop::failed("a store of leases granted a session"));
        };
        let mut refused = 0;
        let next = loop {
            let sent = Moment::now();
            if let Attempt::Granted(grant) = store.try_acquire(&claim(&name, LEASE)?).await? {
                break grant;
            }
            // Attempts, not time: while the machine stands still there are none.
            let late = sent.since(before).saturating_sub(MIN_LEASE);
            refused += u32::from(!late.is_zero());
            ensure!(refused < 1000, "a lease of {MIN_LEASE:?} still keeps others out {late:?} after its end");
            pause::look_again().await;
        };
        let after = Moment::now().since(before);
        ensure!(after >= MIN_LEASE, "a lease of {MIN_LEASE:?} was over after {after:?}");
        released(store, &next).await?;
    }
    Ok(())
}
