//! Which store is meant, and who gets to see its URL.

use crate::stage::{Done, Stage};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A URL with a password, where no server is.
const SECRET: &str = "redis://:hunter2@127.0.0.1:1/";

/// Writes a file with this mode.
fn file(stage: &Stage, text: &str, mode: u32) -> PathBuf {
    let path = stage.path("store");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn store_file_gives_the_url() {
    let stage = Stage::new();
    file(&stage, "sqlite:other.db\n", 0o644);
    let done = stage.done(&["--store-file", "store", "run", "a", "--", "true"]).expect(0);
    assert_eq!(done.err, "");
    assert!(
        stage.path("other.db").exists() && !stage.path("locks.db").exists(),
        "it goes before TENURE_STORE"
    );
    fs::remove_file(stage.path("other.db")).unwrap();
    let mut tenure = stage.tenure(&["run", "a", "--", "true"]);
    Done::of(tenure.env_remove("TENURE_STORE").env("TENURE_STORE_FILE", "store")).expect(0);
    assert!(stage.path("other.db").exists());
    stage.done(&["--store", "sqlite:third.db", "run", "a", "--", "true"]).expect(0);
    assert!(stage.path("third.db").exists());
}

#[test]
fn unusable_store_file_is_refused() {
    let stage = Stage::new();
    let refused = |why: &str| {
        let done = stage.done(&["--store-file", "store", "ls"]).expect(64);
        assert!(done.err.contains("\"store\"") && done.err.contains(why), "{}", done.err);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
    };
    refused("No such file");
    for (text, why) in
        [(" \n", "it is empty"), ("redis://:hunter2@h\nredis://:hunter2@h2\n", "several lines")]
    {
        file(&stage, text, 0o600);
        refused(why);
    }
    fs::write(stage.path("store"), b"redis://:hunter2\xff@h").unwrap();
    refused("UTF-8");
}

/// Whose command line has no URL must learn where it is.
#[test]
fn invalid_url_names_its_variable_or_file() {
    let stage = Stage::new();
    file(&stage, "redis:x", 0o600);
    let of_file = stage.done(&["--store-file", "store", "run", "a", "--", "true"]).expect(64);
    assert!(of_file.err.ends_with("  the URL is from \"store\"\n"), "{}", of_file.err);
    let of_variable = Done::of(stage.tenure(&["ls"]).env("TENURE_STORE", "redis:x")).expect(64);
    assert!(of_variable.err.ends_with("  the URL is from TENURE_STORE\n"), "{}", of_variable.err);
    let given = stage.done(&["--store", "redis:x", "ls"]).expect(64);
    assert!(!given.err.contains("is from"), "{}", given.err);
}

/// Two settings of equal rank: `tenure` might choose the wrong store.
#[test]
fn two_stores_are_refused() {
    let stage = Stage::new();
    let done = Done::of(stage.tenure(&["ls"]).env("TENURE_STORE_FILE", "store")).expect(64);
    assert!(done.err.contains("TENURE_STORE and TENURE_STORE_FILE are both set"), "{}", done.err);
}

#[test]
fn visible_password_gets_a_warning() {
    let stage = Stage::new();
    let warned = |done: Done, warning: &str| {
        let done = done.expect(69);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
        done.err.contains(warning)
    };
    let in_list = "see the password in --store;";
    assert!(warned(stage.done(&["--store", SECRET, "ls"]), in_list));
    assert!(!warned(stage.done(&["--store", "redis://127.0.0.1:1/", "ls"]), in_list));
    assert!(!warned(Done::of(stage.tenure(&["ls"]).env("TENURE_STORE", SECRET)), in_list));
    let in_file = "read the password in \"store\"";
    for (text, mode, is_seen) in [
        (SECRET, 0o644, true),
        (SECRET, 0o640, false),
        (SECRET, 0o600, false),
        ("redis://127.0.0.1:1/", 0o644, false),
    ] {
        file(&stage, text, mode);
        assert_eq!(warned(stage.done(&["--store-file", "store", "ls"]), in_file), is_seen, "{mode:o}");
    }
}

/// How a store is named, by options and in the environment.
type Naming = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// One store, named in each way.
const NAMINGS: [Naming; 5] = [
    (&[], &[("TENURE_STORE", "sqlite:locks.db")]),
    (&[], &[("TENURE_STORE_FILE", "store")]),
    (&["--store", "sqlite:locks.db"], &[]),
    (&["--store-file", "store"], &[]),
    (&["--store", "sqlite:locks.db"], &[("TENURE_STORE", "sqlite:other.db")]),
];

/// A stage with a file that names its store.
fn stage_with_file() -> Stage {
    let stage = Stage::new();
    file(&stage, "sqlite:locks.db", 0o600);
    stage
}

#[test]
fn command_gets_the_store_only_with_keep_store() {
    let stage = stage_with_file();
    let tell = ["--", "sh", "-c", "echo \"<${TENURE_STORE-unset}> <${TENURE_STORE_FILE-unset}>\""];
    let file = format!("<unset> <{}>\n", stage.path("store").display());
    for verb in ["run", "elect"] {
        let told = |(named, variables): Naming, options: &[&str]| {
            let mut tenure = stage.tenure(&[named, &[verb, "a"], options, &tell].concat());
            let tenure = tenure.env_remove("TENURE_STORE").envs(variables.iter().copied());
            Done::of(tenure).expect(0).out
        };
        for naming in NAMINGS {
            assert_eq!(told(naming, &[]), "<> <>\n", "{verb}, {naming:?}");
            let is_file = format!("{naming:?}").contains("\"store\"");
            let kept = if is_file { &file } else { "<sqlite:locks.db> <unset>\n" };
            assert_eq!(told(naming, &["--keep-store"]), kept, "{verb}, {naming:?}");
        }
        // None was named, so nothing is hidden: `tenure` in the command uses this user's file too.
        for options in [&[][..], &["--keep-store"]] {
            assert_eq!(told((&[], &[]), options), "<unset> <unset>\n");
        }
    }
}

/// In a command under `tenure`, both are empty: a store that is not passed on is not replaced by another one unnoticed.
#[test]
fn empty_variable_is_refused() {
    let stage = stage_with_file();
    let ls = |variables: &[(&str, &str)]| {
        let mut tenure = stage.tenure(&["ls"]);
        Done::of(tenure.env_remove("TENURE_STORE").envs(variables.iter().copied()))
    };
    for (empty, why) in [
        (&[("TENURE_STORE", "")][..], "TENURE_STORE is empty"),
        (&[("TENURE_STORE_FILE", "")], "TENURE_STORE_FILE is empty"),
        (&[("TENURE_STORE", ""), ("TENURE_STORE_FILE", "")], "TENURE_STORE and TENURE_STORE_FILE are empty"),
    ] {
        let done = ls(empty).expect(64);
        assert!(done.err.contains(why) && done.err.contains("--keep-store"), "{}", done.err);
    }
    // A store that the command itself names counts.
    ls(&[("TENURE_STORE", "sqlite:locks.db"), ("TENURE_STORE_FILE", "")]).expect(0);
    ls(&[("TENURE_STORE", ""), ("TENURE_STORE_FILE", "store")]).expect(0);
}

/// In a cron job on many machines that were meant to share one.
#[test]
fn default_store_is_mentioned_once_without_a_terminal() {
    let stage = Stage::new();
    let file =
        format!("sqlite:{}?create_directory=true", stage.path(".local/state/tenure/locks.db").display());
    let mentions = |options: &[&str]| {
        let mut tenure = stage.tenure(&[options, &["run", "a", "--", "true"]].concat());
        let done = Done::of(tenure.env_remove("TENURE_STORE")).expect(0);
        let told = done.err.matches("no store is given").count();
        assert_eq!(done.err.matches(&file).count(), told, "{}", done.err);
        told
    };
    assert_eq!(mentions(&[]), 1);
    assert_eq!(mentions(&["--quiet"]), 1);
    // The URL that the warning gives ends it.
    assert_eq!(mentions(&["--store", &file]), 0);
    assert_eq!(stage.done(&["run", "a", "--", "true"]).expect(0).err, "");
}
