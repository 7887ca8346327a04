//! The store keeps and compares keys and texts byte for byte.

use super::{
    super::names::HOSTILE,
    requests::{put, remove, swapped},
};
use crate::{
    Check, Stage,
    check::{Stop, chain, ensure},
};

/// The longest key, in bytes.
const LONGEST: usize = 300;
/// The length of the text, in bytes, of a name for which a hundred clients wait.
const LONG_TEXT: usize = 30_000;

/// Texts that a comparison by the rules of a language takes for the same.
const ALIKE: &[&str] = &["job", "JOB", "job ", "jo\u{301}b", "j\u{f3}b", "job\u{200b}"];

/// Keys that differ in any byte keep different texts.
pub(super) async fn keys_are_kept_byte_for_byte(stage: &Stage) -> Check {
    let [one, other] = stage.record_clients().await?;
    let prefix = stage.name("keys/");
    let mut keys: Vec<String> = HOSTILE.iter().map(|last| format!("{prefix}{last}")).collect();
    for last in ["a", "b", "B", "é", " "] {
        let padding = LONGEST - prefix.len() - last.len();
        keys.push(format!("{prefix}{}{last}", "x".repeat(padding)));
    }
    // The error names the request.
    let refused = |key: &str, error| {
        Stop::failed(format_args!("{}, with the key {key:?} of {} bytes", chain(&error), key.len()))
    };
    for key in &keys {
        let before = one.read(key).await.map_err(|error| refused(key, error))?;
        ensure!(
            before.text.is_none(),
            "`read` of {key:?} answered the text of another key: {:?}",
            before.text.unwrap_or_default()
        );
        let written = one.swap(key, &before.version, Some(key)).await.map_err(|error| refused(key, error))?;
        ensure!(written, "`swap` that creates {key:?} answered false, although no client had written it");
    }
    for key in &keys {
        let text = other.read(key).await?.text;
        ensure!(
            text.as_ref() == Some(key),
            "`read` of {key:?} answered {text:?}, not its own text: two keys are kept as one"
        );
    }
    let mut listed: Vec<String> = other.list(&prefix).await?.into_iter().map(|(key, _)| key).collect();
    listed.sort();
    let mut sorted = keys.clone();
    sorted.sort();
    ensure!(
        listed == sorted,
        "`list` does not return the keys as they were written: {:?} is missing, {:?} was never written",
        sorted.iter().find(|key| !listed.contains(key)),
        listed.iter().find(|key| !sorted.contains(key))
    );
    let mut rest = keys.iter();
    while let Some(key) = rest.next() {
        remove(&one, key).await?;
        if let Some(next) = rest.as_slice().first() {
            let text = one.read(next).await?.text;
            ensure!(text.as_ref() == Some(next), "`swap` of {key:?} to None changed {next:?} to {text:?}");
        }
    }
    Ok(())
}

/// `read` and `list` return texts byte for byte. A text that looks alike has another version.
pub(super) async fn texts_are_kept_byte_for_byte(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    let long = "🔒 {\"a\":[1,2]} ".repeat(LONG_TEXT / "🔒 {\"a\":[1,2]} ".len());
    let hostile = ["{\"a\":\"\\u0000 \\\\ é\"}", "' OR 1=1; --", "%s ${1} \\N", "0", "null", " ", &long];
    for text in hostile.into_iter().chain(ALIKE.iter().copied()) {
        let current = one.read(&key).await?.version;
        swapped(&one, &key, &current, Some(text)).await?;
        let read = other.read(&key).await?.text;
        let listed = other.list(&key).await?.pop().and_then(|(_, stored)| stored.text);
        for (request, answer) in [("read", read), ("list", listed)] {
            let answer = answer.unwrap_or_default();
            ensure!(
                answer == text,
                "`{request}` returned a text of {} bytes where `swap` had written one of {}: {:?}…, not {:?}…",
                answer.len(),
                text.len(),
                beginning(&answer),
                beginning(text)
            );
        }
    }
    // Two texts that look alike are two versions.
    for pair in ALIKE.windows(2) {
        let old = put(&one, &key, pair[0]).await?;
        put(&one, &key, pair[1]).await?;
        ensure!(
            !other.swap(&key, &old, Some("late")).await?,
            "`swap` with the version of {:?} overwrote {:?}: versions must be compared byte for byte",
            pair[0],
            pair[1]
        );
    }
    remove(&one, &key).await
}

fn beginning(text: &str) -> String {
    text.chars().take(30).collect()
}
