//! Names: each stands for itself, on every store (clause B1).

use crate::{
    Check, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, kept_out},
};
use std::time::Duration;
use tenure_core::{Error, Name};

cases!("names":
    case_matters, hostile_names, prefix_names_differ, long_names_no_collision, trailing_space_matters,
    bad_names_refused.policy(),
);

/// What a free lock may take, also where that takes a new connection of a busy server. Less than the lease of 30 s, after
/// which a lock that was not released is free.
const SOON: Duration = Duration::from_secs(20);

/// Proves that each name locks, and that none meets another: one client holds them all at once, and each keeps another
/// client out until that one is released.
async fn none_meets_another(stage: &Stage, names: &[String]) -> Check {
    let [one, other] = stage.clients().await?;
    let mut guards = Vec::new();
    for name in names {
        // A name that contains the case's prefix is free; one without it may be another run's for a moment.
        let taken = one.lock(name).wait(SOON).acquire().await;
        guards
            .push(taken.map_err(|error| Stop::failed(format_args!("{name:?} could not be taken: {error}")))?);
    }
    for (name, guard) in names.iter().zip(&guards) {
        ensure_eq!(guard.name().as_str(), name);
        kept_out(&other.lock(name)).await?;
    }
    let mut rest = guards.into_iter();
    while let Some(guard) = rest.next() {
        let name = guard.name().clone();
        guard.release().await?;
        let taken = other.lock(&*name).wait(SOON).acquire().await;
        let taken =
            taken.map_err(|error| Stop::failed(format_args!("{name:?} is not free again: {error}")))?;
        for held in rest.as_slice() {
            ensure!(held.is_held(), "releasing {name:?} cost {held:?} its lock");
        }
        if let Some(next) = rest.as_slice().first() {
            let freed = other.lock(&**next.name()).try_acquire().await?;
            ensure!(freed.is_none(), "releasing {name:?} freed {:?}", next.name());
        }
        taken.release().await?;
    }
    Ok(())
}

async fn case_matters(stage: &Stage) -> Check {
    let names = ["a", "A", "straße", "STRASSE", "Straße", "istanbul", "ISTANBUL", "ıstanbul", "İstanbul"];
    none_meets_another(stage, &names.map(|last| stage.name(last))).await
}

async fn hostile_names(stage: &Stage) -> Check {
    let hostile = [
        "/",
        "//",
        "/a",
        "a/",
        "\\",
        "\\\\",
        ".",
        "..",
        "../..",
        "/..",
        "%",
        "%2F",
        "%2f",
        "_",
        "{a}b",
        "{a}c",
        "{}",
        "{",
        "*",
        "?",
        "[a]",
        "'",
        "''",
        "\"",
        "`",
        " ",
        "  ",
        "a b",
        "a  b",
        "$1",
        ":1",
        "--",
        ";",
        "#",
        "&",
        "=",
        "+",
        "a:b",
        "a,b",
        "a|b",
        "a@b",
        "~",
        "-",
        "🔒",
        "👩‍🚀",
        "é",
        "e\u{301}",
        "Ω",
        "\u{2126}",
        "\u{feff}",
        "\u{200b}",
        "null",
        "NULL",
        "0",
        "00",
    ];
    let mut names: Vec<String> = hostile.iter().map(|last| stage.name(last)).collect();
    // At the end of a name, in its middle, and as all of it.
    names.extend(["/", ".", "..", "*", "{}", "%00"].map(|last| format!("{}{last}end", stage.prefix())));
    names.extend([".", "..", "/", "*", "%", "'", " ", "{}"].map(str::to_owned));
    let padding = (Name::MAX_BYTES - stage.prefix().len()) / "🔒".len();
    names.push(stage.name(&"🔒".repeat(padding)));
    none_meets_another(stage, &names).await
}

async fn prefix_names_differ(stage: &Stage) -> Check {
    let names = ["foo", "foo/bar", "foo/bar/baz", "foo/", "fo", "foo.", "foobar"];
    none_meets_another(stage, &names.map(|last| stage.name(last))).await
}

async fn long_names_no_collision(stage: &Stage) -> Check {
    let long = |last: &str| {
        let padding = Name::MAX_BYTES - stage.prefix().len() - last.len();
        stage.name(&("x".repeat(padding) + last))
    };
    let names = ["a", "b", "aa", "A", "é", "è", " ", "/"].map(long);
    for name in &names {
        ensure_eq!(name.len(), Name::MAX_BYTES);
    }
    let shorter = long("")[..Name::MAX_BYTES - 1].to_owned();
    none_meets_another(stage, &[names.as_slice(), &[shorter]].concat()).await
}

async fn trailing_space_matters(stage: &Stage) -> Check {
    let names = ["job", "job ", "job  ", " job", "job\u{a0}"];
    none_meets_another(stage, &names.map(|last| stage.name(last))).await
}

async fn bad_names_refused(stage: &Stage) -> Check {
    let client = stage.client().await?;
    let long = "x".repeat(201);
    let long_in_bytes = "é".repeat(101);
    let bad = ["", &long, &long_in_bytes, "a\nb", "\0", "tab\t", "\u{7f}", "\u{85}"];
    for name in bad {
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
                    "{name:?} is not a valid name, and was not refused as such: {outcome:?}"
                )));
            };
            let text = error.to_string();
            ensure!(text.contains("1 to 200 bytes"), "the refusal of {name:?} does not say the rule: {text}");
            ensure!(!text.contains(char::is_control), "the refusal of {name:?} repeats a control character");
        }
    }
    let asked = client.probe.calls().all();
    ensure!(asked.is_empty(), "the store was asked about bad names: {asked:?}");
    Ok(())
}
