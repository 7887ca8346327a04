//! `tenure conformance` and `tenure schema`, for those who run a store.

use crate::stage::{Done, Stage};

#[test]
fn the_suite_runs_on_a_persons_own_store() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    // With another process, and in another namespace.
    for case in ["exclusion::cross_process", "exclusion::namespaces_never_meet", "people::"] {
        let done = stage.done(&["conformance", "--filter", case]).expect(0);
        assert!(done.out.contains("locks.db\n") && done.out.contains("passed"), "{}", done.out);
        assert!(!done.out.contains("ignored:"), "{}", done.out);
    }
    let ls = stage.done(&["ls"]).expect(0).out;
    assert_eq!(ls.lines().count(), 2, "locks in use are untouched and nothing is added:\n{ls}");
    stage.done(&["conformance", "--filter", "no such case"]).expect(64);
}

#[test]
fn a_private_store_is_one_store_all_the_same() {
    let stage = Stage::new();
    let done = stage.done(&["--store", "memory:", "conformance", "--filter", "memory::exclusion"]).expect(0);
    assert!(done.out.contains("ignored: needs processes"), "{}", done.out);
}

#[test]
fn a_store_that_cannot_be_opened_is_not_proved() {
    let stage = Stage::new();
    let done = Done::of(stage.tenure(&["conformance"]).env("TENURE_STORE", "sqlite:.")).expect(69);
    assert!(done.err.contains("is a directory"), "{}", done.err);
}

/// What it prints is what the store would have made.
#[test]
fn the_schema_is_the_one_in_use() {
    let stage = Stage::new();
    let schema = stage.done(&["schema", "sqlite"]).expect(0).out;
    let made = schema.replace("IF NOT EXISTS ", "");
    stage.done(&["run", "a", "--", "true"]).expect(0);
    // What was not yet carried over into the file stands in its journal.
    let files = ["locks.db", "locks.db-wal"].map(|file| std::fs::read(stage.path(file)).unwrap_or_default());
    let bytes = files.concat();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(made.trim_end().trim_end_matches(';')), "{made}");
    stage.done(&["schema", "cobol"]).expect(64);
}
