//! The wait for a change ends with the change, and not before.

use super::requests::{PATIENCE, put, remove, swapped};
use crate::{
    Check, Need, Stage,
    any_records::RecordClient,
    check::{Stop, ensure},
    pause,
};
use std::time::Duration;
use tenure_core::StoreError;
use tokio::time::timeout;

/// Longer than any case.
const LONG: Duration = Duration::from_hours(1);
const AT_MOST: Duration = Duration::from_secs(1);
/// A hint may come without a change, but not each time.
const TRIES: usize = 3;

/// Returns whether the wait for a change ended before this limit.
async fn ends_before(wait: impl Future<Output = Result<(), StoreError>>, limit: Duration) -> Check<bool> {
    tokio::select! {
        biased;
        // After a stall both may be over: then the wait was not early.
        () = pause::outlast(limit) => Ok(false),
        ended = wait => ended.map(|()| true).map_err(Stop::from),
    }
}

/// No client writes. `changed` returns neither at once nor long after its limit.
pub(super) async fn changed_waits_while_nothing_changes(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    // The key was never there, then is there, then is removed.
    for text in [None, Some("a"), None] {
        match text {
            Some(text) => _ = put(&one, &key, text).await?,
            None => remove(&one, &key).await?,
        }
        let version = other.read(&key).await?.version;
        let mut early = 0;
        while early < TRIES && ends_before(other.changed(&key, &version, AT_MOST), AT_MOST / 2).await? {
            early += 1;
        }
        ensure!(
            early < TRIES,
            "`changed` returned {early} times at once, with nothing changed and a second to wait: \
             waiters would ask without a pause"
        );
        let ended = timeout(AT_MOST + PATIENCE, other.changed(&key, &version, AT_MOST)).await;
        let Ok(ended) = ended else {
            return Err(Stop::failed(format_args!(
                "`changed` may wait for {AT_MOST:?} at most, but had not returned {PATIENCE:?} after that"
            )));
        };
        ended?;
    }
    Ok(())
}

/// The changes to a key, in this order.
const CHANGES: [(&str, Option<&str>); 3] =
    [("created", Some("first")), ("rewritten", Some("second")), ("removed", None)];

/// A client waits in `changed`, and another creates, rewrites or removes the key. The wait ends soon.
pub(super) async fn changed_ends_on_change(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    needs_changes(&one)?;
    for (what, to) in CHANGES {
        let version = one.read(&key).await?.version;
        let mut wait = one.changed(&key, &version, LONG);
        // Gives the watch time to begin.
        let early = ends_before(&mut wait, Duration::from_millis(300)).await?;
        swapped(&other, &key, &version, to).await?;
        // A hint may come without a change; another case fails if it always does.
        if !early {
            ends(wait, &format!("after another client had {what} the key")).await?;
        }
    }
    Ok(())
}

/// A client reads, another client writes, and then the first calls `changed`: it must return soon.
pub(super) async fn changed_ends_on_earlier_change(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    needs_changes(&one)?;
    for (what, to) in CHANGES {
        let version = one.read(&key).await?.version;
        swapped(&other, &key, &version, to).await?;
        let when = format!(
            "although another client had {what} the key between `read` and `changed`: \
             watch from the version that was read, not from now"
        );
        ends(one.changed(&key, &version, LONG), &when).await?;
    }
    Ok(())
}

async fn ends(wait: impl Future<Output = Result<(), StoreError>>, when: &str) -> Check {
    let late = || Stop::failed(format_args!("`changed` still waited {PATIENCE:?} later, {when}"));
    Ok(timeout(PATIENCE, wait).await.map_err(|_| late())??)
}

fn needs_changes(client: &RecordClient) -> Check {
    if client.tells_of_changes() { Ok(()) } else { Err(Stop::Lacks(Need::Wakeups)) }
}
