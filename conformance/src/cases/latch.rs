//! Latches (clause E2).

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{Stop, chain, ensure, ensure_eq, ensure_matches, within},
};
use futures_util::{FutureExt, future::try_join_all};
use std::{pin::pin, time::Duration};
use tenure_core::{Error, Latch};

cases!("latch":
    latch_opens_once, latch_outlives_its_parties, party_count_mismatch_refused, latch_names_differ,
    latch_wait_outlasts_outage.policy(), close_ends_waits_at_latches.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);

async fn missing(latch: &Latch, expected: u32) -> Check {
    ensure_eq!(latch.missing().await?, expected, "parties that a latch still misses");
    Ok(())
}

async fn opens(latch: &Latch) -> Check {
    Ok(within(PATIENCE, "the end of a wait at an open latch", latch.wait()).await??)
}

/// Three parties with similar names count down. Waits end when the last one has, and the latch stays open until it is
/// removed.
async fn latch_opens_once(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let ([one, other, third], name) = (stage.clients().await?, stage.name("a"));
    let waiting = one.latch(&name, 3);
    let mut opened = pin!(waiting.wait());
    ensure!(
        opened.as_mut().now_or_never().is_none(),
        "a wait at a new latch ended before any party had counted down"
    );
    missing(&waiting, 3).await?;
    ensure_eq!(other.latch(&name, 3).count_down("x").await?, 2, "missing parties after x counted down");
    ensure_eq!(third.latch(&name, 3).count_down("X").await?, 1, "missing parties after x and X counted down");
    // Long enough for the waiter to ask again.
    let early = tokio::time::timeout(Duration::from_millis(700), opened.as_mut()).await;
    ensure!(early.is_err(), "a wait at a latch ended while one of three parties is missing");
    // The last party counts down from several clients at once.
    let last = |client: &Client| {
        let latch = client.latch(&name, 3);
        async move { latch.count_down("X ").await }
    };
    let told = try_join_all([last(&one), last(&other), last(&third)]).await?;
    ensure_eq!(told, vec![0, 0, 0], "missing parties after the last one counted down, from three clients");
    within(PATIENCE, "the end of a wait at an open latch", opened).await??;
    // It stays open, for all waiters and for new ones.
    for client in [&one, &other, &third] {
        opens(&client.latch(&name, 3)).await?;
    }
    ensure_eq!(one.latch(&name, 3).count_down("one more").await?, 0, "missing parties at an open latch");
    missing(&other.latch(&name, 3), 0).await?;
    one.latch(&name, 3).remove().await?;
    missing(&other.latch(&name, 3), 3).await
}

/// Each party closes its client after it has counted down. Its count stays.
async fn latch_outlives_its_parties(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let name = stage.name("a");
    for (party, left) in [("x", 1), ("x", 1), ("y", 0)] {
        let client = stage.client().await?;
        ensure_eq!(
            client.latch(&name, 2).count_down(party).await?,
            left,
            "missing parties after {party} counted down"
        );
        client.close().await;
    }
    let client = stage.client().await?;
    opens(&client.latch(&name, 2)).await?;
    Ok(client.latch(&name, 2).remove().await?)
}

/// A latch of 3 parties is used as one of 4. Each request is an error that names both numbers.
async fn party_count_mismatch_refused(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    one.latch(&name, 3).count_down("x").await?;
    let wrong = other.latch(&name, 4);
    let refused =
        [wrong.count_down("y").await.map(drop), wrong.missing().await.map(drop), wrong.wait().await];
    for outcome in refused {
        let Err(error @ Error::Mismatch { .. }) = outcome else {
            return Err(Stop::failed(format_args!(
                "a request for a latch of 4 parties, while it has 3, must be Err(Mismatch): got {outcome:?}"
            )));
        };
        let said = chain(&error);
        ensure!(
            said.contains('3') && said.contains('4'),
            "the error must name both numbers of parties: {said}"
        );
    }
    missing(&one.latch(&name, 3), 2).await?;
    let none = one.latch(&name, 0).count_down("x").await;
    ensure_matches!(none, Err(Error::InvalidOption { .. }));
    let unnamed = one.latch(&name, 3).count_down("").await;
    ensure_matches!(unnamed, Err(Error::InvalidName(_)));
    Ok(one.latch(&name, 3).remove().await?)
}

/// Latches with similar names count separately.
async fn latch_names_differ(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let client = stage.client().await?;
    let names =
        ["a", "A", "a/b", "a/", "../a", "{a}b", "a%2Fb", "a'b\"", "é", "*"].map(|last| stage.name(last));
    for name in &names {
        let party = format!("{name}/of it");
        missing(&client.latch(name, 2), 2).await.map_err(|_| {
            Stop::failed(format_args!(
                "{name:?} must be a latch of its own: it has counted parties of another name"
            ))
        })?;
        client.latch(name, 2).count_down(&party).await?;
        client.latch(name, 2).count_down(&party).await?;
    }
    if client.capabilities().listing {
        ensure_eq!(client.list(stage.prefix()).await?.len(), 0, "holders in `list`, where there are latches");
    }
    for name in &names {
        missing(&client.latch(name, 2), 1).await?;
        client.latch(name, 2).remove().await?;
        missing(&client.latch(name, 2), 2).await?;
    }
    Ok(())
}

/// The store refuses requests while a client waits at a latch. The wait goes on, and ends when the latch opens.
async fn latch_wait_outlasts_outage(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let latch = one.latch(&name, 1);
    one.probe.always(Method::Latch, Fault::Refuse);
    let mut opened = pin!(latch.wait());
    let early = tokio::time::timeout(Duration::from_millis(300), opened.as_mut()).await;
    ensure!(early.is_err(), "a wait at a latch ended while the store refuses requests: {early:?}");
    other.latch(&name, 1).count_down("x").await?;
    one.probe.heal();
    within(PATIENCE, "the end of a wait at an open latch", opened).await??;
    Ok(latch.remove().await?)
}

/// A client closes while it waits at a latch. The wait ends with `Err(Closed)`.
async fn close_ends_waits_at_latches(stage: &Stage) -> Check {
    stage.needs(Need::Latches)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let latch = client.latch(&name, 1);
    let mut opened = pin!(latch.wait());
    ensure!(
        opened.as_mut().now_or_never().is_none(),
        "a wait at a new latch ended before any party had counted down"
    );
    client.close().await;
    let ended = within(PATIENCE, "the end of a wait at a latch whose client has closed", opened).await?;
    ensure_matches!(ended, Err(Error::Closed { .. }));
    ensure_matches!(latch.count_down("x").await, Err(Error::Closed { .. }));
    Ok(())
}
