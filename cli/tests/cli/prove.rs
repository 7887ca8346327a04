//! `tenure conformance` and `tenure schema`, for those who run a store.

use crate::stage::{Done, Stage};

#[test]
fn conformance_tests_the_given_store() {
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
fn conformance_tests_a_memory_store() {
    let stage = Stage::new();
    let done = stage.done(&["--store", "memory:", "conformance", "--filter", "memory::exclusion"]).expect(0);
    assert!(done.out.contains("ignored: needs processes"), "{}", done.out);
}

#[test]
fn conformance_fails_if_the_store_cannot_be_opened() {
    let stage = Stage::new();
    let done = Done::of(stage.tenure(&["conformance"]).env("TENURE_STORE", "sqlite:.")).expect(69);
    assert!(done.err.contains("is a directory"), "{}", done.err);
}

/// The errors for a missing table name these commands.
#[test]
fn schema_names_the_given_table() {
    let stage = Stage::new();
    let printed = |words: &[&str]| stage.done(&[&["schema"], words].concat()).expect(0).out;
    let row_lock = |dialect| printed(&[dialect, "--strategy", "row-lock", "--table", "app.x"]);
    assert_eq!(printed(&["sqlite", "--table", "x"]), tenure_sql::sqlite_schema("x").unwrap());
    assert_eq!(printed(&["postgres", "--table", "app.x"]), tenure_sql::postgres_schema("app.x").unwrap());
    assert_eq!(printed(&["mysql", "--table", "app.x"]), tenure_sql::mysql_schema("app.x").unwrap());
    let (table, latches) =
        (tenure_sql::postgres_row_schema("app.x"), tenure_sql::postgres_schema("app.x_latches"));
    assert_eq!(row_lock("postgres"), [table.unwrap(), latches.unwrap()].join("\n"));
    let (table, latches) = (tenure_sql::mysql_row_schema("app.x"), tenure_sql::mysql_schema("app.x_latches"));
    assert_eq!(row_lock("mysql"), [table.unwrap(), latches.unwrap()].join("\n"));
    let longest = "x".repeat(63);
    let alone = printed(&["mysql", "--strategy", "row-lock", "--table", &longest]);
    assert_eq!(alone, tenure_sql::mysql_row_schema(&longest).unwrap());
    let refused = stage.done(&["schema", "postgres", "--table", "a b"]).expect(64);
    assert!(refused.err.contains("table"), "{}", refused.err);
}
