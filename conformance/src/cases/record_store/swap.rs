//! Reads see answered swaps, and a swap is carried out exactly if its version is current.

use super::requests::{remove, swapped};
use crate::{
    Check, Stage,
    any_records::{AnyVersion, RecordClient},
    check::{Stop, ensure},
};
use futures_util::future::try_join_all;

/// Enough to meet a replica or a cache that lags behind.
const ROUNDS: usize = 100;
/// How many swaps from the same version are sent at once.
const AT_ONCE: usize = 8;

/// Two clients swap and read in turn. Each read returns the newest text.
pub(super) async fn read_sees_every_answered_swap(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    let mut version = one.read(&key).await?.version;
    // Fills a cache, if there is one.
    other.read(&key).await?;
    for round in 0..ROUNDS {
        let (writer, reader) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let text = format!("text {round}");
        swapped(writer, &key, &version, Some(&text)).await?;
        for client in [reader, writer] {
            let stored = client.read(&key).await?;
            ensure!(
                stored.text.as_deref() == Some(&text),
                "`read` answered {:?} after `swap` had answered true to {text:?}: \
                 a read must not ask a replica or a cache that may lag behind",
                stored.text
            );
            version = stored.version;
        }
    }
    remove(&one, &key).await
}

/// A key is created and removed, twice. Afterwards `read` and `list` do not have it.
pub(super) async fn removed_key_is_absent(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    for round in ["first", "second"] {
        let before = one.read(&key).await?;
        ensure!(
            before.text.is_none(),
            "`read` of a key that is not there answered {:?}, not `text: None`",
            before.text
        );
        swapped(&one, &key, &before.version, Some(round)).await?;
        let written = other.read(&key).await?;
        swapped(&other, &key, &written.version, None).await?;
        for client in [&one, &other] {
            let text = client.read(&key).await?.text;
            ensure!(text.is_none(), "`read` answered {text:?} after `swap` to None had answered true");
            let listed = client.list(&key).await?;
            ensure!(listed.is_empty(), "`list` has a key that `swap` to None had removed: {key:?}");
        }
    }
    Ok(())
}

/// A swap from a version that is no longer current neither writes nor removes.
pub(super) async fn old_version_swaps_nothing(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    let absent = one.read(&key).await?.version;
    let mut old = vec![("of the key's absence", absent)];
    for (text, what) in [("first", "of an earlier text"), ("second", "of the text before the removal")] {
        let current = one.read(&key).await?.version;
        swapped(&one, &key, &current, Some(text)).await?;
        nothing_swapped(&one, &other, &key, &old).await?;
        old.push((what, one.read(&key).await?.version));
    }
    let current = one.read(&key).await?.version;
    swapped(&one, &key, &current, None).await?;
    // The key is absent again, so the version of its absence may be current.
    nothing_swapped(&one, &other, &key, &old[1..]).await?;
    let current = one.read(&key).await?.version;
    swapped(&one, &key, &current, Some("third")).await?;
    nothing_swapped(&one, &other, &key, &old).await?;
    remove(&one, &key).await
}

async fn nothing_swapped(
    one: &RecordClient,
    other: &RecordClient,
    key: &str,
    old: &[(&str, AnyVersion)],
) -> Check {
    let before = one.read(key).await?.text;
    for (what, version) in old {
        for to in [Some("late"), None] {
            let answer = other.swap(key, version, to).await?;
            let after = one.read(key).await?.text;
            ensure!(
                after == before,
                "`swap` to {to:?} with the version {what} changed {before:?} to {after:?}: \
                 it must compare the version, and change nothing unless it is current"
            );
            ensure!(
                !answer,
                "`swap` to {to:?} with the version {what} answered true, and changed nothing: true says that it has written"
            );
        }
    }
    Ok(())
}

/// Comparing the version and writing are one step, and the answer says which swap was carried out.
pub(super) async fn one_of_many_swaps_is_carried_out(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    for round in 0..ROUNDS {
        let before = one.read(&key).await?;
        let texts: Vec<Option<String>> = (0..AT_ONCE)
            .map(|swap| (swap > 0 || before.text.is_none()).then(|| format!("{round}.{swap}")))
            .collect();
        let swap = |(at, to): (usize, &Option<String>)| {
            let (client, to) = (if at % 2 == 0 { &one } else { &other }, to.clone());
            let (key, from) = (&key, &before.version);
            async move {
                match client.swap(key, from, to.as_deref()).await {
                    Ok(answer) => Ok((answer.then_some(to), false)),
                    // A store may refuse swaps that meet: it may have carried this one out all the same.
                    Err(error) if error.is_unavailable() => Ok((None, true)),
                    Err(error) => Err(Stop::from(error)),
                }
            }
        };
        let answers = try_join_all(texts.iter().enumerate().map(swap)).await?;
        let in_doubt = answers.iter().any(|(_, in_doubt)| *in_doubt);
        let carried_out: Vec<_> = answers.into_iter().filter_map(|(carried_out, _)| carried_out).collect();
        let after = one.read(&key).await?.text;
        let count = carried_out.len();
        ensure!(
            count > 0 || in_doubt || after == before.text,
            "`swap` answered false to all of {AT_ONCE} swaps from one version, but the text is now {after:?}: \
             false says that nothing was written"
        );
        ensure!(
            count == 1 || count == 0 && in_doubt,
            "`swap` answered true to {count} of {AT_ONCE} swaps from the same version, not to one: \
             comparing the version and writing must be one step"
        );
        let only = carried_out.first();
        ensure!(
            only.is_none_or(|only| *only == after),
            "`swap` answered true to {only:?} only, but `read` answers {after:?}"
        );
    }
    remove(&one, &key).await
}
