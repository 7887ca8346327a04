//! A list has all keys, each once, as they were at one instant.

use super::requests::{remove, swapped};
use crate::{
    Check, Need, Stage,
    any_records::{AnyVersion, RecordClient},
    check::{Stop, ensure},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// More than any store returns in one page.
const MANY: usize = 2_000;
/// How many keys are written at a time.
const AT_ONCE: usize = 8;
/// The least number of lists that are read, and to which a writer counts meanwhile.
const LISTS: u64 = 50;

fn numbered(prefix: &str) -> impl Iterator<Item = String> {
    (0..MANY).map(move |number| format!("{prefix}{number:04}"))
}

async fn create(client: &RecordClient, keys: impl Iterator<Item = String>) -> Check {
    let create = |key: String| async move {
        let absent = client.read(&key).await?.version;
        swapped(client, &key, &absent, Some(&key)).await
    };
    stream::iter(keys).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

/// Removes these keys, by the versions that a list returned.
async fn remove_listed(client: &RecordClient, keys: HashMap<String, AnyVersion>) -> Check {
    let remove = |(key, version): (String, AnyVersion)| async move {
        ensure!(
            client.swap(&key, &version, None).await?,
            "`list` returned a version of {key:?} that `swap` does not accept, although no client had written since"
        );
        Ok(())
    };
    stream::iter(keys).map(remove).buffer_unordered(AT_ONCE).try_collect().await
}

/// Of 2,000 keys under a prefix, `list` returns each once, with a current version, and no other key.
pub(super) async fn list_is_complete(stage: &Stage) -> Check {
    let [one, other] = stage.record_clients().await?;
    // The store must not take the prefix for a pattern, nor ignore its case or its end.
    let prefix = stage.name("l_%*?[a]/");
    let beside =
        ["lX%*?[a]/0", "l_XXX?a/0", "L_%*?[a]/0", "l_%*?[a]", "l_%*?[a]0"].map(|key| stage.name(key));
    create(&one, numbered(&prefix).chain(beside.iter().cloned())).await?;
    let listed = other.list(&prefix).await?;
    let (count, mut versions) = (listed.len(), HashMap::new());
    for (key, stored) in listed {
        ensure!(
            key.starts_with(&prefix),
            "`list` returned {key:?}, which does not begin with the prefix {prefix:?}: \
             no character of a prefix is a pattern, and case matters"
        );
        ensure!(
            stored.text.as_ref() == Some(&key),
            "`list` returned {key:?} with the text {:?}, which was never written there",
            stored.text
        );
        if versions.insert(key.clone(), stored.version).is_some() {
            return Err(Stop::failed(format_args!("`list` returned {key:?} twice")));
        }
    }
    let missing: Vec<String> = numbered(&prefix).filter(|key| !versions.contains_key(key)).collect();
    ensure!(
        missing.is_empty(),
        "`list` returned {count} of {MANY} keys; the first one that is missing is {:?}: \
         a list must go on until the last page",
        missing[0]
    );
    ensure!(count == MANY, "`list` returned {count} keys, expected the {MANY} that begin with the prefix");
    remove_listed(&other, versions).await?;
    let left = one.list(&prefix).await?;
    ensure!(left.is_empty(), "`list` still returned {} keys after all were removed", left.len());
    for key in &beside {
        remove(&one, key).await?;
    }
    Ok(())
}

/// A writer counts in one key and then in another, and a list has 2,000 keys between them. At no instant is the second
/// counter ahead of the first, or more than one behind it.
pub(super) async fn list_shows_one_instant(stage: &Stage) -> Check {
    let [writer, reader] = stage.record_clients().await?;
    if !reader.lists_one_instant() {
        return Err(Stop::Lacks(Need::OneInstant));
    }
    let prefix = stage.name("list/");
    create(&writer, numbered(&prefix)).await?;
    let counters = [format!("{prefix}/"), format!("{prefix}~")];
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = async {
        for number in 1.. {
            // Both are read first, so that little time passes between the two swaps.
            let [first, second] = &counters;
            let before = [writer.read(first).await?, writer.read(second).await?];
            for (key, before) in counters.iter().zip(&before) {
                swapped(&writer, key, &before.version, Some(&number.to_string())).await?;
            }
            counted.store(number, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    };
    let look = async {
        let looked = look(&reader, &prefix, &counters, &counted).await;
        stop.store(true, Ordering::Relaxed);
        looked
    };
    let (counting, looked): (Check, Check) = tokio::join!(count, look);
    looked.and(counting)?;
    let versions =
        reader.list(&prefix).await?.into_iter().map(|(key, stored)| (key, stored.version)).collect();
    remove_listed(&writer, versions).await
}

/// Reads lists until the counters have gone up often enough.
async fn look(client: &RecordClient, prefix: &str, counters: &[String; 2], counted: &AtomicU64) -> Check {
    let mut lists = 0;
    while lists < LISTS || counted.load(Ordering::Relaxed) < LISTS {
        let listed: HashMap<_, _> = client.list(prefix).await?.into_iter().collect();
        let told =
            |key| listed.get(key).and_then(|stored| stored.text.as_ref()?.parse().ok()).unwrap_or(0u64);
        let [first, second] = [&counters[0], &counters[1]].map(told);
        ensure!(
            second <= first && first <= second + 1,
            "`list` shows two instants: {first} in {:?} beside {second} in {:?}, which is written after it: \
             read all pages at one revision, or in one transaction",
            counters[0],
            counters[1]
        );
        lists += 1;
    }
    Ok(())
}
