//! Names: each is a lock of its own, on every store (clause B1).

use crate::{
    Check, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, kept_out},
};
use std::time::Duration;
use tenure_core::{Error, Name};

cases!("names":
    hostile_names, long_names_no_collision, bad_names_refused.policy(),
);

/// Ends of names with special characters of databases, paths, URLs and patterns. Some differ only in case, in spaces or in
/// what follows a common beginning.
pub(super) const HOSTILE: &[&str] = &[
    "a",
    "A",
    "a ",
    "a  ",
    " a",
    "a\u{a0}",
    "a/",
    "a/b",
    "a//b",
    "a/../b",
    "a/./b",
    "/",
    "//",
    ".",
    "..",
    "\\",
    "\\\\",
    "%",
    "%2f",
    "%2F",
    "%252f",
    "_",
    "*",
    "?",
    "[a]",
    "{a}",
    "{}",
    "'",
    "''",
    "\"",
    "`",
    "$1",
    ":1",
    "--",
    ";",
    "#",
    "&",
    "=",
    "+",
    "~",
    "|",
    "é",
    "e\u{301}",
    "Ω",
    "\u{2126}",
    "ß",
    "ss",
    "ı",
    "i",
    "İ",
    "\u{feff}",
    "\u{200b}",
    "🔒",
    "👩‍🚀",
    "null",
    "0",
    "00",
    "/a",
    "../..",
    "/..",
    "{a}b",
    "{a}c",
    "{",
    " ",
    "  ",
    "a b",
    "a  b",
    "a:b",
    "a,b",
    "a|b",
    "a@b",
    "-",
    "NULL",
];

/// How long the grant of a free lock may take, even with a new connection to a busy server. Less than the lease of
/// 30 s, after which an unreleased lock is free.
const SOON: Duration = Duration::from_secs(20);

/// Proves that each name is a lock of its own: one client holds all at once, and each excludes another client until
/// it is released.
async fn none_meets_another(stage: &Stage, names: &[String]) -> Check {
    let [one, other] = stage.clients().await?;
    let mut guards = Vec::new();
    for name in names {
        // A name that contains the case's prefix is free; one without it may be another run's for a moment.
        let taken = one.lock(name).wait(SOON).acquire().await;
        guards.push(taken.map_err(|error| {
            Stop::failed(format_args!(
                "{name:?} must be a lock of its own, but was not granted while other names are held: {error}"
            ))
        })?);
    }
    for (name, guard) in names.iter().zip(&guards) {
        ensure_eq!(guard.name().as_str(), name, "the name of a guard");
        kept_out(&other.lock(name)).await?;
    }
    let mut rest = guards.into_iter();
    while let Some(guard) = rest.next() {
        let name = guard.name().clone();
        guard.release().await?;
        let taken = other.lock(&*name).wait(SOON).acquire().await;
        let taken = taken.map_err(|error| {
            Stop::failed(format_args!("{name:?} was released, but not granted again: {error}"))
        })?;
        for held in rest.as_slice() {
            ensure!(held.is_held(), "the release of {name:?} ended the lock of another name: {held:?}");
        }
        if let Some(next) = rest.as_slice().first() {
            let freed = other.lock(&**next.name()).try_acquire().await?;
            ensure!(freed.is_none(), "the release of {name:?} freed another name, {:?}", next.name());
        }
        taken.release().await?;
    }
    Ok(())
}

/// Names with special characters of databases, paths, URLs and patterns are different locks.
async fn hostile_names(stage: &Stage) -> Check {
    let mut names: Vec<String> = HOSTILE.iter().map(|last| stage.name(last)).collect();
    // So far at the end of a name. Now in its middle, and as the whole name.
    names.extend(["/", ".", "..", "*", "{}", "%00"].map(|last| format!("{}{last}end", stage.prefix())));
    names.extend([".", "..", "/", "*", "%", "'", " ", "{}"].map(str::to_owned));
    let padding = (Name::MAX_BYTES - stage.prefix().len()) / "🔒".len();
    names.push(stage.name(&"🔒".repeat(padding)));
    none_meets_another(stage, &names).await
}

/// Names of the greatest length that differ in the last bytes are different locks.
async fn long_names_no_collision(stage: &Stage) -> Check {
    let long = |last: &str| {
        let padding = Name::MAX_BYTES - stage.prefix().len() - last.len();
        stage.name(&("x".repeat(padding) + last))
    };
    let names = ["a", "b", "aa", "A", "é", "è", " ", "/"].map(long);
    for name in &names {
        ensure_eq!(name.len(), Name::MAX_BYTES, "bytes of a longest name");
    }
    let shorter = long("")[..Name::MAX_BYTES - 1].to_owned();
    none_meets_another(stage, &[names.as_slice(), &[shorter]].concat()).await
}

/// Invalid names are errors that state the rule. None reaches the store.
async fn bad_names_refused(stage: &Stage) -> Check {
    let client = stage.client().await?;
    let long = "x".repeat(201);
    let long_in_bytes = "é".repeat(101);
    let bad = [("", "empty"), (&*long, "201 bytes"), (&*long_in_bytes, "202 bytes")].into_iter();
    let controls = ["a\nb", "\0", "tab\t", "\u{7f}", "\u{85}"].map(|name| (name, "control character"));
    for (name, why) in bad.chain(controls) {
        let lock = client.lock(name).wait(Duration::from_secs(1));
        let outcomes = [
            lock.acquire().await.err(),
            lock.try_acquire().await.err(),
            client.holders(name).await.err(),
            client.force_release(name).await.err(),
        ];
        for outcome in outcomes {
            let Some(Error::InvalidName(error)) = outcome else {
                return Err(Stop::failed(format_args!(
                    "{name:?} is not a valid name, so the answer must be Err(InvalidName): got {outcome:?}"
                )));
            };
            let text = error.to_string();
            ensure!(
                text.contains("1 to 200 bytes") && text.contains(why),
                "the error about the name {name:?} must say \"1 to 200 bytes\" and {why:?}: {text}"
            );
            ensure!(
                !text.contains(char::is_control),
                "the error about the name {name:?} must not contain control characters"
            );
        }
    }
    let asked = client.probe.calls().all();
    ensure!(asked.is_empty(), "invalid names must not reach the store: {asked:?}");
    Ok(())
}
