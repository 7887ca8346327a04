//! Semaphores.

use super::waiting::others_get_in;
use crate::{
    Check, Client, Form, Need, Stage,
    case::cases,
    check::{Stop, chain, ensure, ensure_eq, ensure_matches, kept_out, rises, still_held, waits, within},
    pause,
};
use std::time::Duration;
use tenure_core::{Error, Guard, Mode};

cases!("permits":
    many_permits_all_or_none, permit_count_mismatch_refused, bad_counts_refused.policy(),
    waiting_permit_is_woken, permits_expire_one_by_one, permits_barging_bounded,
);

const PATIENCE: Duration = Duration::from_secs(30);

async fn permits(client: &Client, name: &str, take: u32, of: u32) -> Check<Option<Guard>> {
    Ok(client.semaphore(name, of).permits(take).try_acquire().await?)
}

async fn had(client: &Client, name: &str, take: u32, of: u32) -> Check<Guard> {
    permits(client, name, take, of).await?.ok_or_else(|| {
        Stop::failed(format_args!("{take} of {of} permits were refused although they are free"))
    })
}

/// Several permits are granted together or not at all, and exclude exclusive claims.
async fn many_permits_all_or_none(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let three = had(&one, &name, 3, 4).await?;
    let extra = permits(&other, &name, 2, 4).await?;
    ensure!(extra.is_none(), "two permits were granted although three of four are held: {extra:?}");
    let last = had(&other, &name, 1, 4).await?;
    rises(three.token(), last.token())?;
    kept_out(&other.lock(&name)).await?;
    three.release().await?;
    let three = had(&one, &name, 3, 4).await?;
    three.release().await?;
    last.release().await?;
    let alone = other.lock(&name).wait(PATIENCE).acquire().await?;
    let extra = permits(&one, &name, 1, 4).await?;
    ensure!(extra.is_none(), "a permit was granted while an exclusive lock of the name is held: {extra:?}");
    Ok(alone.release().await?)
}

/// A semaphore of 4 permits is used as one of 7. Tries and waits are errors that name both numbers.
async fn permit_count_mismatch_refused(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = had(&one, &name, 1, 4).await?;
    let semaphore = other.semaphore(&name, 7);
    let waits = semaphore.permit().wait(PATIENCE);
    for outcome in [
        within(
            PATIENCE,
            "the refusal of an attempt with another number of permits",
            semaphore.permit().try_acquire(),
        )
        .await?,
        within(PATIENCE, "the refusal of a wait with another number of permits", waits.acquire())
            .await?
            .map(Some),
    ] {
        let Err(error @ Error::Mismatch { .. }) = outcome else {
            return Err(Stop::failed(format_args!(
                "a request for 1 of 7 permits, while the holder uses 4, must be Err(Mismatch): got {outcome:?}"
            )));
        };
        let said = chain(&error);
        ensure!(
            said.contains('4') && said.contains('7'),
            "the error must name both numbers of permits: {said}"
        );
    }
    guard.release().await?;
    // Without a holder, any number is right.
    Ok(had(&other, &name, 7, 7).await?.release().await?)
}

/// Counts of permits out of range are errors. None reaches the store.
async fn bad_counts_refused(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    for (take, of) in [(0, 4), (5, 4), (1, 0), (0, 0)] {
        let outcome = client.semaphore(&name, of).permits(take).try_acquire().await;
        ensure_matches!(outcome, Err(Error::InvalidOption { .. }), "{take} of {of} permits");
    }
    ensure_eq!(client.probe.calls().about(&name).len(), 0, "requests to the store");
    Ok(())
}

/// All permits are held, and a client waits. It is granted the next permit that is released.
async fn waiting_permit_is_woken(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (mine, mut theirs) = (had(&one, &name, 1, 2).await?, had(&other, &name, 1, 2).await?);
    for _ in 0..5 {
        let waiting = waits(one.semaphore(&name, 2).permit().wait(PATIENCE));
        pause::linger(Duration::from_millis(50)).await;
        ensure!(!waiting.is_finished(), "a waiter was granted a permit although both are held");
        theirs.release().await?;
        theirs = within(PATIENCE, "a waiter's grant after the release of a permit", waiting).await???;
    }
    theirs.release().await?;
    Ok(mine.release().await?)
}

/// One of two permits is not renewed. It is granted again, and the other stays held.
async fn permits_expire_one_by_one(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    stage.needs(Need::Lease)?;
    let ([one, other], name, lease) = (stage.clients().await?, stage.name("a"), Duration::from_secs(6));
    let semaphore = one.semaphore(&name, 2);
    let renewed = semaphore.permit().lease(lease).acquire().await?;
    let plain = semaphore.permit().lease(lease).renew(false).acquire().await?;
    within(PATIENCE, "the loss of a permit without renewal", plain.lost()).await?;
    let back = other.semaphore(&name, 2).permit().wait(PATIENCE).acquire().await?;
    still_held(&renewed)?;
    ensure_eq!(back.mode(), renewed.mode());
    ensure!(back.mode() != Mode::Exclusive, "a permit was granted exclusively: {back:?}");
    drop(plain);
    back.release().await?;
    Ok(renewed.release().await?)
}

/// Two clients relock all permits in a loop. A third is granted them all the same.
async fn permits_barging_bounded(stage: &Stage) -> Check {
    stage.needs(Need::Permits)?;
    others_get_in(stage, Form::AllPermits(2), 1).await
}
