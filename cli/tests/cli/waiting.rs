//! Messages of a waiting `tenure`, and options for more or fewer.

use crate::stage::{Done, Stage};
use nix::sys::signal::Signal;
use std::fs;

/// As of two machines whose clocks differ.
#[test]
fn short_job_keeps_its_lock_for_at_least() {
    let stage = Stage::new();
    let job = ["run", "--try", "a", "--at-least", "1h", "--", "echo", "ran"];
    assert_eq!(stage.done(&job).expect(0).out, "ran\n");
    let late = stage.done(&job).expect(75);
    let holder = "held by echo [at least 1h] (";
    assert!(late.out.is_empty() && late.err.contains("is busy") && late.err.contains(holder), "{}", late.err);
    // A job that fails, and one that takes longer.
    stage.done(&["run", "b", "--at-least", "1h", "--", "false"]).expect(1);
    stage.done(&["run", "b", "--try", "--", "true"]).expect(75);
    stage.done(&["run", "c", "--at-least", "100ms", "--", "sleep", "0.2"]).expect(0);
    stage.done(&["run", "c", "--try", "--", "true"]).expect(0);
}

/// In a log, where no line can move.
#[test]
fn long_wait_is_reported_without_a_terminal() {
    let stage = Stage::new();
    let holder = stage.holder("a --label backup");
    holder.line();
    // The first line comes after 5 s, the second one after 30 s.
    let latch = ["latch", "wait", "loaded", "--parties", "2", "--wait", "15s"];
    let waits: [&[&str]; 3] = [
        &["run", "a", "--wait", "15s", "--", "true"],
        &["run", "a", "--quiet", "--wait", "15s", "--", "true"],
        &latch,
    ];
    let [told, quiet, latch] = waits.map(|args| stage.start(args)).map(|waiter| waiter.end().expect(75).err);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("tenure: waiting for \"a\": held by backup ("), "{told}");
    assert!(lines[0].contains(" for ") && lines[0].ends_with(" of its lease left"), "{told}");
    assert!(lines[1].contains("within 15s"), "{told}");
    assert!(!quiet.contains("waiting for") && quiet.contains("within 15s"), "{quiet}");
    let lines: Vec<&str> = latch.lines().collect();
    assert_eq!(lines[0], "tenure: waiting for latch \"loaded\": 2 of 2 parties still missing");
    assert!(lines[1].contains("did not open within 15s"), "{latch}");
}

#[test]
fn wait_ends_when_the_lock_is_free() {
    let stage = Stage::new();
    // Never locked.
    stage.done(&["wait", "a"]).expect(0);
    let holder = stage.holder("a --label backup");
    let group = holder.group();
    let busy = |limit: &[&str], code, said: &str| {
        let done = stage.done(&[&["wait", "a"], limit].concat()).expect(code);
        assert!(done.err.contains(said) && done.err.contains("held by backup ("), "{}", done.err);
    };
    busy(&["--try"], 75, "lock \"a\" in sqlite:");
    busy(&["--try"], 75, " is busy\n");
    busy(&["--wait", "300ms"], 75, "was not free within 300ms");
    busy(&["--wait", "0s", "--exit-code", "3"], 3, "was not free within 0s");
    stage.done(&["wait", "b", "--try"]).expect(0);
    let waiters: [&[&str]; 2] = [&[], &["--wait", "10m"]];
    let waiters = waiters.map(|limit| stage.start(&[&["wait", "a", "-v"], limit].concat()));
    for waiter in &waiters {
        waiter.says("tenure: waiting for \"a\": held by backup (");
    }
    group.signal(Signal::SIGTERM);
    for waiter in waiters {
        waiter.end().expect(0);
    }
    // It acquired nothing.
    stage.done(&["show", "a"]).expect(1);
}

/// From the first attempt to connect on: a machine may start before its store does.
#[test]
fn unavailable_store_is_retried_until_the_wait_ends() {
    let stage = Stage::new();
    let url = "sqlite:locks.db?busy_timeout=1ms";
    let began = ["run", "a", "--wait", "10m", "--", "echo", "run"];
    let elected = ["elect", "e", "--", "echo", "elect"];
    let free = ["wait", "w"];
    let latched = ["latch", "wait", "l", "--parties", "1", "--wait", "10m"];
    for args in [&began[..], &elected, &free, &latched] {
        let _ = fs::remove_file(stage.path("locks.db"));
        let closed = stage.freeze_new();
        let waiter = stage.start(&[&["--store", url], args].concat());
        let limit = if args.contains(&"10m") { "for up to 10m" } else { "until it answers" };
        waiter.says(&format!("tenure: the store is unavailable; trying again {limit}"));
        // With the reason.
        waiter.says("locked for 1ms");
        closed.thaw();
        if args[0] == "latch" {
            stage.done(&["latch", "count-down", "l", "p", "--parties", "1"]).expect(0);
        }
        waiter.end().expect(0);
    }
    fs::remove_file(stage.path("locks.db")).unwrap();
    let closed = stage.freeze_new();
    let done = stage.done(&["--store", url, "run", "a", "--wait", "300ms", "--", "true"]).expect(69);
    assert!(done.err.contains("locked for 1ms"), "{}", done.err);
    stage.done(&["--store", url, "run", "a", "--try", "--", "true"]).expect(69);
    closed.thaw();
    // Waiting helps nothing here.
    stage.done(&["--store", "sqlite:.", "run", "a", "--wait", "10m", "--", "true"]).expect(69);
    stage.done(&["--store", "sqlite:.", "elect", "a", "--", "true"]).expect(69);
}

/// Its error is not taken for a free lock.
#[test]
fn failed_store_ends_the_wait() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let waiter = stage.start(&["--store", "sqlite:locks.db?create_table=false", "wait", "a", "-v"]);
    waiter.says("tenure: waiting for \"a\": held by ");
    stage.drop_table();
    let done = waiter.end().expect(69);
    assert!(done.err.contains("no table tenure_locks"), "{}", done.err);
}

#[test]
fn quiet_prints_only_errors() {
    let stage = Stage::new();
    let url = "redis://:hunter2@127.0.0.1:1/";
    let warned = |options: &[&str]| {
        let run = [&["--store", url, "run", "a", "--try"], options, &["--", "true"]].concat();
        let done = stage.done(&run).expect(69);
        assert!(done.err.contains("127.0.0.1:1"), "{}", done.err);
        done.err.contains("see the password")
    };
    assert!(warned(&[]) && !warned(&["--quiet"]) && !warned(&["-q"]));
    let holder = stage.holder("a");
    holder.line();
    let busy = |options: &[&str]| {
        let done = stage.done(&[&["run", "a", "-q", "--try"], options, &["--", "true"]].concat());
        (done.code, done.err.contains("is busy"))
    };
    assert_eq!(busy(&[]), (Some(75), true));
    // Cron sends no mail for it.
    assert_eq!(busy(&["--exit-code", "0"]), (Some(0), false));
}

#[test]
fn verbose_reports_success() {
    let stage = Stage::new();
    let done = stage.done(&["run", "a", "-v", "--", "true"]).expect(0);
    let (store, lines) = done.err.split_once('\n').unwrap();
    // So the log shows which locks these are, even if the user named no store.
    assert!(store.starts_with("tenure: using sqlite:"), "{}", done.err);
    assert!(store.ends_with(r#"locks.db (prefix "", table "tenure_locks")"#), "{}", done.err);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines[0].starts_with("tenure: lock acquired (name a, "), "{}", done.err);
    assert!(lines[0].contains(" store sqlite:"), "{}", done.err);
    assert!(lines[1].starts_with("tenure: lock released (name a, "), "{}", done.err);
    assert_eq!(Done::of(&mut stage.tenure(&["run", "a", "--", "true"])).err, "");
    stage.done(&["run", "a", "-v", "-q", "--", "true"]).expect(64);
}

/// It holds the first of them already.
#[test]
fn waiter_for_several_names_sees_the_holder_of_the_busy_one() {
    let stage = Stage::new();
    let holder = stage.holder("b");
    holder.line();
    let waiter = stage.start(&["run", "-v", "b", "a", "--", "true"]);
    waiter.says("waiting for \"b\": held by sh (");
    assert!(!waiter.said().contains("waiting for \"a\""), "{}", waiter.said());
}
